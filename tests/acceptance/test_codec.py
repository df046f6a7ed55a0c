"""Payloads are encoded wherever they lie; without the key nothing is lost, and nothing is shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from tests import databases

from romancy import (
    ActivityContext,
    App,
    Client,
    CodecError,
    Compress,
    Encrypt,
    FileBlobs,
    InstanceConflictError,
    Offload,
    RetryPolicy,
    Status,
    StoreError,
    WorkflowContext,
    WorkflowFailedError,
    activity,
    get_group_members,
    join_group,
    publish,
    receive,
    register_compensation,
    send_event,
    send_to,
    send_to_group,
    sleep,
    subscribe,
    wait_event,
    workflow,
)
from romancy.codec import Layer
from romancy.model.messaging import Event
from romancy.store.encoding.store import EncodingStore
from romancy.testing import TestEnvironment

SECRET = "s3kr1t"
OLD, NEW = {"old": b"o" * 32}, {"old": b"o" * 32, "new": b"n" * 32}
LATER = datetime(2031, 1, 1, tzinfo=UTC)
TWICE = RetryPolicy.fixed(2, 0.01)
AS_HEX = {
    "sqlite": "hex({})",
    "postgres": "encode(convert_to({}::text, 'UTF8'), 'hex')",
    "mariadb": "hex(concat({}))",
}


class Mute:
    """A broker that takes nothing."""

    name = "mute"
    retry = RetryPolicy.none()

    def __init__(self) -> None:
        self.seen: list[Event] = []

    async def start(self) -> None: ...

    async def send(self, event: Event) -> None:
        self.seen.append(event)
        raise ConnectionError("nobody there")

    async def close(self) -> None: ...


# --- a tour through everything


def beside(note: str) -> str:
    """A value that must not be seen."""
    return f"{SECRET} {note}"


@activity(retry=TWICE)
async def stumble(ctx: ActivityContext, value: str) -> str:
    ctx.heartbeat({"details": beside("details")})
    await asyncio.sleep(0)
    if ctx.attempt == 1:
        raise LookupError(beside("attempt"))
    await publish_from(ctx)
    return beside("result")


async def publish_from(ctx: ActivityContext) -> None:
    await publish(ctx, "news", beside("from an activity"))


@activity(retry=RetryPolicy.none())
async def book(ctx: ActivityContext, order: str) -> str:
    await ctx.session.execute(text("INSERT INTO orders (id, total) VALUES ('1', 1)"))
    return beside("session")


@activity
async def undo(ctx: ActivityContext, value: str) -> str:
    return beside("undone")


@workflow(name="codec.tour")
async def tour(ctx: WorkflowContext, value: str, round: int = 1) -> str:
    await subscribe(ctx, "news")
    await subscribe(ctx, "letters", mode="direct")
    await join_group(ctx, "friends")
    await register_compensation(ctx, undo, beside("compensation"))
    first = await stumble(ctx, value)
    second = await book(ctx, beside("order")) if round == 1 else ""
    heard = (await receive(ctx, "news")).data
    await publish(ctx, "news", beside("news"), metadata={"why": beside("metadata")})
    await send_to(ctx, ctx.instance_id, "letters", beside("letter"))
    await send_to_group(ctx, "friends", "letters", beside("to friends"))
    letters = [(await receive(ctx, "letters")).data for _ in range(2)]
    await send_event(ctx, "told", "tests", {"data": beside("event")}, extensions={"round": round})
    event = await wait_event(ctx, "answer", match={"for": beside("match")})
    if round == 1:
        await ctx.recur(beside("recurred"), 2)
    assert await get_group_members(ctx, "friends") == [ctx.instance_id]
    return " | ".join([value, first, second, heard, *letters, event.data["more"], beside("output")])


@workflow(name="codec.stranded")
async def stranded(ctx: WorkflowContext) -> None:
    raise ValueError(beside("failure"))


@workflow(name="codec.greeted", event_handler=True)
async def greeted(ctx: WorkflowContext, name: str) -> str:
    return name


async def answer(app: App | Client) -> None:
    await app.send_event("answer", "tests", {"for": "other", "more": beside("wrong")})
    await app.send_event("answer", "tests", {"for": beside("match"), "more": beside("right")})


async def take_the_tour(env: TestEnvironment, shop: AsyncEngine) -> str:
    app = env.app
    handle = await app.start_workflow(tour.with_options(instance_id="tour"), beside("input"))
    for _ in range(2):
        await env.settle()
        await env.advance(1)
        await answer(app)
    with pytest.raises(WorkflowFailedError, match=f"ValueError: {SECRET} failure"):
        await (await app.start_workflow(stranded)).result()
    await app.send_event("codec.greeted", "tests", {"name": beside("greeting")})
    await app.send_event("nobody", "tests", {"x": beside("kept")}, extensions={"romancyinstanceid": "nobody"})
    await app.publish("empty", beside("unread"))
    async with AsyncSession(shop) as session:
        await app.using(session).send_event("staged", "tests", beside("staged"))
        await app.using(session).start_workflow(greeted, beside("begun"))
        await session.commit()
    await env.settle()
    return await handle.result()


def columns_of(database: str) -> list[tuple[str, str]]:
    if databases.kind_of(database) is databases.KINDS["sqlite"]:
        tables = databases.execute(database, "SELECT name FROM sqlite_master WHERE type = 'table'")
        return [
            (table, row[1])
            for (table,) in tables
            if table.startswith("romancy_")
            for row in databases.execute(database, f"PRAGMA table_info({table})")
        ]
    found = databases.execute(
        database, "SELECT table_name, column_name FROM information_schema.columns WHERE table_name LIKE 'romancy%'"
    )
    return [(str(table), str(column)) for table, column in found]


def dump(database: str) -> dict[str, list[bytes]]:
    """Everything in our tables, as bytes."""
    kind = databases.kind_of(database)
    postgres = kind is databases.KINDS["postgres"]
    as_hex = next(how for name, how in AS_HEX.items() if kind is databases.KINDS[name])
    found: dict[str, list[bytes]] = {}
    for table, column in columns_of(database):
        if table in ("romancy_sources", "romancy_migrations"):
            continue  # code, not payloads
        quoted = f'"{column}"' if postgres else f"`{column}`"
        rows = databases.execute(database, f"SELECT {as_hex.format(quoted)} FROM {table} WHERE {quoted} IS NOT NULL")
        cells = [bytes.fromhex(_text(cell)) for (cell,) in rows]
        # A column of bytes in PostgreSQL: its text is their digits.
        found[f"{table}.{column}"] = [bytes.fromhex(cell[2:].decode()) if cell[:2] == b"\\x" else cell for cell in cells]
    return found


def _text(cell: Any) -> str:
    return cell.decode() if isinstance(cell, bytes) else str(cell)


def where(secret: str, database: str) -> list[str]:
    return sorted(place for place, cells in dump(database).items() if any(secret.encode() in cell for cell in cells))


def everything(folder: Path, keys: dict[str, bytes] = NEW, over: int = 150) -> list[Layer | Offload]:
    return [Compress(over=100), Encrypt(keys, required=True), Offload(FileBlobs(folder / "blobs"), over=over)]


async def test_a_tour_leaves_its_secrets_in_the_database(database: str, shop: AsyncEngine) -> None:
    """Without a codec: this is what the next test would find."""
    async with TestEnvironment(database, workflows=[tour, stranded, greeted], broker=Mute()) as env:
        await take_the_tour(env, shop)
    places = where(SECRET, database)
    assert {place.partition(".")[0] for place in places} >= {
        "romancy_payloads", "romancy_history", "romancy_attempts", "romancy_events", "romancy_messages", "romancy_outbox",
    }  # fmt: skip


async def test_no_secret_of_a_tour_is_in_the_database(database: str, shop: AsyncEngine, tmp_path: Path) -> None:
    broker = Mute()
    async with TestEnvironment(
        database, workflows=[tour, stranded, greeted], broker=broker, codec=everything(tmp_path)
    ) as env:
        result = await take_the_tour(env, shop)
        assert result.count(SECRET) == 7
        assert any(SECRET.encode() in (event.data or b"") for event in broker.seen)  # brokers get what was sent
        outbox = (await env.app.list_outbox()).items
        assert all(SECRET in str(entry.event.data) for entry in outbox if entry.event.type == "told")
        (undeliverable,) = (await env.app.list_undeliverable_events()).items
        assert undeliverable.event.data == {"x": beside("kept")}
        before = await env.app.get_instance("tour", generation=1)
        assert before is not None
        assert before.input == {"value": beside("input"), "round": 1}
        (found,) = (await env.app.find_instances({"value": beside("recurred")})).items
        assert found.instance_id == "tour"
        results = [entry.result async for entry in env.app.history("tour", generation=1)]
        assert beside("session") in results
        tried = [attempt.error for attempt in await env.app.get_attempts("tour")]
        assert [error.message for error in tried if error is not None] == [beside("attempt")]
    assert where(SECRET, database) == []
    if (file := Path(database)).is_file():
        assert not any(SECRET.encode() in one.read_bytes() for one in file.parent.glob(file.name + "*"))
    blobs = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
    assert blobs
    assert not any(SECRET.encode() in path.read_bytes() for path in blobs)


async def test_what_an_event_starts_that_others_handle_is_encoded_too(database: str) -> None:
    async with TestEnvironment(database, workflows=[greeted], codec=Encrypt(OLD)):
        """It leaves word that it handles such events."""
    async with Client(database, workflows=[], codec=Encrypt(OLD)) as client:
        (started,) = (await client.send_event("codec.greeted", "tests", {"name": beside("greeting")})).instance_ids
    assert where(SECRET, database) == []
    async with TestEnvironment(database, workflows=[greeted], codec=Encrypt(OLD), start=LATER) as env:
        assert await env.app.get_handle(started).result() == beside("greeting")


# --- crash and replay


@workflow(name="codec.long_way")
async def long_way(ctx: WorkflowContext, value: str) -> list[str]:
    await subscribe(ctx, "steps")
    found = [await large(ctx, value)]
    await publish(ctx, "steps", value + "!")
    found.append((await receive(ctx, "steps")).data)
    await sleep(ctx, 60)
    found.append((await wait_event(ctx, "go", match={"to": value})).data["to"])
    return [one[-3:] for one in [*found, await large(ctx, value)]]


@activity
async def large(ctx: ActivityContext, value: str) -> str:
    return value * 200


async def walk(env: TestEnvironment, crash_at: int | None = None) -> tuple[list[str], int]:
    async with env:
        if crash_at is not None:
            env.crash_at_step(crash_at)
        handle = await start_again(env)
        await env.advance(61)
        await repeat(lambda: env.app.send_event("go", "tests", {"to": "abc"}, event_id="1"))
        return await handle.result(), len(env.reached)


async def start_again(env: TestEnvironment) -> Any:
    return await repeat(lambda: env.app.start_workflow(long_way.with_options(instance_id="way"), "abc"))


async def repeat(call: Callable[[], Any]) -> Any:
    """A call that a crash cuts off is made again, as a client would."""
    while True:
        try:
            return await call()
        except Exception:
            await asyncio.sleep(0.001)


async def test_a_crash_at_any_step_changes_nothing(database: str, tmp_path: Path) -> None:
    right, codec = ["abc", "bc!", "abc", "abc"], everything(tmp_path, over=100)
    found, steps = await walk(TestEnvironment(database, workflows=[long_way], codec=codec, replay_always=True))
    assert found == right
    for step in range(1, steps + 1):
        databases.kind_of(database).empty(database)
        env = TestEnvironment(database, workflows=[long_way], codec=codec)
        assert (await walk(env, step))[0] == right, step


# --- with other keys, and without


@workflow(name="codec.patient")
async def patient(ctx: WorkflowContext, value: str) -> str:
    first = await large(ctx, value)
    event = await wait_event(ctx, "go", match={"to": value})
    return first[:3] + str(event.data["to"])


def restarted(database: str, **options: Any) -> TestEnvironment:
    return TestEnvironment(database, workflows=[patient], start=LATER, **options)


async def begin(database: str, **options: Any) -> None:
    async with TestEnvironment(database, workflows=[patient], **options) as env:
        await env.app.start_workflow(patient.with_options(instance_id="p"), "abc")
        await env.settle()


async def test_a_codec_is_turned_on_later_and_keys_are_rotated(database: str) -> None:
    async with TestEnvironment(database, workflows=[patient]) as env:
        await env.app.start_workflow(patient.with_options(instance_id="plain"), "abc")
        await env.settle()
    await begin(database, codec=Encrypt(OLD))
    async with restarted(database, codec=[Compress(), Encrypt(NEW)]) as env:
        again = await env.app.start_workflow(patient.with_options(instance_id="p"), "abc")  # the same arguments
        with pytest.raises(InstanceConflictError):
            await env.app.start_workflow(patient.with_options(instance_id="p"), "xyz")
        await env.app.send_event("go", "tests", {"to": "abc"})
        assert [await again.result(), await env.app.get_handle("plain").result()] == ["abcabc", "abcabc"]
    keys = {cell[6:9] for cell in dump(database)["romancy_history.value"] if cell[:5] == b"\x9e\x03aes"}
    assert keys == {b"old", b"new"}


@pytest.mark.parametrize("wrong", [None, Encrypt({"other": b"x" * 32}), Encrypt({"old": b"x" * 32}), Compress()], ids=repr)
async def test_without_the_key_an_instance_is_blocked_and_goes_on_when_it_comes(database: str, wrong: Any) -> None:
    await begin(database, codec=Encrypt(OLD))
    async with restarted(database, codec=wrong) as env:
        async with Client(database, workflows=[], clock=env.clock) as other:
            await other.send_event("go", "tests", {"to": "abc"})  # whether it fits cannot be told without the key
        env.app._on_notified()
        await env.settle()
        found = await env.app.get_instance("p")
        assert found is not None
        assert found.status is Status.BLOCKED
        assert found.error is not None
        assert "encrypted with key 'old'" in found.error.message
        assert "Nothing is lost" in found.error.message
        for _ in range(3):
            assert env.app._claimer is not None
            await env.app._claimer.claim_blocked()
            await env.settle()
        journal = await env.app.get_journal("p")
        assert [line.kind for line in journal].count("blocked") == 1  # it is not tried over and over
    async with restarted(database, codec=Encrypt(OLD)) as env:
        assert await env.app.get_handle("p").result() == "abcabc"


@pytest.mark.parametrize("column", ["input", "value"])
@pytest.mark.parametrize("required", [True, False])
async def test_a_plain_row_in_place_of_an_encrypted_one(database: str, column: str, required: bool) -> None:
    """Who can write to the database, and has no key, can put in a row of their own; required=True sees it."""
    await begin(database, codec=Encrypt(OLD))
    table = "romancy_payloads" if column == "input" else "romancy_history"
    forged = databases.blob(database, (b'{"args":["xyz"]}' if column == "input" else b'"xyz"').hex())
    where = "instance_id = 'p'" if column == "input" else "instance_id = 'p' AND op LIKE 'large%' AND value IS NOT NULL"
    databases.execute(database, f"UPDATE {table} SET {column} = {forged} WHERE {where}")
    async with restarted(database, codec=Encrypt(OLD, required=required)) as env:
        await env.app.send_event("go", "tests", {"to": "abc"})
        await env.settle()
        found = await env.app.get_instance("p")
        assert found is not None
        if required:
            assert found.status is Status.BLOCKED
            assert found.error is not None
            assert "required=True" in found.error.message
        elif column == "value":
            assert found.output == "xyzabc", "without it what is plain is taken for what was stored before"


async def test_what_was_encrypted_for_one_generation_is_not_taken_in_another(database: str) -> None:
    async with TestEnvironment(database, workflows=[recurring], codec=Encrypt(OLD)) as env:
        await (await env.app.start_workflow(recurring.with_options(instance_id="r"), "abc")).result()
        old = dict(databases.execute(database, "SELECT generation, input FROM romancy_payloads WHERE instance_id = 'r'"))
        first = databases.blob(database, bytes(old[1]).hex())
        before = await env.app.get_instance("r")
        databases.execute(database, f"UPDATE romancy_payloads SET input = {first} WHERE instance_id = 'r'")
        after = await env.app.get_instance("r")
        assert before is not None
        assert after is not None
        assert "encoded" not in str(before.input)
        assert "encoded: encrypted" in str(after.input), "arguments of an earlier generation"


async def test_an_event_that_cannot_be_decoded_blocks_who_waits_for_it(database: str) -> None:
    async with TestEnvironment(database, workflows=[patient]) as env:
        await env.app.start_workflow(patient.with_options(instance_id="p"), "abc")
        await env.settle()
        async with Client(database, workflows=[], codec=Encrypt(OLD), clock=env.clock) as other:
            await other.send_event("go", "tests", {"to": "abc"})
        await env.app.send_event("other", "tests")
        env.app._on_notified()
        await env.settle()
        assert await env.app.get_handle("p").status() is Status.BLOCKED
    async with restarted(database, codec=Encrypt(OLD)) as env:
        assert await env.app.get_handle("p").result() == "abcabc"


@workflow(name="codec.hopeful")
async def hopeful(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "go")).data


async def test_an_event_that_is_taken_unread_is_not_lost(database: str) -> None:
    async with TestEnvironment(database, workflows=[hopeful]) as env:
        await env.app.start_workflow(hopeful.with_options(instance_id="h"))
        await env.settle()
        async with Client(database, workflows=[], codec=Encrypt(OLD), clock=env.clock) as other:
            await other.send_event("go", "tests", {"to": "abc"})
        env.app._on_notified()
        await env.settle()
        assert await env.app.get_handle("h").status() is Status.BLOCKED
    async with TestEnvironment(database, workflows=[hopeful], start=LATER, codec=Encrypt(OLD)) as env:
        assert await env.app.get_handle("h").result() == {"to": "abc"}


async def test_a_client_without_the_key_is_told_so(database: str) -> None:
    await begin(database, codec=Encrypt(OLD))
    async with restarted(database, codec=Encrypt(OLD)) as env:
        await env.app.send_event("go", "tests", {"to": "abc"})
        assert await env.app.get_handle("p").result() == "abcabc"
    async with Client(database, workflows=[patient]) as client:
        with pytest.raises(CodecError, match="The end of p cannot be decoded here: it is encrypted with key 'old'"):
            await client.get_handle("p").result()
        with pytest.raises(CodecError, match="What p was started with"):
            await client.start_workflow(patient.with_options(instance_id="p"), "abc")
        found = await client.get_instance("p")
        assert found is not None
        assert str(found.input) == found.output == "encoded: encrypted with key 'old'"
        shown = [(entry.input, entry.result) async for entry in client.history("p")]
        assert {value for pair in shown for value in pair} == {"encoded: encrypted with key 'old'"}


async def test_an_outbox_waits_for_the_key(database: str) -> None:
    async with Client(database, workflows=[], broker=Mute(), codec=Encrypt(OLD)) as client:
        await client.send_event("told", "tests", {"x": 1})
    broker = Mute()
    async with TestEnvironment(database, broker=broker, workflows=[], start=LATER) as env:
        env.app._on_outbox_enqueued()
        await env.settle()
        (entry,) = (await env.app.list_outbox()).items
        assert (entry.event.type, entry.event.data) == ("encoded", "encoded: encrypted with key 'old'")
        assert broker.seen == []
        assert entry.dead_at is None
    async with TestEnvironment(
        database, broker=broker, workflows=[], start=LATER + timedelta(days=1), codec=Encrypt(OLD)
    ) as env:
        env.app._on_outbox_enqueued()
        await env.settle()
        assert [event.data for event in broker.seen] == [b'{"x":1}']


# --- blobs


class Shelf:
    """A blob store with coroutines, and with troubles on demand."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.trouble: Exception | None = None
        self.written_at = 0.0

    async def put(self, key: str, data: bytes) -> None:
        self._stumble()
        self.blobs[key] = data

    async def get(self, key: str) -> bytes | None:
        self._stumble()
        return self.blobs.get(key)

    async def delete(self, key: str) -> None:
        self._stumble()
        del self.blobs[key]

    async def list(self) -> AsyncIterator[tuple[str, float]]:
        self._stumble()
        for key in tuple(self.blobs):
            yield key, self.written_at

    def _stumble(self) -> None:
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            raise trouble


