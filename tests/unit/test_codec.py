"""Layers, frames, keys and blobs, without a database."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from romancy import CodecError, Compress, ConfigurationError, Encrypt, FileBlobs, Offload
from romancy.codec import Codec, Layer, encoding_of, is_encoded, read_codec
from romancy.codec.blobs import BlobOwner, owner_of_blob
from romancy.codec.frames import frame, refused
from romancy.codec.pipeline import PendingBlobs

OLD, NEW = b"o" * 32, b"n" * 32
PLACE = ("value", "order-1", "1", "charge:1")
SECRET = b'{"card": "4711"}'

CODEC = [Compress(), Encrypt({"k": OLD})]
"""A codec that a test names as `tests.unit.test_codec:CODEC`."""


class ReversingLayer(Layer):
    """A layer of the user's."""

    name: ClassVar[str] = "backwards"

    def encode(self, data: bytes, place: bytes) -> bytes | None:
        return data[::-1]

    def decode(self, data: bytes, place: bytes) -> bytes:
        return data[::-1]


# --- encryption


def test_what_is_encrypted_does_not_show_and_comes_back() -> None:
    codec = Codec([Encrypt({"k": OLD})])
    stored = codec.encode(SECRET, PLACE)
    assert is_encoded(stored)
    assert b"4711" not in stored
    assert stored != codec.encode(SECRET, PLACE)  # two equal payloads cannot be recognised
    assert codec.decode(stored, PLACE, "it") == SECRET


def test_what_is_moved_to_another_place_is_not_decoded() -> None:
    codec = Codec([Encrypt({"k": OLD})])
    stored = codec.encode(SECRET, PLACE)
    for other in (("value", "order-2", "1", "charge:1"), ("asked", *PLACE[1:]), PLACE[:3], (*PLACE, "")):
        with pytest.raises(CodecError, match="copied from another row"):
            codec.decode(stored, other, "the result of charge:1")


def test_places_that_read_alike_are_not_the_same() -> None:
    codec = Codec([Encrypt({"k": OLD})])
    with pytest.raises(CodecError):
        codec.decode(codec.encode(SECRET, ("a", "b:c")), ("a:b", "c"), "it")


def test_a_changed_byte_is_noticed_wherever_it_is() -> None:
    codec = Codec([Encrypt({"k": OLD})])
    stored = codec.encode(SECRET, PLACE)
    for index in range(1, len(stored)):
        changed = stored[:index] + bytes((stored[index] ^ 1,)) + stored[index + 1 :]
        assert is_encoded(codec.try_decode(changed, PLACE)), index


def test_keys_are_rotated_the_last_one_writes_and_all_read() -> None:
    before, after = Codec([Encrypt({"old": OLD})]), Codec([Encrypt({"old": OLD, "new": NEW})])
    old, new = before.encode(SECRET, PLACE), after.encode(SECRET, PLACE)
    assert (encoding_of(old), encoding_of(new)) == ("encrypted with key 'old'", "encrypted with key 'new'")
    assert after.decode(old, PLACE, "it") == after.decode(new, PLACE, "it") == SECRET
    with pytest.raises(CodecError, match="encrypted with key 'new'"):
        before.decode(new, PLACE, "it")


def test_a_key_can_be_known_before_it_writes() -> None:
    ready = Codec([Encrypt({"old": OLD, "new": NEW}, write="old")])
    assert encoding_of(ready.encode(SECRET, PLACE)) == "encrypted with key 'old'"
    assert ready.decode(Codec([Encrypt({"new": NEW})]).encode(SECRET, PLACE), PLACE, "it") == SECRET


def test_two_processes_read_each_other() -> None:
    one, other = Codec([Encrypt({"k": OLD})]), Codec([Encrypt({"k": OLD})])
    assert other.decode(one.encode(SECRET, PLACE), PLACE, "it") == SECRET


def test_a_salt_is_not_used_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romancy.codec.layers._MOST_MESSAGES", 2)
    layer = Encrypt({"k": OLD})
    heads = [layer.encode(b"x", b"")[: 2 + 16] for _ in range(4)]
    assert heads[0] == heads[1] != heads[2] == heads[3]
    monkeypatch.setattr("romancy.codec.layers._KEPT_CIPHERS", 1)
    assert [layer.decode(layer.encode(b"x", b""), b"") for _ in range(3)] == [b"x"] * 3


def test_a_made_key_is_a_key_and_no_error_or_repr_shows_one() -> None:
    key = Encrypt.generate_key()
    layer = Encrypt({"k": key})
    assert key not in repr(layer)
    assert layer.decode(layer.encode(SECRET, b""), b"") == SECRET
    with pytest.raises(ConfigurationError, match="key 'k' must be 32 bytes") as raised:
        Encrypt({"k": "c2VjcmV0LXRoYXQtaXMtc2hvcnQ="})
    assert "c2Vj" not in str(raised.value)


