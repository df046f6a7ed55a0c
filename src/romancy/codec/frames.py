"""Frames: the output of a layer, preceded by the name of the layer.

    0x9E | length of the name | name | output of the layer

Plain payloads are JSON or other text in UTF-8, which never begins with 0x9E. So the first byte shows whether a payload is
encoded.
"""

from __future__ import annotations

_MARK = b"\x9e"
LONGEST_NAME = 32
DIGEST = 8
"""The length in bytes of a digest that is not encoded."""

ENCRYPTED = "aes"
COMPRESSED = "zlib"
OFFLOADED = "blob"
NOT_ENCODED = "plain"
"""The name in the frame that replaces a payload which is not encoded although a layer requires it. It is never stored."""


def is_encoded(raw: bytes | None) -> bool:
    """The bytes are in a frame, and must be decoded before use."""
    return raw is not None and raw[:1] == _MARK


def is_encoded_digest(raw: bytes) -> bool:
    """As `is_encoded`, for a digest. A plain digest may begin with any byte, but it has a fixed length."""
    return len(raw) > DIGEST and is_encoded(raw)


def frame(name: str, data: bytes) -> bytes:
    """Put the output of a layer into a frame."""
    return _MARK + named(name, data)


def unframe(raw: bytes) -> tuple[str, bytes]:
    """Return the layer's name and its output. Raises `ValueError` if the frame is truncated."""
    return name_and_rest(raw[1:])


def named(name: str, data: bytes) -> bytes:
    """Put a name before data: the name of a layer, or of a key in front of what it has encrypted."""
    encoded = name.encode()
    return bytes((len(encoded),)) + encoded + data


def name_and_rest(data: bytes) -> tuple[str, bytes]:
    """Return the name before data, and the data. Raises `ValueError` if the name is truncated."""
    end = 1 + data[0] if data else 0
    if not end or len(data) < end:
        raise ValueError("the frame is truncated")
    return data[1:end].decode(), data[end:]


def encoding_of(raw: bytes) -> str:
    """Describe how bytes are encoded, in a few words. Never raises."""
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
    """Return what replaces a payload that is not encoded although a layer requires it."""
    return frame(NOT_ENCODED, b"not taken")  # longer than a digest, so that it counts as encoded in its place too


def not_decoded(what: str, raw: bytes) -> str:
    """Return the message for encoded bytes that cannot be decoded here."""
    if raw == refused():
        return (
            f"{what} is not encrypted, which Encrypt(keys, required=True) demands: it was written by a process without the "
            "codec, before required=True was set, or by an attacker. Without required=True it is accepted."
        )
    return (
        f"{what} cannot be decoded here: it is {encoding_of(raw)}. Nothing is lost: give App(codec=...) the layers and the "
        "keys it was written with. (If it has them, the row is damaged, or was copied from another row.)"
    )
