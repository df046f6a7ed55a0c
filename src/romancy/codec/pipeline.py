"""`Codec`: applies all layers of an app in order. Also reads the option `codec`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

from romancy.codec.blobs import BlobOwner, Offload, is_whole, make_reference, parse_reference
from romancy.codec.frames import LONGEST_NAME, NOT_ENCODED, OFFLOADED, frame, is_encoded, not_decoded, refused, unframe
from romancy.codec.layers import Compress, Encrypt, Layer
from romancy.errors import CodecError
from romancy.object_reference import find_named

CodecOption: TypeAlias = Layer | Offload | Sequence[Layer | Offload]
EncodingContext: TypeAlias = tuple[str, ...]
"""What an encoded payload is bound to: its purpose, the id of its instance, and so on."""
PendingBlobs: TypeAlias = list[tuple[str, bytes]]
"""Blobs that must be written before the rows that refer to them: keys and data."""

_NO_BLOBS: Mapping[str, bytes] = {}


class Codec:
    """Encodes payloads with the layers of an app, and decodes encoded payloads; it returns plain ones unchanged."""

    def __init__(self, layers: Sequence[Layer] = (), offload: Offload | None = None) -> None:
        self.offload = offload
        self._layers = tuple(layers)
        self._by_name = {layer.name: layer for layer in layers}
        self._required = frozenset(layer.name for layer in layers if layer.required)
        self.hides = any(layer.blind(b"") is not None for layer in layers)
        """Stored payloads cannot be read without a key, so messages must not show values either."""

    def __bool__(self) -> bool:
        """The codec changes payloads."""
        return bool(self._layers) or self.offload is not None

    def fingerprint(self) -> str:
        """A text that changes when the codec can decode other payloads than before; empty if it has no layers."""
        if not self:
            return ""
        known = [layer.fingerprint() for layer in self._layers] + [OFFLOADED] * (self.offload is not None)
        return blake2b(" ".join(sorted(known)).encode(), digest_size=6).hexdigest()

    def encode(self, raw: bytes, context: EncodingContext) -> bytes:
        """Encode a payload, without offloading it."""
        if not self._layers:
            return raw
        bound = _context_bytes(context)
        for layer in self._layers:
            data = layer.encode(raw, bound)
            if data is not None:
                raw = frame(layer.name, data)
        return raw

    def encode_or_offload(
        self, raw: bytes, context: EncodingContext, owner: BlobOwner, pending: PendingBlobs | None
    ) -> bytes:
        """Encode a payload. If the result is large, add it to the pending blobs and return a reference to the blob."""
        raw = self.encode(raw, context)
        if pending is None or self.offload is None or len(raw) < self.offload.over:
            return raw
        key = self.offload.name_for(owner)
        if key is None:
            return raw
        pending.append((key, raw))
        return make_reference(key, raw)

    def blob_of(self, raw: bytes | None) -> str | None:
        """The key of the blob that is needed to decode a payload; None if none is needed, or none can be read."""
        if self.offload is None or raw is None or not is_encoded(raw):
            return None
        try:
            name, data = unframe(raw)
            return parse_reference(data)[0] if name == OFFLOADED else None
        except ValueError:
            return None

    def try_decode(self, raw: bytes, context: EncodingContext, blobs: Mapping[str, bytes] = _NO_BLOBS) -> bytes:
        """Decode a payload. If that is not possible here, the result is still encoded: the caller must check it.

        A payload that is not encoded although a layer requires it counts as one that cannot be decoded.
        """
        if not is_encoded(raw):
            return refused() if self._required and raw else raw
        bound = _context_bytes(context)
        removed = set[str]()
        while is_encoded(raw):
            try:
                name, data = unframe(raw)
                raw = _fetched(data, blobs) if name == OFFLOADED else self._by_name[name].decode(data, bound)
            except Exception:  # a layer may raise anything; the frame of the returned bytes says what is missing
                return raw
            removed.add(name)
        return raw if self._required <= removed else refused()

    def decode(self, raw: bytes, context: EncodingContext, what: str) -> bytes:
        """Decode a payload. Raises `CodecError`."""
        decoded = self.try_decode(raw, context)
        if is_encoded(decoded):
            raise CodecError(not_decoded(what, decoded))
        return decoded

    def blind(self, text: str) -> str:
        """Return the form of a text in which it is stored to be looked up: hidden by a layer, or unchanged."""
        for layer in self._layers:
            hidden = layer.blind(text.encode())
            if hidden is not None:
                return hidden.hex()
        return text


NO_CODEC = Codec()
"""A codec without layers: it returns all payloads unchanged."""


def _context_bytes(context: EncodingContext) -> bytes:
    """Return a context as bytes; different contexts have different bytes."""
    parts = [part.encode("utf-8", "surrogatepass") for part in context]
    return b"".join([b"%d:%b" % (len(part), part) for part in parts])


def _fetched(data: bytes, blobs: Mapping[str, bytes]) -> bytes:
    key, digest = parse_reference(data)
    blob = blobs[key]
    if not is_whole(blob, digest):
        raise ValueError(f"the blob {key!r} does not have the digest of its reference")
    return blob


# --- the option


def read_codec(value: Any) -> Codec:
    """Read the option `codec`: layers, or a string of the form `module:name`. Raises `ValueError`."""
    if isinstance(value, Codec):
        return value
    if isinstance(value, str):
        return read_codec(find_named(value, "a codec"))
    layers: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    offload = layers.pop() if layers and isinstance(layers[-1], Offload) else None
    for layer in layers:
        _check(layer)
    names = [layer.name for layer in layers]
    if len(set(names)) < len(names):
        raise ValueError(f"two layers have the same name ({', '.join(names)}): stored payloads name their layers")
    kinds = [type(layer) for layer in layers]
    if Compress in kinds and Encrypt in kinds and kinds.index(Encrypt) < kinds.index(Compress):
        raise ValueError("put Compress() before Encrypt(...): encrypted data cannot be compressed")
    return Codec(layers, offload)


def _check(layer: Any) -> None:
    if isinstance(layer, Offload):
        raise ValueError("Offload(...) must be the last layer: it stores the output of the layers before it")
    if not isinstance(layer, Layer):
        raise ValueError(
            "give layers: Compress(), Encrypt(keys), Offload(blobs), or objects of classes that inherit from Layer"
        )
    name = getattr(layer, "name", None)
    if (
        not isinstance(name, str)
        or not name.isascii()
        or not 0 < len(name) <= LONGEST_NAME
        or name in (OFFLOADED, NOT_ENCODED)
    ):
        raise ValueError(f"{type(layer).__name__} needs its own name of 1 to {LONGEST_NAME} ASCII characters")
