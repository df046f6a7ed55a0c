"""A bounded pool of connections, opened when they are needed and discarded when they break."""

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
from romancy.store.mysql.errors import classify
from romancy.store.mysql.statements import LargeStatement, split_packets
from romancy.store.sql.call_timeout import ConnectionWatchdog, in_time
from romancy.store.sql.keepalive import enable_keepalive
from romancy.store.sql.server import ErrorClass
from romancy.store.sql.server_identity import AnotherServerError, ServerIdentity

_CONNECT_TIMEOUT, _CONNECT_EACH_TIMEOUT = 10.0, 3.0
"""Seconds for connecting: to the only server, and to each of several (one that is down must not use up all the time)."""
_FIND_WRITERS_TIMEOUT = 1.0
"""Seconds in which the other servers of an address have to reply whether they accept writes, once one of them does."""
_CLOSE_TIMEOUT = 2.0
_CLEAR_TEXT_PLUGINS = "mysql_clear_password", "dialog"
"""Authentication plugins that send the password in clear text."""
_OPTIONS = "charset", "ssl", "ssl_ca", "unix_socket"
_DEFAULT_PACKET = 4 << 20
"""Most bytes that are sent at once, unless a single statement is longer."""
_MARGIN = 1024

# The character set is set again after the handshake: a server may be configured to ignore it there, or to change it for each
# new connection (init_connect). The strict mode refuses data that does not fit instead of truncating it. A client that stops
# in the middle of a transaction would hold its locks for as long: MariaDB ends such a session, MySQL cannot.
_CHARSET = "SET NAMES utf8mb4"
_SESSION = (
    f"{_CHARSET}; SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', sql_notes = 0, time_zone = '+00:00', "
    "innodb_lock_wait_timeout = 5, group_concat_max_len = 4294967295 /*M!100300 , idle_transaction_timeout = 10 */"
    # MySQL would return a cached AUTO_INCREMENT value of a table for a day.
    " /*!80003 , information_schema_stats_expiry = 0 */"
)
_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
# Users' sessions keep their settings, except those that would make drivers escape wrongly, or truncate data.
_USER_SESSION = (
    f"{_CHARSET}; SET SESSION sql_mode = concat(replace(@@sql_mode, 'NO_BACKSLASH_ESCAPES', ''), ',STRICT_ALL_TABLES'), "
    "group_concat_max_len = 4294967295"
)

_SESSION_VARIABLES = "@@sql_mode, @@character_set_client, @@character_set_results"
SERVER_IDENTITY = "concat(@@hostname, ', port ', @@port, ', server_id ', @@server_id)"
_SERVER_INFO = f"SELECT @@max_allowed_packet, {SERVER_IDENTITY}, @@global.read_only, {_SESSION_VARIABLES}"
_READ_ONLY = 1290
READ_USER_SESSION = f"SELECT {_SESSION_VARIABLES}".encode()


class MySqlResult(NamedTuple):
    """The result of a statement: rows found, number of rows changed, the generated number of a new row."""

    rows: Sequence[tuple[Any, ...]] = ()
    changed: int = 0
    number: int = 0


class ServerInfo(NamedTuple):
    """Properties of a server, read at each connect."""

    max_packet: int
    server: str
    read_only: bool


class MySqlConnection:
    """One connection. Deferred statements are sent together with the next one that is executed."""

    def __init__(self, raw: Any, max_packet: int, *, decode: bool = False) -> None:
        self._raw = raw
        self._max_packet = max_packet
        self._decode = decode
        """Decode names: on a user's connection the driver returns them as bytes."""
        self._deferred: list[bytes] = []

    @property
    def is_usable(self) -> bool:
        """Whether it is open, with no transaction or result left unfinished."""
        broken = not self._raw.connected or self._raw._stream_broken
        return not (broken or self._raw.get_transaction_status())

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, by the status of the server's last reply."""
        return bool(self._raw.connected and self._raw.get_transaction_status())

    @property
    def server(self) -> str:
        """The server's version string."""
        return str(self._raw.get_server_info())

    def defer(self, statement: bytes) -> None:
        """Send a statement together with the next one that is executed, which fails if this one does."""
        self._deferred += split_packets(statement)

    def drop_deferred(self) -> None:
        """Discard the deferred statements."""
        self._deferred.clear()

    async def execute(self, statement: bytes) -> MySqlResult:
        """Send the deferred statements and a statement; return its result (of the last, if it is several)."""
        statements, self._deferred = [*self._deferred, *split_packets(statement)], []
        for item in statements:
            size = max(len(item), *map(len, item.large)) if isinstance(item, LargeStatement) else len(item)
            if size > self._max_packet:
                limit = self._max_packet + _MARGIN
                raise ValueError(f"it takes {size:,} bytes, the server's max_allowed_packet is {limit:,}: raise that")
        result = MySqlResult()
        for packet in _join_packets(statements):
            result = await self._send(packet)
        return result

    async def _send(self, packet: bytes) -> MySqlResult:
        cursor = self._raw.cursor()
        await cursor.execute(packet)
        while True:
            rows = await cursor.fetchall()
            if self._decode and rows:
                rows = decode_rows(rows, [field[1] for field in cursor.description])
            result = MySqlResult(rows, cursor.rowcount, cursor.lastrowid)
            if not await cursor.nextset():
                return result

    def abort(self) -> None:
        """Close it at once, without telling the server; calls that wait for a reply on it fail."""
        transport = self._raw._transport
        if transport is not None:
            transport.abort()  # `close` would first send the buffered data
        self._raw.close()

    async def close(self) -> None:
        """Close it in any state, without waiting for long."""
        if not self._raw.connected or self._raw.get_transaction_status():
            self.abort()
            return
        with suppress(Exception):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await self._raw.ensure_closed()


