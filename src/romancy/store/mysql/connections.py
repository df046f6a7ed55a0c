"""A bounded number of connections, opened when they are needed and thrown away when they break."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import asyncmy
from asyncmy import errors
from asyncmy.constants import CLIENT, FIELD_TYPE
from asyncmy.converters import conversions
from asyncmy.errors import OperationalError

from romancy.errors import ConfigurationError, StoreError
from romancy.store.mysql.failures import trouble_of
from romancy.store.mysql.statements import Text, packets
from romancy.store.sql.bounds import Guard, in_time
from romancy.store.sql.home import AnotherServerError, Home
from romancy.store.sql.lines import watch_line
from romancy.store.sql.server import Trouble

_CONNECT, _CONNECT_EACH = 10.0, 3.0
"""Seconds a connection may take to be made; with each of several servers: one that is gone must not use up all the time."""
_OTHER_SERVERS = 1.0
"""Seconds that the other servers of an address have to say whether they take writes, when one has been found that does."""
_GOODBYE = 2.0
_IN_CLEAR = "mysql_clear_password", "dialog"
"""Ways to log in that send the password as it is."""
_OPTIONS = "charset", "ssl", "ssl_ca", "unix_socket"
_PACKET = 4 << 20
"""Bytes that are sent at once, unless a single statement is longer."""
_MARGIN = 1024

# The character set is said again after the handshake, where a server may be set to ignore it, or to change it for each new
# connection (init_connect). The mode refuses data that does not fit instead of cutting it off. Whoever stands still in the
# middle of a transaction would hold its locks for as long: MariaDB ends such a session, MySQL cannot.
_CHARSET = "SET NAMES utf8mb4"
_SESSION = (
    f"{_CHARSET}; SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', sql_notes = 0, time_zone = '+00:00', "
    "innodb_lock_wait_timeout = 5, group_concat_max_len = 4294967295 /*M!100300 , idle_transaction_timeout = 10 */"
    # MySQL would tell for a day what it once knew of how far the numbers of a table have come.
    " /*!80003 , information_schema_stats_expiry = 0 */"
)
_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
# Of what users have set for their own tables only what would make drivers escape wrongly, or cut data off.
_OTHERS = (
    f"{_CHARSET}; SET SESSION sql_mode = concat(replace(@@sql_mode, 'NO_BACKSLASH_ESCAPES', ''), ',STRICT_ALL_TABLES'), "
    "group_concat_max_len = 4294967295"
)

_UNDERSTOOD = "@@sql_mode, @@character_set_client, @@character_set_results"
SERVER = "concat(@@hostname, ', port ', @@port, ', server_id ', @@server_id)"
_FOUND = f"SELECT @@max_allowed_packet, {SERVER}, @@global.read_only, {_UNDERSTOOD}"
_READ_ONLY = 1290
SESSION_OF_OTHERS = f"SELECT {_UNDERSTOOD}".encode()


class Result(NamedTuple):
    """What the server answers to a statement: rows found, rows changed, the number that a new row got."""

    rows: Sequence[tuple[Any, ...]] = ()
    changed: int = 0
    number: int = 0


class Found(NamedTuple):
    """What a server says of itself to who connects."""

    packet: int
    server: str
    read_only: bool


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
        """Close it without a word; who waits for something there is told that it is gone."""
        transport = self._raw._transport
        if transport is not None:
            transport.abort()  # `close` would first send what is left to send
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
        self._guard: Guard[Link] = Guard(Link.abandon)
        self._closed = False
        self.home = Home()
        self._servers = address.each()
        self._last_good = 0
        """Which of several servers could be reached."""

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
        if len(self._servers) == 1:
            raw, found = await self._open_at(self._servers[0], _CONNECT, session, arguments)
        else:
            raw, found = await self._open_somewhere(session, arguments)
        try:
            self.home.recognise(found.server)
        except AnotherServerError:
            raw.close()
            raise
        self.packet = found.packet
        return raw

    async def _open_somewhere(self, session: str, arguments: Mapping[str, Any]) -> tuple[Any, Found]:
        """With the first of several servers that takes writes."""
        error: Exception | None = None
        for number in range(len(self._servers)):
            place = (self._last_good + number) % len(self._servers)
            try:
                raw, found = await self._open_at(self._servers[place], _CONNECT_EACH, session, arguments)
            except Exception as failed:
                if trouble_of(failed) is not Trouble.AWAY:
                    raise
                error = failed
                continue
            if not found.read_only:
                self._last_good = place
                return raw, found
            raw.close()
            error = errors.OperationalError(_READ_ONLY, f"{self._servers[place].label} is read-only")
        assert error is not None
        raise error

    async def _open_at(
        self, address: Address, patience: float, session: str, arguments: Mapping[str, Any]
    ) -> tuple[Any, Found]:
        async with asyncio.timeout(patience):
            raw: Any = await asyncmy.connect(**address.arguments(), **arguments)
            try:
                watch_line(raw._transport)
                answer = await Link(raw, _PACKET).ask(f"{session}; {_ISOLATION}; {_FOUND}".encode())
                packet, server, read_only, *understood = (_text(one) for one in answer.rows[0])
                self._require(understood)
            except BaseException:
                raw.close()
                raise
        return raw, Found(int(packet) - _MARGIN, server, str(read_only) not in ("0", "OFF"))

    async def writers(self) -> dict[str, str]:
        """The servers of the address that take writes: where each was found. Those that do not answer soon are left out."""
        if len(self._servers) < 2:
            return {}
        asking = {asyncio.ensure_future(self._ask_writer(server)): server for server in self._servers}
        try:
            done, _ = await asyncio.wait(asking, timeout=_OTHER_SERVERS)
        finally:
            for task in asking:
                task.cancel()
        return {task.result(): asking[task].place for task in done if task.exception() is None and task.result()}

    async def _ask_writer(self, address: Address) -> str:
        raw, found = await self._open_at(address, _CONNECT_EACH, _SESSION, {"autocommit": True, "conv": _CONVERSIONS})
        await Link(raw, _PACKET).close()
        return "" if found.read_only else found.server

    def _require(self, found: Sequence[Any]) -> None:
        """Refuse a connection that is not as it was told to be."""
        if wrong := misunderstanding(found):
            raise StoreError(
                f"The database {self.label} does not keep to what a connection is told: it has {wrong}. Look for what "
                "changes it in between: init_connect, or a proxy."
            )

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Link]:
        """A connection for a while. One that is left in the middle of something is thrown away."""
        if self._room.locked():
            await in_time(self._room.acquire())
        else:
            await self._room.acquire()
        try:
            self.home.require()
            moves = self.home.moves
            if (link := self._take()) is None:
                link = await in_time(self.connect())
            self._guard.lent(link)
            try:
                yield link
            except asyncio.CancelledError:
                link.abandon()  # it may say nothing any more, and nobody waits for that
                raise
            finally:
                self._guard.back(link)
                await self.keep(link, failed=moves != self.home.moves)
        finally:
            self._room.release()

    async def fresh(self) -> Link:
        """A new connection as `one` gives it, beyond the number that is bounded; to be handed to `keep`."""
        return await self.connect()

    async def keep(self, connection: Link, *, failed: bool) -> None:
        """Have a connection for whoever wants one next, unless it is of no use."""
        connection.forget()
        if connection.usable and not failed and not self._closed:
            self._idle.append(connection)
        else:
            await connection.close()

    def _take(self) -> Link | None:
        while self._idle:
            link = self._idle.pop()
            if link.usable:
                return link
            link.abandon()
        return None

    async def drop_idle(self) -> None:
        """What is open is not to be used again."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(link.close() for link in idle))

    def cut_idle(self) -> None:
        """The server is not what it was: what is open to it is useless, and nobody says goodbye."""
        while self._idle:
            self._idle.pop().abandon()

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


