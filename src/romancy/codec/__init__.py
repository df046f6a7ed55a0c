"""Compresses, encrypts and offloads payloads on their way into the database, and reverses this on their way out.

    a value ─► serde ─► JSON ─► Compress ─► Encrypt ─► Offload ─► a column of the database
                                                          └─────► a blob elsewhere, and its name in the column

Each layer puts its output into a frame that names the layer (`frames`). So every stored payload says how to decode it: rows
that were written without a codec, with other layers, or with older keys may lie side by side.

    frames    the format of encoded bytes
    layers    Layer, Compress, Encrypt
    blobs     BlobStore, FileBlobs, Offload
    pipeline  Codec: all layers of an app, in order

May import `errors`, `ids` and `object_reference`. The store uses it; this package does not use the store.
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