class MySqlPool:
    """A pool of connections to one database."""

    def __init__(self, address: Address, size: int) -> None:
        self.address = address
        self.label = address.label
        self.size = size
        self.max_packet = _DEFAULT_PACKET
        """Most bytes that the server accepts at once."""
        self._capacity = asyncio.Semaphore(size)
        self._idle: list[MySqlConnection] = []
        self._opening: set[asyncio.Task[Any]] = set()
        self._guard: ConnectionWatchdog[MySqlConnection] = ConnectionWatchdog(MySqlConnection.abort)
        self._closed = False
        self.server_identity = ServerIdentity()
        self._servers = address.split_hosts()
        self._last_good = 0
        """Index of the server, among several, that was last connected to."""

    async def connect(self) -> MySqlConnection:
        """Open a connection outside the pool; the caller closes it."""
        raw = await self._connect(_SESSION, autocommit=True, conv=_CONVERSIONS)
        return MySqlConnection(raw, self.max_packet)

    async def connect_for_sqlalchemy(self) -> Any:
        """Open a connection of the driver, set up for SQLAlchemy."""
        return await self._connect(_USER_SESSION, autocommit=False)

    async def _connect(self, session: str, **arguments: Any) -> Any:
        # In a task of its own: if it is cancelled while connecting, the driver (with Python 3.11's wait_for) loses the
        # cancellation or the socket.
        task = asyncio.get_running_loop().create_task(self._open(session, **arguments), name="romancy-connect")
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_close_unclaimed)
            raise

    async def _open(self, session: str, **arguments: Any) -> Any:
        if len(self._servers) == 1:
            raw, found = await self._open_at(self._servers[0], _CONNECT_TIMEOUT, session, arguments)
        else:
            raw, found = await self._open_writer(session, arguments)
        try:
            self.server_identity.recognise(found.server)
        except AnotherServerError:
            raw.close()
            raise
        self.max_packet = found.max_packet
        return raw

    async def _open_writer(self, session: str, arguments: Mapping[str, Any]) -> tuple[Any, ServerInfo]:
        """Connect to the first of several servers that accepts writes."""
        error: Exception | None = None
        for number in range(len(self._servers)):
            index = (self._last_good + number) % len(self._servers)
            try:
                raw, found = await self._open_at(self._servers[index], _CONNECT_EACH_TIMEOUT, session, arguments)
            except Exception as failed:
                if classify(failed) is not ErrorClass.UNAVAILABLE:
                    raise
                error = failed
                continue
            if not found.read_only:
                self._last_good = index
                return raw, found
            raw.close()
            error = errors.OperationalError(_READ_ONLY, f"{self._servers[index].label} is read-only")
        assert error is not None
        raise error

    async def _open_at(
        self, address: Address, timeout: float, session: str, arguments: Mapping[str, Any]
    ) -> tuple[Any, ServerInfo]:
        async with asyncio.timeout(timeout):
            raw: Any = await asyncmy.connect(**address.connect_arguments(), **arguments)
            try:
                enable_keepalive(raw._transport)
                result = await MySqlConnection(raw, _DEFAULT_PACKET).execute(
                    f"{session}; {_ISOLATION}; {_SERVER_INFO}".encode()
                )
                packet, server, read_only, *settings = (_decode_name(value) for value in result.rows[0])
                self._require_session(settings)
            except BaseException:
                raw.close()
                raise
        return raw, ServerInfo(int(packet) - _MARGIN, server, str(read_only) not in ("0", "OFF"))

    async def writable_servers(self) -> dict[str, str]:
        """Return identity and host of the servers that accept writes. Servers that do not reply soon are left out."""
        if len(self._servers) < 2:
            return {}
        tasks = {asyncio.ensure_future(self._identify_writer(server)): server for server in self._servers}
        try:
            done, _ = await asyncio.wait(tasks, timeout=_FIND_WRITERS_TIMEOUT)
        finally:
            for task in tasks:
                task.cancel()
        return {task.result(): tasks[task].host_and_port for task in done if task.exception() is None and task.result()}

    async def _identify_writer(self, address: Address) -> str:
        raw, found = await self._open_at(
            address, _CONNECT_EACH_TIMEOUT, _SESSION, {"autocommit": True, "conv": _CONVERSIONS}
        )
        await MySqlConnection(raw, _DEFAULT_PACKET).close()
        return "" if found.read_only else found.server

    def _require_session(self, found: Sequence[Any]) -> None:
        """Refuse a connection whose settings did not take effect."""
        if wrong := find_unsafe_setting(found):
            raise StoreError(
                f"The database {self.label} does not apply the settings of a connection: it has {wrong}. Check init_connect "
                "and proxies, which may change them."
            )

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[MySqlConnection]:
        """Borrow a connection. One that is returned in the middle of a transaction is discarded."""
        if self._capacity.locked():
            await in_time(self._capacity.acquire())
        else:
            await self._capacity.acquire()
        try:
            self.server_identity.require()
            changes = self.server_identity.changes
            if (link := self._pop_idle()) is None:
                link = await in_time(self.connect())
            self._guard.watch(link)
            try:
                yield link
            except asyncio.CancelledError:
                link.abort()  # a clean close could wait for a reply that never comes
                raise
            finally:
                self._guard.unwatch(link)
                await self.put_idle(link, failed=changes != self.server_identity.changes)
        finally:
            self._capacity.release()

    async def open_extra(self) -> MySqlConnection:
        """Open a connection like those of `acquire`, beyond the bound of the pool; to be passed to `put_idle`."""
        return await self.connect()

    async def put_idle(self, connection: MySqlConnection, *, failed: bool) -> None:
        """Put a connection back into the pool, or close it if it is unusable."""
        connection.drop_deferred()
        if connection.is_usable and not failed and not self._closed:
            self._idle.append(connection)
        else:
            await connection.close()

    def _pop_idle(self) -> MySqlConnection | None:
        while self._idle:
            link = self._idle.pop()
            if link.is_usable:
                return link
            link.abort()
        return None

    async def drop_idle(self) -> None:
        """Close the idle connections."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(link.close() for link in idle))

    def cut_idle(self) -> None:
        """Abort the idle connections: their server has restarted or was replaced, so a clean close would only wait."""
        while self._idle:
            self._idle.pop().abort()

    async def close(self) -> None:
        """Close the pool and its idle connections."""
        self._closed = True
        if self._opening:
            await asyncio.wait(self._opening)
        await self.drop_idle()


def _close_unclaimed(task: asyncio.Task[Any]) -> None:
    """Close a connection whose caller was cancelled while it was opened."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