class _NotInClear:
    """Answers a server that asks for the password itself, over a line that others can read: it does not get it."""

    def __init__(self, connection: object) -> None:
        pass

    def authenticate(self, packet: object) -> None:
        """What the driver calls."""
        raise OperationalError(
            2059,
            "the server asks for the password in clear, and the connection is not encrypted: add ?ssl=true to the address",
        )


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is and who wants to see it."""

    host: str
    port: int
    user: str
    password: str
    database: str
    options: dict[str, str]
    more: tuple[tuple[str, int], ...] = ()
    """Other servers that may have it, with their ports."""

    @property
    def label(self) -> str:
        """The address without what must not be shown."""
        user = f"{self.user}@" if self.user else ""
        return f"mysql://{user}{','.join(one.place for one in self.each())}/{self.database}"

    @property
    def place(self) -> str:
        """The first server, and its port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def each(self) -> list[Address]:
        """An address for each server."""
        places = ((self.host, self.port), *self.more)
        return [replace(self, host=host, port=port, more=()) for host, port in places] if self.more else [self]

    def arguments(self) -> dict[str, Any]:
        """What the driver wants to know."""
        tls, socket = _tls(self.options), self.options.get("unix_socket")
        return {
            "host": self.host,
            "port": self.port,
            "user": self.user or None,
            "password": self.password.encode(),  # the driver itself knows Latin-1 only
            "database": self.database,
            "unix_socket": socket,
            "ssl": tls,
            "auth_plugin_map": {} if tls or socket else dict.fromkeys(_IN_CLEAR, _NotInClear),
            "charset": "utf8mb4",
            "client_flag": CLIENT.FOUND_ROWS,
            "program_name": "romancy",
        }


def parse(dsn: str) -> Address:
    """The parts of `mysql://user:password@host:port,host:port/database?options`. Raises `ConfigurationError`."""
    try:
        parts = urlsplit(dsn)
        who, _, where = parts.netloc.rpartition("@")
        first, *more = [_place(place) for place in where.split(",")]
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
    user, _, password = who.partition(":")
    return Address(*first, unquote(user), unquote(password), database, options, tuple(more))


def _place(place: str) -> tuple[str, int]:
    parts = urlsplit(f"//{place}")
    return parts.hostname or "localhost", parts.port or 3306


def require_session(found: Sequence[Any]) -> None:
    """Refuse a connection of others on which values could be misunderstood, or cut off."""
    if wrong := misunderstanding(found):
        raise ConfigurationError(
            f"using() got a connection with {wrong}: it needs utf8mb4, a strict mode (STRICT_TRANS_TABLES) and no "
            "NO_BACKSLASH_ESCAPES."
        )


def misunderstanding(found: Sequence[Any]) -> str:
    """What of a connection's mode and character sets would have values misunderstood, or cut off; empty if nothing."""
    mode, *charsets = (one.decode() if isinstance(one, bytes) else str(one) for one in found)
    if charsets != ["utf8mb4", "utf8mb4"]:
        return f"the character sets {' and '.join(charsets)}"
    if "NO_BACKSLASH_ESCAPES" in mode or "STRICT" not in mode:
        return f"the sql_mode {mode!r}"
    return ""


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


def _text(value: Any) -> Any:
    """Names are bytes in the database; payloads are of another type."""
    return value.decode() if isinstance(value, bytes) else value


_NAMES = (FIELD_TYPE.VAR_STRING, FIELD_TYPE.VARCHAR)
_CONVERSIONS: dict[Any, Any] = {**conversions, **dict.fromkeys(_NAMES, _text)}