@pytest.mark.parametrize("keys", [{}, [OLD], {"": OLD}, {"k": b"short"}, {"k": "no base64!"}, {"k" * 65: OLD}, {"k": 5}])
def test_keys_that_are_none(keys: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Encrypt\(keys"):
        Encrypt(keys)


def test_the_key_that_writes_must_be_there() -> None:
    with pytest.raises(ConfigurationError, match=r"write='2027'\): there is no key with this id. The ids are k"):
        Encrypt({"k": OLD}, write="2027")


def test_without_cryptography_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'romancy\[crypto\]'"):
        Encrypt({"k": OLD})


def test_a_selector_is_hashed_with_the_key_that_writes() -> None:
    one, other = Codec([Compress(), Encrypt({"a": OLD})]), Codec([Encrypt({"a": NEW})])
    assert one.blind("42") == one.blind("42") != other.blind("42")
    assert "42" != one.blind("42") != one.blind("43")
    assert Codec([Compress()]).blind("42") == "42"


def test_the_fingerprint_follows_what_can_be_decoded() -> None:
    codecs = [
        [],
        [Compress()],
        [Encrypt({"k": OLD})],
        [Encrypt({"k": NEW})],
        [Encrypt({"k": OLD, "l": NEW})],
        [ReversingLayer()],
    ]
    prints = [read_codec(layers).fingerprint() for layers in codecs]
    assert prints[0] == ""
    assert len(set(prints)) == len(prints)
    assert read_codec([Encrypt({"k": OLD})]).fingerprint() == prints[2]  # the same in every process


# --- compression


def test_what_is_large_gets_smaller_and_what_does_not_is_left() -> None:
    codec = Codec([Compress(over=100)])
    large, noise = b'"' + b"a" * 10_000 + b'"', b'"' + os.urandom(200).hex().encode()[:90] + b'"'
    assert len(codec.encode(large, PLACE)) < 100
    assert codec.decode(codec.encode(large, PLACE), PLACE, "it") == large
    assert codec.encode(noise, PLACE) == noise
    assert Codec([Compress(over=1)]).encode(b"{}", PLACE) == b"{}"


@pytest.mark.parametrize("more", [1, 1000])
def test_compressed_data_cannot_swell_without_end(more: int) -> None:
    swollen = Codec([Compress()]).encode(b"a" * (1000 + more), PLACE)
    with pytest.raises(CodecError, match="compressed"):
        Codec([Compress(largest=1000)]).decode(swollen, PLACE, "it")


def test_what_is_written_compressed_can_be_read() -> None:
    codec = Codec([Compress(largest=1000)])
    for size in (1000, 1001):
        stored = codec.encode(b"a" * size, PLACE)
        assert is_encoded(stored) == (size == 1000)
        assert codec.decode(stored, PLACE, "it") == b"a" * size


@pytest.mark.parametrize("wrong", [{"level": 11}, {"largest": 0}])
def test_a_compression_that_is_none(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="="):
        Compress(**wrong)


# --- required


def test_what_is_not_encrypted_is_refused_where_that_is_required() -> None:
    """A forged row: plain, or in frames that need no key."""
    layers = [Compress(over=1), Encrypt({"k": OLD}, required=True)]
    strict, lax = Codec(layers), Codec([Compress(over=1), Encrypt({"k": OLD})])
    text = b"forged" * 100
    for stored in (text, b"{}", Codec([Compress(over=1)]).encode(text, PLACE), frame("plain", text), refused()):
        assert is_encoded(strict.try_decode(stored, PLACE))
        with pytest.raises(CodecError):
            strict.decode(stored, PLACE, "it")
    assert strict.decode(lax.encode(text, PLACE), PLACE, "it") == text
    assert lax.decode(text, PLACE, "it") == text
    with pytest.raises(CodecError, match=r"required=True\) demands"):
        strict.decode(b"{}", PLACE, "it")
    assert "required=True" in repr(layers[1])
    assert strict.fingerprint() != lax.fingerprint(), "blocked instances are tried again without `required`"


# --- layers upon layers


def test_layers_are_undone_in_turn_whatever_the_codec_is_now() -> None:
    then = read_codec([Compress(over=1), ReversingLayer(), Encrypt({"k": OLD})])
    now = read_codec([ReversingLayer(), Encrypt({"k": OLD, "l": NEW})])
    data = b"a" * 1000
    stored = then.encode(data, PLACE)
    assert encoding_of(now.try_decode(stored, PLACE)) == "compressed"  # the outer layer only
    assert then.decode(stored, PLACE, "it") == data
    assert encoding_of(Codec([ReversingLayer()]).encode(b"x", PLACE)) == "encoded by 'backwards'"


def test_plain_payloads_are_left_alone() -> None:
    codec = Codec([Encrypt({"k": OLD})])
    for plain in (b"", b"null", b'"\xc2\x9e"', SECRET):
        assert not is_encoded(plain)
        assert codec.decode(plain, PLACE, "it") == plain
    assert not is_encoded(None)


def test_what_is_cut_off_is_damaged_and_not_more() -> None:
    codec = Codec([Encrypt({"k": OLD})])
    stored = codec.encode(SECRET, PLACE)
    for length in range(1, len(stored)):
        assert is_encoded(codec.try_decode(stored[:length], PLACE))
        assert encoding_of(stored[:length])
        assert codec.blob_of(stored[:length]) is None
    assert encoding_of(b"\x9e") == "damaged"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (5, "give layers"),
        ([Compress(), "zlib"], "give layers"),
        ([Encrypt({"k": OLD}), Compress()], "before Encrypt"),
        ([ReversingLayer(), ReversingLayer()], "two layers have the same name"),
        ([Offload(FileBlobs("blobs")), Compress()], "must be the last"),
        ("nowhere", "module:name"),
        ("romancy:__version__", "module:name"),
        ("no.such.module:codec", "cannot be imported"),
        ("romancy:NOTHING", "cannot be imported"),
        ([type("Nameless", (Layer,), {})()], "needs its own name"),
        ([type("Blob", (Layer,), {"name": "blob"})()], "needs its own name"),
    ],
)
def test_what_is_no_codec(given: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_codec(given)


def test_a_codec_is_found_by_its_name() -> None:
    assert read_codec("tests.unit.test_codec:CODEC").fingerprint() == read_codec(CODEC).fingerprint()
    assert read_codec(read_codec(ReversingLayer())).encode(b"ab", PLACE).endswith(b"ba")


def test_a_layer_says_what_it_must_have() -> None:
    for call in (Layer().encode, Layer().decode):
        with pytest.raises(NotImplementedError):
            call(b"", b"")


# --- blobs


def test_files_come_and_go_with_their_folders(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    assert list(blobs.list()) == []
    blobs.put("order-1/1/a", b"one")
    blobs.put("order-1/1/a", b"two")
    blobs.put("order-1/1/b", b"")
    assert (blobs.get("order-1/1/a"), blobs.get("order-1/1/b"), blobs.get("order-1/2/a")) == (b"two", b"", None)
    assert sorted(key for key, _ in blobs.list()) == ["order-1/1/a", "order-1/1/b"]
    blobs.delete("order-1/1/a")
    blobs.delete("order-1/1/a")
    assert (tmp_path / "blobs/order-1/1").exists()
    blobs.delete("order-1/1/b")
    assert list((tmp_path / "blobs").iterdir()) == []


def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    FileBlobs(tmp_path / "blobs").put("a/1/b", b"data")
    assert (tmp_path / "blobs/a/1/b").stat().st_mode & 0o077 == 0


def test_half_a_file_is_never_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError("no space left on device")

    blobs = FileBlobs(tmp_path)
    blobs.put("a/1/b", b"whole")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        blobs.put("a/1/b", b"other")
    assert blobs.get("a/1/b") == b"whole"


@pytest.mark.parametrize("key", ["", "/etc/passwd", "../a", "a/../../b", "a//b", "a/./b", "a\0b"])
def test_a_key_leads_nowhere_else(key: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not the key"):
        FileBlobs(tmp_path).get(key)


@pytest.mark.parametrize("instance_id", ["order-1", "..", ".", "a/b", "ä ö", "%2F", "\x01", "x" * 200])
def test_a_blob_says_whose_it_is(instance_id: str, tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    key = Offload(blobs).name_for(BlobOwner(instance_id, 7))
    assert key is not None
    blobs.put(key, b"data")
    assert [owner_of_blob(name) for name, _ in blobs.list()] == [BlobOwner(instance_id, 7)]


def test_what_is_too_long_for_a_file_stays_in_the_database(tmp_path: Path) -> None:
    codec, puts = Codec([], Offload(FileBlobs(tmp_path), over=1)), PendingBlobs()
    assert codec.encode_or_offload(b"data", PLACE, BlobOwner("ä" * 100, 1), puts) == b"data"
    assert puts == []


@pytest.mark.parametrize("key", ["readme.txt", "a/b", "a/b/c", "a/1/b/c", "a/1/", "/1/b", "a/²/b"])
def test_what_others_put_there_is_nobodys(key: str) -> None:
    assert owner_of_blob(key) is None


def test_a_blob_that_was_exchanged_is_not_taken(tmp_path: Path) -> None:
    codec, puts = Codec([], Offload(FileBlobs(tmp_path), over=3)), PendingBlobs()
    assert codec.encode_or_offload(b"{}", PLACE, BlobOwner("a", 1), puts) == b"{}"
    stored = codec.encode_or_offload(SECRET, PLACE, BlobOwner("a", 1), puts)
    ((key, data),) = puts
    assert codec.blob_of(stored) == key
    assert codec.try_decode(stored, PLACE, {key: data}) == SECRET
    assert encoding_of(codec.try_decode(stored, PLACE, {key: b"other"})) == f"kept outside the database as {key!r}"
    assert is_encoded(codec.try_decode(stored, PLACE))
    assert Codec().blob_of(stored) is None


def test_what_is_no_blob_store() -> None:
    with pytest.raises(ConfigurationError, match=r"dict has no put\(\)"):
        Offload({})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="over=0"):
        Offload(FileBlobs("blobs"), over=0)
