"""Frames: what a layer has encoded, with the layer's name before it.

    0x9E | length of the name | name | what the layer made of it

Plain payloads are JSON or other text in UTF-8, and no such text begins with 0x9E. So one byte tells them apart.
"""

from __future__ import annotations

_MARK = b"\x9e"
LONGEST_NAME = 32
DIGEST = 8
"""Bytes of a digest that is not encoded."""

ENCRYPTED = "aes"
COMPRESSED = "zlib"
OFFLOADED = "blob"
NOT_ENCODED = "plain"
"""Stands for a payload that should have been encoded and is not: never stored, but passed on in its place."""


def is_encoded(raw: bytes | None) -> bool:
    """These bytes are in a frame: somebody must decode them first."""
    return raw is not None and raw[:1] == _MARK


def is_encoded_digest(raw: bytes) -> bool:
    """The same for a digest, which is no text and may begin with anything; but it is short."""
    return len(raw) > DIGEST and is_encoded(raw)


def frame(name: str, data: bytes) -> bytes:
    """What a layer has encoded, in its frame."""
    return _MARK + named(name, data)


def unframe(raw: bytes) -> tuple[str, bytes]:
    """The layer's name, and what it has encoded. Raises `ValueError` for what is cut off."""
    return name_and_rest(raw[1:])


def named(name: str, data: bytes) -> bytes:
    """Data with a name before it: a layer's, or in what is encrypted a key's."""
    encoded = name.encode()
    return bytes((len(encoded),)) + encoded + data


def name_and_rest(data: bytes) -> tuple[str, bytes]:
    """The name that stands before data, and the data. Raises `ValueError` for what is cut off."""
    end = 1 + data[0] if data else 0
    if not end or len(data) < end:
        raise ValueError("the frame is cut off")
    return data[1:end].decode(), data[end:]


def encoding_of(raw: bytes) -> str:
    """What was done to encoded bytes, in a few words. Never raises."""
    try:
        name, data = unframe(raw)
        if name == ENCRYPTED:
            return f"encrypted with key {name_and_rest(data)[0]!r}"
        if name == OFFLOADED:
            return f"kept outside the database as {data.partition(b' ')[0].decode()!r}"
    except ValueError:
        return "damaged"
    if name == NOT_ENCODED:
        return "not encrypted, which this codec requires"
    return "compressed" if name == COMPRESSED else f"encoded by {name!r}"


def refused() -> bytes:
    """What is passed on instead of a payload that is not encoded, and had to be."""
    return frame(NOT_ENCODED, b"not taken")  # longer than a digest


def not_decoded(what: str, raw: bytes) -> str:
    """The sentence for encoded bytes that cannot be decoded here."""
    if raw == refused():
        return (
            f"{what} is not encrypted, which Encrypt(keys, required=True) demands: it was written by a process without the "
            "codec, before required=True was set, or by a stranger. Without required=True it is accepted."
        )
    return (
        f"{what} cannot be decoded here: it is {encoding_of(raw)}. Nothing is lost: give App(codec=...) the layers and the "
        "keys it was written with. (If it has them, the row is damaged, or was moved from another place.)"
    )