def store_of(env: TestEnvironment) -> EncodingStore:
    store: Any = env.app._open_store
    assert isinstance(store, EncodingStore)
    return store


async def test_what_the_shelf_does_not_take_stays_in_the_database(database: str) -> None:
    shelf = Shelf()
    async with TestEnvironment(database, workflows=[patient], codec=Offload(shelf, over=100)) as env:
        shelf.trouble = ConnectionError("nobody there")
        handle = await env.app.start_workflow(patient, "abc" * 100)
        await env.settle()
        assert len(shelf.blobs) == 3  # what came later: a result, and what was asked
        await env.app.send_event("go", "tests", {"to": "abc" * 100})
        assert await handle.result() == "abc" * 101


async def test_a_shelf_that_is_away_is_asked_again(database: str) -> None:
    shelf = Shelf()
    await begin(database, codec=Offload(shelf, over=100))
    async with restarted(database, codec=Offload(shelf, over=100)) as env:
        shelf.trouble = ConnectionError("nobody there")
        with pytest.raises(StoreError, match="could not get a blob: ConnectionError: nobody there") as raised:
            [entry async for entry in env.app.history("p")]
        assert raised.value.retryable
        await env.app.send_event("go", "tests", {"to": "abc"})
        shelf.trouble = ConnectionError("nobody there")
        await env.settle()
        assert env.app._claimer is not None
        env.app._claimer.poll_soon()
        assert await env.app.get_handle("p").result() == "abcabc"


