"""What is done to payloads on their way into the database, and undone on their way out.

    a value ─► serde ─► JSON ─► Compress ─► Encrypt ─► Offload ─► a column of the database
                                                          └─────► a blob elsewhere, and its name in the column

Each layer puts a frame around what it has encoded (`frames`), with its name on it. So what is read says itself what was
done to it: rows written before a codec was turned on, with other layers, or with older keys, lie side by side.

    frames   how encoded bytes are told from plain ones, and what they say of themselves
    layers   Layer, Compress, Encrypt
    blobs    BlobStore, FileBlobs, Offload
    coder    all layers of an app, one after another

Of romancy it imports `errors` and `ids`. The store calls it; nothing here knows of databases.
"""

from romancy.codec.blobs import BlobStore, FileBlobs, Offload
from romancy.codec.frames import encoding_of, is_encoded, is_encoded_digest, not_decoded
from romancy.codec.layers import Compress, Encrypt, Layer
from romancy.codec.pipeline import NO_CODEC, Codec, CodecOption, read_codec

__all__ = [
    "NO_CODEC",
    "BlobStore",
    "Codec",
    "CodecOption",
    "Compress",
    "Encrypt",
    "FileBlobs",
    "Layer",
    "Offload",
    "encoding_of",
    "is_encoded",
    "is_encoded_digest",
    "not_decoded",
    "read_codec",
]
