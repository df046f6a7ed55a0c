"""Servers that take what a client sends for another character set than it asked for: what it sends is data all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncmy
import pytest
from sqlalchemy import text
from tests import mariadb

from romancy import ActivityContext, App, ConfigurationError, StoreError, WorkflowContext, activity, wait_event, workflow
from romancy.clock import SystemClock
from romancy.store.mysql import pool
from romancy.store.mysql.pool import find_unsafe_setting, parse_address
from romancy.store.mysql.statements import get_statement, literal, split_packets, statement_names
from romancy.store.open import open_store

pytestmark = pytest.mark.skipif(bool(mariadb.why_not()), reason=mariadb.why_not())

# In gbk the last byte of the euro sign and a backslash are one character: the quote behind them would end the string.
ATTACK = "€'; CREATE TABLE pwned (id INTEGER); -- "
SETTINGS = {
    "the handshake is ignored": ("--skip-character-set-client-handshake", "--character-set-server=gbk"),
    "each connection is changed": ("--init-connect=SET NAMES gbk",),
}
UNDERSTOOD = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"


@activity
async def leave(ctx: ActivityContext, word: str) -> str:
    """Write something into a table of one's own."""
    await ctx.session.execute(text("INSERT INTO words (word) VALUES (:word)"), {"word": word})
    return word


@workflow
async def listen(ctx: WorkflowContext, word: str) -> list[Any]:
    """Everything a stranger may choose."""
    event = await wait_event(ctx, ATTACK, subject=ATTACK, match={"word": ATTACK})
    return [word, event.data, event.source, await leave(ctx, word)]


@pytest.fixture(scope="module", params=SETTINGS)
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database on such a server, of a user without the rights that spare it what each connection is told."""
    server = mariadb.MariaDb(*SETTINGS[request.param])
    database = mariadb.new_database(server.address)
    make = "CREATE USER shop@'127.0.0.1'; GRANT ALL ON *.* TO shop@'127.0.0.1'; REVOKE SUPER, CONNECTION ADMIN ON *.* FROM "
    asyncio.run(mariadb.execute(database, f"{make} shop@'127.0.0.1'"))
    asyncio.run(mariadb.execute(database, "CREATE TABLE words (word VARCHAR(200) CHARACTER SET utf8mb4)"))
    yield database.replace("root@", "shop@")
    server.remove()


async def test_the_server_does_what_is_defended_against(address: str) -> None:
    """Otherwise the other tests show nothing."""
    raw: Any = await asyncmy.connect(**parse_address(address).connect_arguments())
    cursor = raw.cursor()
    await cursor.execute("SELECT @@character_set_client")
    assert await cursor.fetchall() == (("gbk",),)
    raw.close()


async def test_what_strangers_choose_is_stored_as_it_is_and_not_executed(address: str) -> None:
    await mariadb.execute(address, "DELETE FROM words")
    async with App(address, workflows=[listen]) as app:
        handle = await app.start_workflow(listen.with_options(instance_id=ATTACK), ATTACK)
        await app.send_event(ATTACK, ATTACK, {"word": ATTACK}, subject=ATTACK)
        assert await handle.result(timeout=60) == [ATTACK, {"word": ATTACK}, ATTACK, ATTACK]
    tables = [name for (name,) in await mariadb.execute(address, "SHOW TABLES")]
    assert "pwned" not in tables
    assert await mariadb.execute(address, "SELECT word FROM words") == [(ATTACK,)]


async def test_what_is_said_in_transactions_of_others(address: str) -> None:
    raw: Any = await asyncmy.connect(**parse_address(address).connect_arguments())
    async with App(address, workflows=[listen]) as app:
        with pytest.raises(ConfigurationError, match="character sets gbk and gbk"):
            await app.using(raw).send_event(ATTACK, ATTACK, {})
        await raw.cursor().execute("SET NAMES utf8mb4")
        handle = await app.using(raw).start_workflow(listen.with_options(instance_id=f"used {ATTACK}"), ATTACK)
        await app.using(raw).send_event(ATTACK, ATTACK, {"word": ATTACK, "again": True}, subject=ATTACK)
        await raw.cursor().execute("COMMIT")
        assert (await handle.result(timeout=60))[2:] == [ATTACK, ATTACK]
    raw.close()
    assert ("pwned",) not in await mariadb.execute(address, "SHOW TABLES")


async def test_a_connection_that_does_not_keep_to_what_it_is_told_is_refused(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a proxy that leaves out what it takes for its own affair."""
    monkeypatch.setattr(pool, "_SESSION", "DO 0")
    store = open_store(address, clock=SystemClock())
    with pytest.raises(StoreError, match="does not apply the settings of a connection: it has the character sets gbk"):
        await store.open()


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ((UNDERSTOOD, "utf8mb4", "utf8mb4"), ""),
        ((UNDERSTOOD.encode(), b"utf8mb4", b"utf8mb4"), ""),
        ((UNDERSTOOD, "sjis", "utf8mb4"), "character sets sjis"),
        ((UNDERSTOOD, "utf8mb4", None), "None"),
        (("", "utf8mb4", "utf8mb4"), "sql_mode"),
        ((f"{UNDERSTOOD},NO_BACKSLASH_ESCAPES", "utf8mb4", "utf8mb4"), "sql_mode"),
    ],
)
def test_what_could_be_misunderstood(found: tuple[Any, ...], wrong: str) -> None:
    assert (wrong in find_unsafe_setting(found)) if wrong else find_unsafe_setting(found) == ""


def test_no_value_stands_in_a_statement_but_as_digits() -> None:
    values: list[object] = [ATTACK, ATTACK.encode(), "\\", "'", '"', "`", "\0", "%s", "--", "/*", b"\xff\\", "", b""]
    for value in values:
        written = literal(value)
        assert set(written.removeprefix(b"_utf8mb4 ")) <= set(b"x'0123456789abcdef")
        assert written.count(b"'") == 2
    large = get_statement("add_payloads").text((ATTACK, ATTACK.encode() * 100_000))
    assert large is not None
    assert not any(b"CREATE" in packet or b"\\" in packet for packet in split_packets(large))


def test_no_statement_means_something_else_in_another_mode() -> None:
    """In ANSI_QUOTES double quotes make names, in NO_BACKSLASH_ESCAPES a backslash is one, || may join text."""
    for name in statement_names():
        constant = b"".join(part for part in get_statement(name).parts if isinstance(part, bytes))
        assert constant.isascii()
        assert b"\\" not in constant
        assert b"||" not in constant
        assert '"' not in _outside_quotes(constant.decode()), name


def _outside_quotes(statement: str) -> str:
    return "".join(statement.split("'")[::2])
