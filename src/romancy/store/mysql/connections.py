"""A bounded number of connections, opened when they are needed and thrown away when they break."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import asyncmy
from asyncmy.constants import CLIENT, FIELD_TYPE
from asyncmy.converters import conversions

from romancy.errors import ConfigurationError
from romancy.store.mysql.statements import Text, packets

_CONNECT = 10.0
"""Seconds a connection may take to be made."""
_GOODBYE = 2.0
_OPTIONS = "charset", "ssl", "ssl_ca", "unix_socket"
_PACKET = 4 << 20
"""Bytes that are sent at once, unless a single statement is longer."""
_MARGIN = 1024

# The mode is what `literal` relies on, and what refuses data that does not fit instead of cutting it off. Whoever stands
# still in the middle of a transaction would hold its locks for as long: MariaDB ends such a session, MySQL cannot.
_SESSION = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', sql_notes = 0, time_zone = '+00:00', "
    "innodb_lock_wait_timeout = 5, group_concat_max_len = 4294967295 /*M!100300 , idle_transaction_timeout = 10 */"
)
_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
# Of what users have set for their own tables only what would break `literal`, or cut data off.
_OTHERS = (
    "SET SESSION sql_mode = concat(replace(@@sql_mode, 'NO_BACKSLASH_ESCAPES', ''), ',STRICT_ALL_TABLES'), "
    "group_concat_max_len = 4294967295"
)

SESSION_OF_OTHERS = b"SELECT @@sql_mode, @@character_set_client"


class Result(NamedTuple):
    """What the server answers to a statement: rows found, rows changed, the number that a new row got."""

    rows: Sequence[tuple[Any, ...]] = ()
    changed: int = 0
    number: int = 0


class Link:
    """One connection. What is not asked about is sent together with what comes next."""

    def __init__(self, raw: Any, room: int, *, decode: bool = False) -> None:
        self._raw = raw
        self._room = room
        self._decode = decode
        """The connection is somebody else's, who has names as bytes."""
        self._later: list[bytes] = []

    @property
    def usable(self) -> bool:
        """It is open, and nothing is left half done on it."""
        broken = not self._raw.connected or self._raw._stream_broken
        return not (broken or self._raw.get_transaction_status())

    @property
    def in_transaction(self) -> bool:
        """A transaction has begun, as the server says."""
        return bool(self._raw.connected and self._raw.get_transaction_status())

    @property
    def server(self) -> str:
        """What the server calls itself."""
        return str(self._raw.get_server_info())

    def later(self, statement: bytes) -> None:
        """Send a statement with the next one that is asked about. If it fails, that one fails."""
        self._later += packets(statement)

    def forget(self) -> None:
        """Do not send what was to be sent later."""
        self._later.clear()

    async def ask(self, statement: bytes) -> Result:
        """Send what is waiting, and a statement; the answer to it (to the last, if it is several)."""
        statements, self._later = [*self._later, *packets(statement)], []
        for one in statements:
            size = max(len(one), *map(len, one.large)) if isinstance(one, Text) else len(one)
            if size > self._room:
                room = self._room + _MARGIN
                raise ValueError(f"it takes {size:,} bytes, the server's max_allowed_packet is {room:,}: raise that")
        result = Result()
        for packet in _together(statements):
            result = await self._send(packet)
        return result

    async def _send(self, packet: bytes) -> Result:
        cursor = self._raw.cursor()
        await cursor.execute(packet)
        while True:
            rows = await cursor.fetchall()
            if self._decode and rows:
                rows = decoded(rows, [field[1] for field in cursor.description])
            result = Result(rows, cursor.rowcount, cursor.lastrowid)
            if not await cursor.nextset():
                return result

    def abandon(self) -> None:
        """Close it without a word."""
        self._raw.close()

    async def close(self) -> None:
        """Close it, whatever state it is in, without waiting for long."""
        if not self._raw.connected or self._raw.get_transaction_status():
            self.abandon()
            return
        with suppress(Exception):
            async with asyncio.timeout(_GOODBYE):
                await self._raw.ensure_closed()


