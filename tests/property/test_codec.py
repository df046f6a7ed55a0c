"""A payload can be decoded in its own context and in no other, for any layers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.hypothesis_settings import examples

from romancy.codec import Codec, Compress, Encrypt, FileBlobs, Offload, encoding_of, is_encoded
from romancy.codec.blobs import BlobOwner
from romancy.codec.pipeline import PendingBlobs

KEYS = {"old": b"o" * 32, "new": b"n" * 32}

texts = st.text(max_size=8)
contexts = st.lists(texts, min_size=1, max_size=4).map(tuple)
payloads = (st.text(max_size=200) | st.text(max_size=5).map(lambda text: text * 500)).map(str.encode)
layers = st.tuples(st.sampled_from([None, 1, 100]), st.sampled_from([None, "old", "new"]), st.sampled_from([None, 1, 200]))
Layers = tuple[int | None, str | None, int | None]


def codec_of(chosen: Layers) -> Codec:
    compress, key, offload = chosen
    made = [Compress(over=compress)] if compress is not None else []
    encryption = [Encrypt(KEYS, write=key)] if key is not None else []
    return Codec([*made, *encryption], Offload(FileBlobs("never written"), over=offload) if offload is not None else None)


@given(payloads, contexts, texts, layers, layers)
@settings(max_examples=examples(200))
def test_a_payload_comes_back(data: bytes, context: tuple[str, ...], owner: str, then: Layers, later: Layers) -> None:
    puts: PendingBlobs = []
    stored = codec_of(then).encode_or_offload(data, context, BlobOwner(owner, 1), puts)
    compress, key, _ = then
    reader = codec_of((1 if compress is not None else later[0], later[1] or key, later[2]))
    assert reader.try_decode(stored, context, dict(puts)) == data


@given(payloads, contexts, contexts, layers)
@settings(max_examples=examples(200))
def test_an_encrypted_payload_comes_back_from_its_own_place_only(
    data: bytes, context: tuple[str, ...], other: tuple[str, ...], chosen: Layers
) -> None:
    compress, key, offload = chosen
    codec, puts = codec_of((compress, key or "old", offload)), PendingBlobs()
    stored = codec.encode_or_offload(data, context, BlobOwner("owner", 1), puts)
    assert is_encoded(stored)
    assert is_encoded(codec.try_decode(stored, other, dict(puts))) == (other != context)


@given(st.binary(max_size=60))
@settings(max_examples=examples(300))
def test_no_bytes_break_a_reader(raw: bytes) -> None:
    codec = codec_of((1, "old", 1))
    for one in (raw, b"\x9e" + raw, b"\x9e\x03aes" + raw, b"\x9e\x04zlib" + raw, b"\x9e\x04blob" + raw):
        codec.blob_of(one)
        codec.try_decode(one, ("value",))
        assert encoding_of(one)