class _ClearPasswordRefusal:
    """An authentication plugin that refuses to send the password in clear text over an unencrypted connection."""

    def __init__(self, connection: object) -> None:
        pass

    def authenticate(self, packet: object) -> None:
        """Refuse the server's request for the password. (The driver calls this.)"""
        raise OperationalError(
            2059,
            "the server requests the password in clear text, and the connection is not encrypted: add ?ssl=true to the "
            "address",
        )


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a database, with user, password and options."""

    host: str
    port: int
    user: str
    password: str
    database: str
    options: dict[str, str]
    other_servers: tuple[tuple[str, int], ...] = ()
    """Further servers of the database, with their ports."""

    @property
    def label(self) -> str:
        """The address without the password and the options."""
        user = f"{self.user}@" if self.user else ""
        return f"mysql://{user}{','.join(address.host_and_port for address in self.split_hosts())}/{self.database}"

    @property
    def host_and_port(self) -> str:
        """The first server and its port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def split_hosts(self) -> list[Address]:
        """Return an address for each server."""
        servers = ((self.host, self.port), *self.other_servers)
        return (
            [replace(self, host=host, port=port, other_servers=()) for host, port in servers]
            if self.other_servers
            else [self]
        )

    def connect_arguments(self) -> dict[str, Any]:
        """Return the arguments of the driver's `connect`."""
        tls, socket = _tls(self.options), self.options.get("unix_socket")
        return {
            "host": self.host,
            "port": self.port,
            "user": self.user or None,
            "password": self.password.encode(),  # the driver would encode it as Latin-1
            "database": self.database,
            "unix_socket": socket,
            "ssl": tls,
            "auth_plugin_map": {} if tls or socket else dict.fromkeys(_CLEAR_TEXT_PLUGINS, _ClearPasswordRefusal),
            "charset": "utf8mb4",
            "client_flag": CLIENT.FOUND_ROWS,
            "program_name": "romancy",
        }