class Connections:
    """Connections to one database."""

    def __init__(self, address: Address, size: int) -> None:
        self.address = address
        self.label = address.label
        self.size = size
        self.packet = _PACKET
        """Bytes that the server takes at once."""
        self._room = asyncio.Semaphore(size)
        self._idle: list[Link] = []
        self._opening: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def connect(self) -> Link:
        """A new connection, which is the caller's."""
        raw = await self._connect(_SESSION, autocommit=True, conv=_CONVERSIONS)
        return Link(raw, self.packet)

    async def connect_for_others(self) -> Any:
        """A new connection as SQLAlchemy wants it."""
        return await self._connect(_OTHERS, autocommit=False)

    async def _connect(self, session: str, **arguments: Any) -> Any:
        # In a task of its own: in the middle the driver, with Python 3.11's wait_for, loses a cancellation or the socket.
        task = asyncio.get_running_loop().create_task(self._open(session, **arguments), name="romancy-connect")
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_drop)
            raise

    async def _open(self, session: str, **arguments: Any) -> Any:
        async with asyncio.timeout(_CONNECT):
            raw: Any = await asyncmy.connect(**self.address.arguments(), **arguments)
            try:
                found = await Link(raw, _PACKET).ask(f"{session}; {_ISOLATION}; SELECT @@max_allowed_packet".encode())
            except BaseException:
                raw.close()
                raise
        self.packet = int(found.rows[0][0]) - _MARGIN
        return raw

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Link]:
        """A connection for a while. One that is left in the middle of something is thrown away."""
        async with self._room:
            link = self._take() or await self.connect()
            try:
                yield link
            finally:
                link.forget()
                if link.usable and not self._closed:
                    self._idle.append(link)
                else:
                    await link.close()

    def _take(self) -> Link | None:
        while self._idle:
            link = self._idle.pop()
            if link.usable:
                return link
            link.abandon()
        return None

    async def drop_idle(self) -> None:
        """The server is not what it was: what is open to it is useless."""
        while self._idle:
            await self._idle.pop().close()

    async def close(self) -> None:
        """Let all connections go."""
        self._closed = True
        if self._opening:
            await asyncio.wait(self._opening)
        await self.drop_idle()


def _drop(task: asyncio.Task[Any]) -> None:
    """A connection that nobody waits for any more."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is and who wants to see it."""

    host: str
    port: int
    user: str
    password: str
    database: str
    options: dict[str, str]

    @property
    def label(self) -> str:
        """The address without what must not be shown."""
        user = f"{self.user}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mysql://{user}{host}:{self.port}/{self.database}"

    def arguments(self) -> dict[str, Any]:
        """What the driver wants to know."""
        return {
            "host": self.host,
            "port": self.port,
            "user": self.user or None,
            "password": self.password.encode(),  # the driver itself knows Latin-1 only
            "database": self.database,
            "unix_socket": self.options.get("unix_socket"),
            "ssl": _tls(self.options),
            "charset": "utf8mb4",
            "client_flag": CLIENT.FOUND_ROWS,
            "program_name": "romancy",
        }


def parse(dsn: str) -> Address:
    """The parts of `mysql://user:password@host:port/database?options`. Raises `ConfigurationError`."""
    try:
        parts = urlsplit(dsn)
        port = parts.port
    except ValueError:
        raise ConfigurationError("The port in the database address is no number.") from None
    if "@" in parts.path or "@" in parts.query or parts.fragment:
        # A password with a slash, a question mark or a number sign in it: what follows would be shown as something else.
        raise ConfigurationError(
            "The address of the MySQL database cannot be read. Write mysql://user:password@host:port/database; in a "
            "password, %40 for @, %2F for /, %23 for #, %3F for ?."
        )
    options = dict(parse_qsl(parts.query))
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise ConfigurationError(
            f"The database address has options that romancy does not know: {', '.join(unknown)}. Known are "
            f"{', '.join(_OPTIONS)}."
        )
    database = unquote(parts.path.removeprefix("/"))
    if not database:
        raise ConfigurationError("The database address names no database: mysql://user:password@host:3306/database")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return Address(parts.hostname or "localhost", port or 3306, user, password, database, options)


def require_session(found: Sequence[Any]) -> None:
    """Refuse a connection of others on which values could be misunderstood, or cut off."""
    mode, charset = (one.decode() if isinstance(one, bytes) else one for one in found)
    if "NO_BACKSLASH_ESCAPES" in mode or "STRICT" not in mode or charset != "utf8mb4":
        raise ConfigurationError(
            f"using() got a connection with the character set {charset} and the sql_mode {mode!r}: it needs utf8mb4, a "
            "strict mode (STRICT_TRANS_TABLES) and no NO_BACKSLASH_ESCAPES."
        )


def _tls(options: dict[str, str]) -> ssl.SSLContext | None:
    if "ssl_ca" in options or options.get("ssl", "").lower() in ("1", "true", "on"):
        return ssl.create_default_context(cafile=options.get("ssl_ca"))
    return None


def _together(statements: list[bytes]) -> list[bytes]:
    """Statements, together as far as they are not too long."""
    packets: list[list[bytes]] = [[]]
    size = 0
    for statement in statements:
        if size and size + len(statement) > _PACKET:
            packets.append([])
            size = 0
        packets[-1].append(statement)
        size += len(statement)
    return [b";".join(packet) for packet in packets]


def decoded(rows: Sequence[Sequence[Any]], types: Sequence[int]) -> list[tuple[Any, ...]]:
    """Rows with names as text, of a connection that has them as bytes."""
    convert = [_CONVERSIONS[kind] if kind in _NAMES else None for kind in types]
    return [
        tuple(turn(one) if turn and one is not None else one for turn, one in zip(convert, row, strict=True)) for row in rows
    ]


def _text(value: bytes | str) -> str:
    """Names are bytes in the database; payloads are of another type."""
    return value.decode() if isinstance(value, bytes) else value


_NAMES = (FIELD_TYPE.VAR_STRING, FIELD_TYPE.VARCHAR)
_CONVERSIONS: dict[Any, Any] = {**conversions, **dict.fromkeys(_NAMES, _text)}