async def test_a_blob_that_is_gone_blocks_its_instance_until_it_is_back(database: str) -> None:
    shelf = Shelf()
    await begin(database, codec=Offload(shelf, over=100))
    kept, shelf.blobs = shelf.blobs, {}
    async with restarted(database, codec=Offload(shelf, over=100)) as env:
        await env.app.send_event("go", "tests", {"to": "abc"})
        await env.settle()
        found = await env.app.get_instance("p")
        assert found is not None
        assert found.error is not None
        assert "kept outside the database as 'p/1/" in found.error.message
        shelf.blobs = kept
        await env.app.resume_workflow("p")
        assert await env.app.get_handle("p").result() == "abcabc"


@workflow(name="codec.recurring")
async def recurring(ctx: WorkflowContext, value: str, round: int = 1) -> str:
    if round < 3:
        await large(ctx, value)
        await ctx.recur(value, round + 1)
    return await large(ctx, value)


async def homes(shelf: Shelf) -> list[str]:
    return sorted({key.rpartition("/")[0] for key in shelf.blobs})


@pytest.mark.parametrize("archive", [True, False])
async def test_blobs_go_with_what_refers_to_them(database: str, archive: bool) -> None:
    shelf = Shelf()
    shelf.blobs["others/file.txt"] = b"not ours"
    codec = Offload(shelf, over=100, grace=3600)
    async with TestEnvironment(database, workflows=[recurring], codec=codec, archive_history=archive) as env:
        await (await env.app.start_workflow(recurring.with_options(instance_id="r"), "abc")).result()
        store = store_of(env)
        shelf.written_at = env.now().timestamp()
        assert await store.sweep_blobs() == 0  # they are young
        await env.advance(3601)
        await store.sweep_blobs()
        kept = ["r/1", "r/2", "r/3"] if archive else ["r/3"]
        assert await homes(shelf) == ["others", *kept]
        if archive:
            await store.prune_generations(over_before=env.clock.now(), limit=10)
            await store.sweep_blobs()
            assert await homes(shelf) == ["others", "r/3"]
        await store.prune_instances(ended_before=env.clock.now(), limit=10)
        shelf.trouble = ConnectionError("nobody there")
        assert await store.sweep_blobs() == 0
        assert await store.sweep_blobs() == 0  # what was started just now is not known either, and may be dated wrong
        assert await homes(shelf) == ["others", "r/3"]
        assert await store.sweep_blobs() > 0
        assert await homes(shelf) == ["others"]


