"""Whatever the payload, the layers and the place: it comes back from there, and from nowhere else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.hypothesis_settings import examples

from romancy.codec import Codec, Compress, Encrypt, FileBlobs, Offload, encoding_of, is_encoded
from romancy.codec.blobs import BlobOwner
from romancy.codec.pipeline import PendingBlobs

KEYS = {"old": b"o" * 32, "new": b"n" * 32}

texts = st.text(max_size=8)
places = st.lists(texts, min_size=1, max_size=4).map(tuple)
payloads = (st.text(max_size=200) | st.text(max_size=5).map(lambda text: text * 500)).map(str.encode)
layers = st.tuples(st.sampled_from([None, 1, 100]), st.sampled_from([None, "old", "new"]), st.sampled_from([None, 1, 200]))
Layers = tuple[int | None, str | None, int | None]


def coder_of(chosen: Layers) -> Codec:
    compress, key, offload = chosen
    made = [Compress(over=compress)] if compress is not None else []
    locks = [Encrypt(KEYS, write=key)] if key is not None else []
    return Codec([*made, *locks], Offload(FileBlobs("never written"), over=offload) if offload is not None else None)


@given(payloads, places, texts, layers, layers)
@settings(max_examples=examples(200))
def test_a_payload_comes_back(data: bytes, place: tuple[str, ...], owner: str, then: Layers, later: Layers) -> None:
    puts: PendingBlobs = []
    stored = coder_of(then).encode_or_offload(data, place, BlobOwner(owner, 1), puts)
    compress, key, _ = then
    reader = coder_of((1 if compress is not None else later[0], later[1] or key, later[2]))  # it knows at least as much
    assert reader.try_decode(stored, place, dict(puts)) == data


@given(payloads, places, places, layers)
@settings(max_examples=examples(200))
def test_an_encrypted_payload_comes_back_from_its_own_place_only(
    data: bytes, place: tuple[str, ...], other: tuple[str, ...], chosen: Layers
) -> None:
    compress, key, offload = chosen
    coder, puts = coder_of((compress, key or "old", offload)), PendingBlobs()
    stored = coder.encode_or_offload(data, place, BlobOwner("owner", 1), puts)
    assert is_encoded(stored)
    assert is_encoded(coder.try_decode(stored, other, dict(puts))) == (other != place)


@given(st.binary(max_size=60))
@settings(max_examples=examples(300))
def test_no_bytes_break_a_reader(raw: bytes) -> None:
    coder = coder_of((1, "old", 1))
    for one in (raw, b"\x9e" + raw, b"\x9e\x03aes" + raw, b"\x9e\x04zlib" + raw, b"\x9e\x04blob" + raw):
        coder.blob_of(one)
        coder.try_decode(one, ("value",))
        assert encoding_of(one)
