"""The layers of a codec: compression, encryption, and the base class for layers of users."""

from __future__ import annotations

import base64
import binascii
import hmac
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from romancy.codec.frames import COMPRESSED, ENCRYPTED, name_and_rest, named
from romancy.errors import ConfigurationError
from romancy.ids import random_bytes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_KEY = 32
_SALT = 16
_NONCE = 12
_LONGEST_ID = 64
_MOST_MESSAGES = 2**28
"""The number of messages after which a new salt is used: random nonces must not repeat under one key."""
_KEPT_CIPHERS = 1024
_LARGEST = 64 * 1024 * 1024


class Layer:
    """The base class of a codec's layers. Inherit from it to encrypt with a key that never leaves its server, for example.

    `name` is part of every frame: the layers of one codec need different names, and a name must not change. `place` is the
    context of the payload, as opaque bytes: data that is bound to it cannot be moved to another row unnoticed. Both methods
    are called from several threads.
    """

    name: ClassVar[str]
    required: bool = False
    """Payloads that did not pass through this layer are refused."""

    def encode(self, data: bytes, place: bytes) -> bytes | None:
        """Return the bytes to store instead of the data. Return None to store the data unchanged."""
        raise NotImplementedError

    def decode(self, data: bytes, place: bytes) -> bytes:
        """Return the data that `encode` was given. Raise any exception if that is not possible."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """Return a text that changes when this layer can decode other data: blocked instances are tried again then."""
        return self.name

    def blind(self, text: bytes) -> bytes | None:
        """Return a key by which a text can be looked up, but which does not reveal it. None: this layer hides nothing."""
        return None


class Compress(Layer):
    """Compresses payloads of `over` bytes or more with zlib, if that makes them smaller.

    Payloads larger than `largest` bytes are left as they are, and no payload is decompressed beyond that size: a row of a
    megabyte could expand to a gigabyte.
    """

    name = COMPRESSED

    def __init__(self, *, over: int = 512, level: int = 6, largest: int = _LARGEST) -> None:
        if not 0 <= level <= 9:
            raise ConfigurationError(f"Compress(level={level!r}): give a whole number from 0 to 9.")
        if largest < 1:
            raise ConfigurationError(f"Compress(largest={largest!r}): give a whole number of bytes of at least 1.")
        self._over = over
        self._level = level
        self._largest = largest

    def __repr__(self) -> str:
        return f"Compress(over={self._over}, level={self._level})"

    def encode(self, data: bytes, place: bytes) -> bytes | None:
        """Compress the data. Return None if its size is out of bounds, or it would not become smaller."""
        if not self._over <= len(data) <= self._largest:
            return None
        smaller = zlib.compress(data, self._level)
        return smaller if len(smaller) + 16 < len(data) else None

    def decode(self, data: bytes, place: bytes) -> bytes:
        """Decompress the data. Raises `ValueError` if it is truncated, or larger than `largest`."""
        stream = zlib.decompressobj()
        larger = stream.decompress(data, self._largest + 1)
        if not stream.eof or len(larger) > self._largest:
            raise ValueError(f"the compressed data is truncated, or larger than {self._largest} bytes")
        return larger


class _WriteKey(NamedTuple):
    """The key with which this process encrypts until the next salt: the head of its messages, and the cipher."""

    head: bytes
    cipher: AESGCM


class Encrypt(Layer):
    """Encrypts payloads with AES-256-GCM, bound to their context. Needs `romancy[crypto]`.

    `keys` maps ids to keys: 32 bytes, or their base64. All keys decrypt; the last one encrypts, or the one that `write`
    names. `Encrypt.generate_key()` makes a key. `required`: payloads that are stored without encryption are refused, so that
    an attacker with write access to the database cannot replace an encrypted row with a plain one.

    >>> Encrypt({"2025": Encrypt.generate_key(), "2026": Encrypt.generate_key()})
    Encrypt(keys=['2025', '2026'], write='2026')
    """

    name = ENCRYPTED

    def __init__(self, keys: Mapping[str, bytes | str], *, write: str | None = None, required: bool = False) -> None:
        self.required = required
        self._aesgcm = _aesgcm()
        if not isinstance(keys, Mapping) or not keys:
            raise ConfigurationError('Encrypt(keys): give at least one key by its id, as {"2026": key}.')
        self._keys = {_checked_id(key_id): _checked_key(key_id, key) for key_id, key in keys.items()}
        self._write = list(self._keys)[-1] if write is None else write
        if self._write not in self._keys:
            raise ConfigurationError(
                f"Encrypt(write={write!r}): there is no key with this id. The ids are {', '.join(keys)}."
            )
        self._ciphers: dict[bytes, AESGCM] = {}
        self._write_key = self._salted()
        self._written = 0

    def __repr__(self) -> str:
        required = ", required=True" if self.required else ""
        return f"Encrypt(keys={list(self._keys)}, write={self._write!r}{required})"

    @staticmethod
    def generate_key() -> str:
        """Return a new key, in base64."""
        return base64.b64encode(random_bytes(_KEY)).decode()

    def encode(self, data: bytes, place: bytes) -> bytes:
        """Return the key id, the salt, the nonce, and the encrypted data."""
        self._written += 1
        if self._written > _MOST_MESSAGES:
            self._write_key, self._written = self._salted(), 0
        head, cipher = self._write_key
        # Random, not counted: after a fork, two processes would use the same numbers.
        nonce = random_bytes(_NONCE)
        return head + nonce + cipher.encrypt(nonce, data, place)

    def decode(self, data: bytes, place: bytes) -> bytes:
        """Decrypt data that was encrypted with one of the keys, in the same context. Raises otherwise."""
        key_id, rest = name_and_rest(data)
        if key_id not in self._keys:
            raise ValueError(f"this process has no key {key_id!r}")
        salt, nonce, hidden = rest[:_SALT], rest[_SALT : _SALT + _NONCE], rest[_SALT + _NONCE :]
        head = data[: len(data) - len(rest) + _SALT]
        cipher = self._ciphers.get(head) or self._cipher(head, key_id, salt)
        return cipher.decrypt(nonce, hidden, place)

    def fingerprint(self) -> str:
        """Return a text that changes with the keys."""
        marks = [f"{key_id}:{self._derived(key_id, b'fingerprint').hex()}" for key_id in sorted(self._keys)]
        return f"{self.name}({','.join(marks)}{',required' if self.required else ''})"

    def blind(self, text: bytes) -> bytes:
        """Return a keyed digest: the same for the same text, as long as the same key encrypts."""
        return hmac.digest(self._derived(self._write, b"blind"), text, "sha256")

    def _salted(self) -> _WriteKey:
        salt = random_bytes(_SALT)
        head = named(self._write, salt)
        return _WriteKey(head, self._cipher(head, self._write, salt))

    def _cipher(self, head: bytes, key_id: str, salt: bytes) -> AESGCM:
        if len(self._ciphers) >= _KEPT_CIPHERS:
            self._ciphers.clear()
        cipher = self._ciphers[head] = self._aesgcm(self._derived(key_id, b"payload" + salt))
        return cipher

    def _derived(self, key_id: str, purpose: bytes) -> bytes:
        return hmac.digest(self._keys[key_id], b"romancy " + purpose, "sha256")


def _aesgcm() -> type[AESGCM]:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise ConfigurationError("Encrypt needs cryptography: pip install 'romancy[crypto]'") from error
    return AESGCM


def _checked_id(key_id: str) -> str:
    if not isinstance(key_id, str) or not key_id.isprintable() or not 0 < len(key_id.encode()) <= _LONGEST_ID:
        raise ConfigurationError(f"Encrypt(keys): {key_id!r} is not a key id: give a string of 1 to {_LONGEST_ID} bytes.")
    return key_id


def _checked_key(key_id: str, key: bytes | str) -> bytes:
    """Return the bytes of a key. Raises `ConfigurationError`, without the key in its message."""
    try:
        raw = base64.b64decode(key.replace("-", "+").replace("_", "/"), validate=True) if isinstance(key, str) else key
    except (ValueError, binascii.Error):
        raw = b""
    if not isinstance(raw, bytes) or len(raw) != _KEY:
        raise ConfigurationError(
            f"Encrypt(keys): key {key_id!r} must be {_KEY} bytes, or their base64. Encrypt.generate_key() makes one."
        ) from None
    return raw
