"""Large payloads outside the database: the protocol of blob stores, and a blob store in files.

A blob is written before the row that refers to it, and deleted after all rows of its generation are gone. Its key names the
generation to which it belongs: `{instance id, quoted}/{generation}/{random}`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Awaitable, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import quote, unquote

from romancy.codec.frames import OFFLOADED, frame
from romancy.errors import ConfigurationError
from romancy.ids import random_bytes

_MAX_OWNER_LENGTH = 200
"""The limit in bytes for a quoted instance id: names in file systems have up to 255 bytes."""
_PARTIAL = ".partial"
_TRIES = 10


class BlobStore(Protocol):
    """Stores blobs by key. The methods are plain functions, which are called in threads, or coroutines."""

    def put(self, key: str, data: bytes) -> Awaitable[None] | None:
        """Store a blob; it must be durable when this returns. A blob with the same key is replaced."""
        ...

    def get(self, key: str) -> Awaitable[bytes | None] | bytes | None:
        """Return a blob; None if there is none with that key."""
        ...

    def delete(self, key: str) -> Awaitable[None] | None:
        """Delete a blob; do nothing if there is none with that key."""
        ...

    def list(self) -> AsyncIterable[tuple[str, float]] | Iterable[tuple[str, float]]:
        """List all blobs: the key of each, and the time it was written, in seconds since 1970."""
        ...


class FileBlobs:
    """Stores blobs as files in a folder, made with the first blob. All processes on one database need the same folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder).absolute()

    def put(self, key: str, data: bytes) -> None:
        """Write the blob to a temporary file, sync it, and rename it, so that no incomplete blob can be read."""
        path = self._path(key)
        for left in range(_TRIES, 0, -1):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                _write(path, data)
                break
            except FileNotFoundError:  # another process has deleted the last blob in the folder, and the folder with it
                if left == 1:
                    raise
        for parent in path.relative_to(self._folder).parents:  # new folders must be durable too
            _sync(self._folder / parent)

    def get(self, key: str) -> bytes | None:
        """Return the content of the blob's file; None if there is none."""
        try:
            return self._path(key).read_bytes()
        except FileNotFoundError:
            return None

    def delete(self, key: str) -> None:
        """Delete the blob's file, and folders that are empty without it."""
        path = self._path(key)
        path.unlink(missing_ok=True)
        for parent in path.relative_to(self._folder).parents[:-1]:
            try:
                (self._folder / parent).rmdir()
            except OSError:  # the folder is not empty
                return

    def list(self) -> Iterator[tuple[str, float]]:
        """List all files in the folder and its subfolders."""
        for folder, _, names in os.walk(self._folder):
            for name in names:
                path = Path(folder, name)
                try:
                    yield path.relative_to(self._folder).as_posix(), path.stat().st_mtime
                except FileNotFoundError:  # deleted meanwhile
                    continue

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if not all(parts) or {".", ".."} & set(parts) or "\0" in key:
            raise ValueError(f"{key!r} is not the key of a blob")
        return self._folder.joinpath(*parts)


def _write(path: Path, data: bytes) -> None:
    partial = path.with_name(path.name + _PARTIAL)
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class BlobOwner(NamedTuple):
    """The generation of an instance to which a blob belongs: the blob is kept as long as the generation."""

    instance_id: str
    generation: int


class Offload:
    """Keeps payloads of `over` bytes or more in a blob store; it must be the last layer of a codec.

    Only payloads of a single instance are offloaded: inputs, results, errors, details of heartbeats. Blobs of generations
    that are gone are deleted when they are older than `grace` seconds.
    """

    def __init__(self, blobs: BlobStore, *, over: int = 256 * 1024, grace: float = 86400.0) -> None:
        missing = [name for name in ("put", "get", "delete", "list") if not callable(getattr(blobs, name, None))]
        if missing:
            raise ConfigurationError(f"Offload(blobs): {type(blobs).__name__} has no {missing[0]}(): it is not a BlobStore.")
        if over < 1:
            raise ConfigurationError(f"Offload(over={over!r}): give a whole number of bytes of at least 1.")
        self.blobs = blobs
        self.over = over
        self.grace = grace

    def name_for(self, blob_owner: BlobOwner) -> str | None:
        """Return a new key for a blob; None if the instance id is too long for one."""
        owner = _quoted(blob_owner.instance_id)
        return None if len(owner) > _MAX_OWNER_LENGTH else f"{owner}/{blob_owner.generation}/{random_bytes(16).hex()}"


def make_reference(key: str, data: bytes) -> bytes:
    """Return the reference that is stored instead of a blob."""
    return frame(OFFLOADED, f"{key} {sha256(data).hexdigest()}".encode())


def parse_reference(data: bytes) -> tuple[str, str]:
    """Return the key of a blob, and the digest of its content, from a reference without its frame."""
    key, _, digest = data.decode().partition(" ")
    return key, digest


def is_whole(blob: bytes, digest: str) -> bool:
    """The blob has the digest of its reference."""
    return sha256(blob).hexdigest() == digest


def owner_of_blob(key: str) -> BlobOwner | None:
    """Return the generation to which a blob belongs; None if `Offload` has not made the key."""
    owner, _, rest = key.partition("/")
    generation, _, name = rest.partition("/")
    if not (owner and name) or "/" in name or not (generation.isascii() and generation.isdecimal()):
        return None
    return BlobOwner(unquote(owner), int(generation))


def _quoted(instance_id: str) -> str:
    # "." and ".." as names would mean the folder itself and the folder above it.
    return quote(instance_id, safe="").replace(".", "%2E")
