"""Servers that read a client's input in another character set than it asked for: values still cannot end a string."""

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

# In gbk the last byte of the euro sign and a backslash are one character, so that the quote behind them ends the string.
ATTACK = "€'; CREATE TABLE pwned (id INTEGER); -- "
SETTINGS = {
    "the handshake is ignored": ("--skip-character-set-client-handshake", "--character-set-server=gbk"),
    "each connection is changed": ("--init-connect=SET NAMES gbk",),
}
SQL_MODE = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"


@activity
async def write_word(ctx: ActivityContext, word: str) -> str:
    """Write a word into a table of the user's."""
    await ctx.session.execute(text("INSERT INTO words (word) VALUES (:word)"), {"word": word})
    return word


@workflow
async def attacked(ctx: WorkflowContext, word: str) -> list[Any]:
    """Uses every value that an external sender can choose."""
    event = await wait_event(ctx, ATTACK, subject=ATTACK, match={"word": ATTACK})
    return [word, event.data, event.source, await write_word(ctx, word)]


@pytest.fixture(scope="module", params=SETTINGS)
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database on such a server, and a user without the privileges that exempt it from `init_connect`."""
    server = mariadb.MariaDb(*SETTINGS[request.param])
    database = mariadb.new_database(server.address)
    make = "CREATE USER shop@'127.0.0.1'; GRANT ALL ON *.* TO shop@'127.0.0.1'; REVOKE SUPER, CONNECTION ADMIN ON *.* FROM "
    asyncio.run(mariadb.execute(database, f"{make} shop@'127.0.0.1'"))
    asyncio.run(mariadb.execute(database, "CREATE TABLE words (word VARCHAR(200) CHARACTER SET utf8mb4)"))
    yield database.replace("root@", "shop@")
    server.remove()


async def test_the_server_does_what_is_defended_against(address: str) -> None:
    """The precondition of the other tests."""
    raw: Any = await asyncmy.connect(**parse_address(address).connect_arguments())
    cursor = raw.cursor()
    await cursor.execute("SELECT @@character_set_client")
    assert await cursor.fetchall() == (("gbk",),)
    raw.close()


async def test_what_strangers_choose_is_stored_as_it_is_and_not_executed(address: str) -> None:
    await mariadb.execute(address, "DELETE FROM words")
    async with App(address, workflows=[attacked]) as app:
        handle = await app.start_workflow(attacked.with_options(instance_id=ATTACK), ATTACK)
        await app.send_event(ATTACK, ATTACK, {"word": ATTACK}, subject=ATTACK)
        assert await handle.result(timeout=60) == [ATTACK, {"word": ATTACK}, ATTACK, ATTACK]
    tables = [name for (name,) in await mariadb.execute(address, "SHOW TABLES")]
    assert "pwned" not in tables
    assert await mariadb.execute(address, "SELECT word FROM words") == [(ATTACK,)]


async def test_what_is_said_in_transactions_of_others(address: str) -> None:
    raw: Any = await asyncmy.connect(**parse_address(address).connect_arguments())
    async with App(address, workflows=[attacked]) as app:
        with pytest.raises(ConfigurationError, match="character sets gbk and gbk"):
            await app.using(raw).send_event(ATTACK, ATTACK, {})
        await raw.cursor().execute("SET NAMES utf8mb4")
        handle = await app.using(raw).start_workflow(attacked.with_options(instance_id=f"used {ATTACK}"), ATTACK)
        await app.using(raw).send_event(ATTACK, ATTACK, {"word": ATTACK, "again": True}, subject=ATTACK)
        await raw.cursor().execute("COMMIT")
        assert (await handle.result(timeout=60))[2:] == [ATTACK, ATTACK]
    raw.close()
    assert ("pwned",) not in await mariadb.execute(address, "SHOW TABLES")


async def test_a_connection_that_does_not_keep_to_what_it_is_told_is_refused(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a proxy that drops the SET statements of its clients."""
    monkeypatch.setattr(pool, "_SESSION", "DO 0")
    store = open_store(address, clock=SystemClock())
    with pytest.raises(StoreError, match="does not apply the settings of a connection: it has the character sets gbk"):
        await store.open()


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ((SQL_MODE, "utf8mb4", "utf8mb4"), ""),
        ((SQL_MODE.encode(), b"utf8mb4", b"utf8mb4"), ""),
        ((SQL_MODE, "sjis", "utf8mb4"), "character sets sjis"),
        ((SQL_MODE, "utf8mb4", None), "None"),
        (("", "utf8mb4", "utf8mb4"), "sql_mode"),
        ((f"{SQL_MODE},NO_BACKSLASH_ESCAPES", "utf8mb4", "utf8mb4"), "sql_mode"),
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
    """ANSI_QUOTES makes double quotes delimit names, NO_BACKSLASH_ESCAPES disables the backslash, and || may concatenate."""
    for name in statement_names():
        constant = b"".join(part for part in get_statement(name).parts if isinstance(part, bytes))
        assert constant.isascii()
        assert b"\\" not in constant
        assert b"||" not in constant
        assert '"' not in _outside_quotes(constant.decode()), name


def _outside_quotes(statement: str) -> str:
    return "".join(statement.split("'")[::2])
