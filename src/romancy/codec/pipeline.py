"""All layers of an app, one after another; and how the option `codec` is read."""

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
"""What a payload is, and whose: its purpose, an instance's id, ..."""
PendingBlobs: TypeAlias = list[tuple[str, bytes]]
"""Blobs that must be written before what refers to them: keys and data."""

_NO_BLOBS: Mapping[str, bytes] = {}


class Codec:
    """Encodes payloads, and decodes whatever is encoded; plain ones are left alone."""

    def __init__(self, layers: Sequence[Layer] = (), offload: Offload | None = None) -> None:
        self.offload = offload
        self._layers = tuple(layers)
        self._by_name = {layer.name: layer for layer in layers}
        self._required = frozenset(layer.name for layer in layers if layer.required)
        self.hides = any(layer.blind(b"") is not None for layer in layers)
        """What is stored cannot be read without a key: it must not be shown in messages either."""

    def __bool__(self) -> bool:
        """It does anything at all."""
        return bool(self._layers) or self.offload is not None

    def fingerprint(self) -> str:
        """Changes when other things can be decoded than before; empty if nothing can."""
        if not self:
            return ""
        known = [layer.fingerprint() for layer in self._layers] + [OFFLOADED] * (self.offload is not None)
        return blake2b(" ".join(sorted(known)).encode(), digest_size=6).hexdigest()

    def encode(self, raw: bytes, context: EncodingContext) -> bytes:
        """What is stored for a payload, all of it in the database."""
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
        """What is stored for a payload; if it is large, a reference, and the blob joins those that are to be put."""
        raw = self.encode(raw, context)
        if pending is None or self.offload is None or len(raw) < self.offload.over:
            return raw
        key = self.offload.name_for(owner)
        if key is None:
            return raw
        pending.append((key, raw))
        return make_reference(key, raw)

    def blob_of(self, raw: bytes | None) -> str | None:
        """The key of the blob that must be at hand to decode something; None if there is none to be had."""
        if self.offload is None or raw is None or not is_encoded(raw):
            return None
        try:
            name, data = unframe(raw)
            return parse_reference(data)[0] if name == OFFLOADED else None
        except ValueError:
            return None

    def try_decode(self, raw: bytes, context: EncodingContext, blobs: Mapping[str, bytes] = _NO_BLOBS) -> bytes:
        """What was encoded; if it cannot be decoded here it is encoded still. Whoever uses it must look.

        What should have been encoded and is not counts as what cannot be decoded.
        """
        if not is_encoded(raw):
            return refused() if self._required and raw else raw
        bound = _context_bytes(context)
        removed = set[str]()
        while is_encoded(raw):
            try:
                name, data = unframe(raw)
                raw = _fetched(data, blobs) if name == OFFLOADED else self._by_name[name].decode(data, bound)
            except Exception:  # a layer may raise anything; what is encoded says itself what is missing
                return raw
            removed.add(name)
        return raw if self._required <= removed else refused()

    def decode(self, raw: bytes, context: EncodingContext, what: str) -> bytes:
        """What was encoded. Raises `CodecError`."""
        decoded = self.try_decode(raw, context)
        if is_encoded(decoded):
            raise CodecError(not_decoded(what, decoded))
        return decoded

    def blind(self, text: str) -> str:
        """A text under which something is found again: as it is, unless a layer hides it."""
        for layer in self._layers:
            hidden = layer.blind(text.encode())
            if hidden is not None:
                return hidden.hex()
        return text


NO_CODEC = Codec()
"""Leaves everything as it is."""


def _context_bytes(context: EncodingContext) -> bytes:
    """A place as bytes; no two places have the same."""
    parts = [part.encode("utf-8", "surrogatepass") for part in context]
    return b"".join([b"%d:%b" % (len(part), part) for part in parts])


def _fetched(data: bytes, blobs: Mapping[str, bytes]) -> bytes:
    key, digest = parse_reference(data)
    blob = blobs[key]
    if not is_whole(blob, digest):
        raise ValueError(f"the blob {key!r} is not what was put there")
    return blob


# --- the option


def read_codec(value: Any) -> Codec:
    """What was given as `codec`; from a variable, where to find it: `module:name`. Raises `ValueError`."""
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
        raise ValueError(f"two layers have one name ({', '.join(names)}): what is stored names its layer")
    kinds = [type(layer) for layer in layers]
    if Compress in kinds and Encrypt in kinds and kinds.index(Encrypt) < kinds.index(Compress):
        raise ValueError("put Compress() before Encrypt(...): what is encrypted cannot be made smaller")
    return Codec(layers, offload)


def _check(layer: Any) -> None:
    if isinstance(layer, Offload):
        raise ValueError("Offload(...) must be the last layer: what it keeps is encoded by those before it")
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
        raise ValueError(f"{type(layer).__name__} needs a name of its own, of 1 to {LONGEST_NAME} ASCII characters")