def parse_address(dsn: str) -> Address:
    """Parse `mysql://user:password@host:port,host:port/database?options`. Raises `ConfigurationError`."""
    try:
        parts = urlsplit(dsn)
        credentials, _, hosts = parts.netloc.rpartition("@")
        first, *more = [_parse_host(host) for host in hosts.split(",")]
    except ValueError:
        raise ConfigurationError("The port in the database address is not a number.") from None
    if "@" in parts.path or "@" in parts.query or parts.fragment:
        # A password with a /, a ? or a # in it: the part after it would be shown as a path, an option or a fragment.
        raise ConfigurationError(
            "The address of the MySQL database cannot be read. Write mysql://user:password@host:port/database; in a "
            "password, %40 for @, %2F for /, %23 for #, %3F for ?."
        )
    options = dict(parse_qsl(parts.query))
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise ConfigurationError(
            f"The database address has unknown options: {', '.join(unknown)}. The options are {', '.join(_OPTIONS)}."
        )
    database = unquote(parts.path.removeprefix("/"))
    if not database:
        raise ConfigurationError("The database address lacks the database: mysql://user:password@host:3306/database")
    user, _, password = credentials.partition(":")
    return Address(*first, unquote(user), unquote(password), database, options, tuple(more))


def _parse_host(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    return parts.hostname or "localhost", parts.port or 3306


def require_session(found: Sequence[Any]) -> None:
    """Refuse a user's connection on which values could be misread or truncated."""
    if wrong := find_unsafe_setting(found):
        raise ConfigurationError(
            f"using() got a connection with {wrong}: it needs utf8mb4, a strict mode (STRICT_TRANS_TABLES) and no "
            "NO_BACKSLASH_ESCAPES."
        )


def find_unsafe_setting(found: Sequence[Any]) -> str:
    """Return the setting of a session by which values would be misread or truncated; empty if there is none."""
    mode, *charsets = (value.decode() if isinstance(value, bytes) else str(value) for value in found)
    if charsets != ["utf8mb4", "utf8mb4"]:
        return f"the character sets {' and '.join(charsets)}"
    if "NO_BACKSLASH_ESCAPES" in mode or "STRICT" not in mode:
        return f"the sql_mode {mode!r}"
    return ""


def _tls(options: dict[str, str]) -> ssl.SSLContext | None:
    if "ssl_ca" in options or options.get("ssl", "").lower() in ("1", "true", "on"):
        return ssl.create_default_context(cafile=options.get("ssl_ca"))
    return None


def _join_packets(statements: list[bytes]) -> list[bytes]:
    """Join statements to packets that are not too long."""
    packets: list[list[bytes]] = [[]]
    size = 0
    for statement in statements:
        if size and size + len(statement) > _DEFAULT_PACKET:
            packets.append([])
            size = 0
        packets[-1].append(statement)
        size += len(statement)
    return [b";".join(packet) for packet in packets]


def decode_rows(rows: Sequence[Sequence[Any]], types: Sequence[int]) -> list[tuple[Any, ...]]:
    """Decode the names in rows of a connection that returns them as bytes."""
    convert = [_CONVERSIONS[kind] if kind in _NAME_TYPES else None for kind in types]
    return [
        tuple(decode(value) if decode and value is not None else value for decode, value in zip(convert, row, strict=True))
        for row in rows
    ]


def _decode_name(value: Any) -> Any:
    """Decode a name, which is bytes in the database; payloads have another column type."""
    return value.decode() if isinstance(value, bytes) else value


_NAME_TYPES = (FIELD_TYPE.VAR_STRING, FIELD_TYPE.VARCHAR)
_CONVERSIONS: dict[Any, Any] = {**conversions, **dict.fromkeys(_NAME_TYPES, _decode_name)}