async def test_upkeep_sweeps_blobs_now_and_then(database: str, tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    blobs.put("gone/1/x", b"data")
    async with TestEnvironment(database, workflows=[], codec=Offload(blobs), start=LATER + timedelta(days=10_000)) as env:
        assert env.app._maintenance is not None
        await env.app._maintenance.round()
        assert len(list(blobs.list())) == 1
        await env.advance(3601)
        await env.app._maintenance.round()
        assert len(list(blobs.list())) == 1, "it may be of an instance that is being started, by a machine with a wrong date"
        await env.advance(3601)
        await env.app._maintenance.round()
        assert list(blobs.list()) == []


# --- a layer that fails


class Picky(Layer):
    """Does not take everything."""

    name: ClassVar[str] = "picky"

    def encode(self, data: bytes, place: bytes) -> bytes:
        if b"bad" in data:
            raise ValueError("not that")
        return data

    def decode(self, data: bytes, place: bytes) -> bytes:
        return data


async def test_a_payload_that_cannot_be_encoded_fails_alone(database: str) -> None:
    async with TestEnvironment(database, workflows=[patient], codec=Picky()) as env:
        tried: Sequence[Any] = await asyncio.gather(
            *(env.app.start_workflow(patient.with_options(instance_id=value), value) for value in ("abc", "bad", "xyz")),
            return_exceptions=True,
        )
        assert [isinstance(one, Exception) for one in tried] == [False, True, False]
        assert "could not be encoded (ValueError)" in str(tried[1])
