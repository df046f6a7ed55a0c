"""Every stored payload is encoded; without the key, nothing is lost and nothing is readable."""

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


class UnreachableBroker:
    """A broker that cannot be reached."""

    name = "mute"
    retry = RetryPolicy.none()

    def __init__(self) -> None:
        self.seen: list[Event] = []

    async def start(self) -> None: ...

    async def send(self, event: Event) -> None:
        self.seen.append(event)
        raise ConnectionError("unreachable")

    async def close(self) -> None: ...


# --- a workflow that uses every kind of payload


def secret_value(note: str) -> str:
    """A value with the secret in it."""
    return f"{SECRET} {note}"


@activity(retry=TWICE)
async def flaky(ctx: ActivityContext, value: str) -> str:
    ctx.heartbeat({"details": secret_value("details")})
    await asyncio.sleep(0)
    if ctx.attempt == 1:
        raise LookupError(secret_value("attempt"))
    await publish_from(ctx)
    return secret_value("result")


async def publish_from(ctx: ActivityContext) -> None:
    await publish(ctx, "news", secret_value("from an activity"))


@activity(retry=RetryPolicy.none())
async def book(ctx: ActivityContext, order: str) -> str:
    await ctx.session.execute(text("INSERT INTO orders (id, total) VALUES ('1', 1)"))
    return secret_value("session")


@activity
async def undo(ctx: ActivityContext, value: str) -> str:
    return secret_value("undone")


@workflow(name="codec.every_payload")
async def every_payload(ctx: WorkflowContext, value: str, round: int = 1) -> str:
    await subscribe(ctx, "news")
    await subscribe(ctx, "letters", mode="direct")
    await join_group(ctx, "friends")
    await register_compensation(ctx, undo, secret_value("compensation"))
    first = await flaky(ctx, value)
    second = await book(ctx, secret_value("order")) if round == 1 else ""
    heard = (await receive(ctx, "news")).data
    await publish(ctx, "news", secret_value("news"), metadata={"why": secret_value("metadata")})
    await send_to(ctx, ctx.instance_id, "letters", secret_value("letter"))
    await send_to_group(ctx, "friends", "letters", secret_value("to friends"))
    letters = [(await receive(ctx, "letters")).data for _ in range(2)]
    await send_event(ctx, "told", "tests", {"data": secret_value("event")}, extensions={"round": round})
    event = await wait_event(ctx, "answer", match={"for": secret_value("match")})
    if round == 1:
        await ctx.recur(secret_value("recurred"), 2)
    assert await get_group_members(ctx, "friends") == [ctx.instance_id]
    return " | ".join([value, first, second, heard, *letters, event.data["more"], secret_value("output")])


@workflow(name="codec.failing")
async def failing(ctx: WorkflowContext) -> None:
    raise ValueError(secret_value("failure"))


@workflow(name="codec.greeted", event_handler=True)
async def greeted(ctx: WorkflowContext, name: str) -> str:
    return name


async def answer(app: App | Client) -> None:
    await app.send_event("answer", "tests", {"for": "other", "more": secret_value("wrong")})
    await app.send_event("answer", "tests", {"for": secret_value("match"), "more": secret_value("right")})


async def run_every_payload(env: TestEnvironment, shop: AsyncEngine) -> str:
    app = env.app
    handle = await app.start_workflow(every_payload.with_options(instance_id="tour"), secret_value("input"))
    for _ in range(2):
        await env.settle()
        await env.advance(1)
        await answer(app)
    with pytest.raises(WorkflowFailedError, match=f"ValueError: {SECRET} failure"):
        await (await app.start_workflow(failing)).result()
    await app.send_event("codec.greeted", "tests", {"name": secret_value("greeting")})
    await app.send_event("unknown", "tests", {"x": secret_value("kept")}, extensions={"romancyinstanceid": "unknown"})
    await app.publish("empty", secret_value("unread"))
    async with AsyncSession(shop) as session:
        await app.using(session).send_event("staged", "tests", secret_value("staged"))
        await app.using(session).start_workflow(greeted, secret_value("begun"))
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
    """The contents of the engine's tables as bytes, by column."""
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
        # The text of a `bytea` column is its hexadecimal digits.
        found[f"{table}.{column}"] = [bytes.fromhex(cell[2:].decode()) if cell[:2] == b"\\x" else cell for cell in cells]
    return found


def _text(cell: Any) -> str:
    return cell.decode() if isinstance(cell, bytes) else str(cell)


def where(secret: str, database: str) -> list[str]:
    return sorted(place for place, cells in dump(database).items() if any(secret.encode() in cell for cell in cells))


def everything(folder: Path, keys: dict[str, bytes] = NEW, over: int = 150) -> list[Layer | Offload]:
    return [Compress(over=100), Encrypt(keys, required=True), Offload(FileBlobs(folder / "blobs"), over=over)]


async def test_without_a_codec_the_search_finds_every_payload(database: str, shop: AsyncEngine) -> None:
    """Without a codec the search finds the secret in each table: this proves the search of the next test."""
    async with TestEnvironment(database, workflows=[every_payload, failing, greeted], broker=UnreachableBroker()) as env:
        await run_every_payload(env, shop)
    places = where(SECRET, database)
    assert {place.partition(".")[0] for place in places} >= {
        "romancy_payloads", "romancy_history", "romancy_attempts", "romancy_events", "romancy_messages", "romancy_outbox",
    }  # fmt: skip


async def test_with_a_codec_no_payload_is_readable_in_the_database(database: str, shop: AsyncEngine, tmp_path: Path) -> None:
    broker = UnreachableBroker()
    async with TestEnvironment(
        database, workflows=[every_payload, failing, greeted], broker=broker, codec=everything(tmp_path)
    ) as env:
        result = await run_every_payload(env, shop)
        assert result.count(SECRET) == 7
        assert any(SECRET.encode() in (event.data or b"") for event in broker.seen)  # a broker receives the plain event
        outbox = (await env.app.list_outbox()).items
        assert all(SECRET in str(entry.event.data) for entry in outbox if entry.event.type == "told")
        (undeliverable,) = (await env.app.list_undeliverable_events()).items
        assert undeliverable.event.data == {"x": secret_value("kept")}
        before = await env.app.get_instance("tour", generation=1)
        assert before is not None
        assert before.input == {"value": secret_value("input"), "round": 1}
        (found,) = (await env.app.find_instances({"value": secret_value("recurred")})).items
        assert found.instance_id == "tour"
        results = [entry.result async for entry in env.app.history("tour", generation=1)]
        assert secret_value("session") in results
        tried = [attempt.error for attempt in await env.app.get_attempts("tour")]
        assert [error.message for error in tried if error is not None] == [secret_value("attempt")]
    assert where(SECRET, database) == []
    if (file := Path(database)).is_file():
        assert not any(SECRET.encode() in one.read_bytes() for one in file.parent.glob(file.name + "*"))
    blobs = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
    assert blobs
    assert not any(SECRET.encode() in path.read_bytes() for path in blobs)


async def test_what_an_event_starts_that_others_handle_is_encoded_too(database: str) -> None:
    async with TestEnvironment(database, workflows=[greeted], codec=Encrypt(OLD)):
        """The app registers the handler of the event."""
    async with Client(database, workflows=[], codec=Encrypt(OLD)) as client:
        (started,) = (await client.send_event("codec.greeted", "tests", {"name": secret_value("greeting")})).instance_ids
    assert where(SECRET, database) == []
    async with TestEnvironment(database, workflows=[greeted], codec=Encrypt(OLD), start=LATER) as env:
        assert await env.app.get_handle(started).result() == secret_value("greeting")


# --- crashes and replays


@workflow(name="codec.many_steps")
async def many_steps(ctx: WorkflowContext, value: str) -> list[str]:
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


async def run_many_steps(env: TestEnvironment, crash_at: int | None = None) -> tuple[list[str], int]:
    async with env:
        if crash_at is not None:
            env.crash_at_step(crash_at)
        handle = await start_again(env)
        await env.advance(61)
        await repeat(lambda: env.app.send_event("go", "tests", {"to": "abc"}, event_id="1"))
        return await handle.result(), len(env.reached)


async def start_again(env: TestEnvironment) -> Any:
    return await repeat(lambda: env.app.start_workflow(many_steps.with_options(instance_id="way"), "abc"))


async def repeat(call: Callable[[], Any]) -> Any:
    """Repeat a call until no crash interrupts it, as a client does."""
    while True:
        try:
            return await call()
        except Exception:
            await asyncio.sleep(0.001)


async def test_a_crash_at_any_step_changes_nothing(database: str, tmp_path: Path) -> None:
    right, codec = ["abc", "bc!", "abc", "abc"], everything(tmp_path, over=100)
    found, steps = await run_many_steps(TestEnvironment(database, workflows=[many_steps], codec=codec, replay_always=True))
    assert found == right
    for step in range(1, steps + 1):
        databases.kind_of(database).empty(database)
        env = TestEnvironment(database, workflows=[many_steps], codec=codec)
        assert (await run_many_steps(env, step))[0] == right, step


# --- with other keys, and without keys


@workflow(name="codec.waiting")
async def waiting(ctx: WorkflowContext, value: str) -> str:
    first = await large(ctx, value)
    event = await wait_event(ctx, "go", match={"to": value})
    return first[:3] + str(event.data["to"])


def restarted(database: str, **options: Any) -> TestEnvironment:
    return TestEnvironment(database, workflows=[waiting], start=LATER, **options)


async def begin(database: str, **options: Any) -> None:
    async with TestEnvironment(database, workflows=[waiting], **options) as env:
        await env.app.start_workflow(waiting.with_options(instance_id="p"), "abc")
        await env.settle()


async def test_a_codec_is_turned_on_later_and_keys_are_rotated(database: str) -> None:
    async with TestEnvironment(database, workflows=[waiting]) as env:
        await env.app.start_workflow(waiting.with_options(instance_id="plain"), "abc")
        await env.settle()
    await begin(database, codec=Encrypt(OLD))
    async with restarted(database, codec=[Compress(), Encrypt(NEW)]) as env:
        again = await env.app.start_workflow(waiting.with_options(instance_id="p"), "abc")  # the same arguments
        with pytest.raises(InstanceConflictError):
            await env.app.start_workflow(waiting.with_options(instance_id="p"), "xyz")
        await env.app.send_event("go", "tests", {"to": "abc"})
        assert [await again.result(), await env.app.get_handle("plain").result()] == ["abcabc", "abcabc"]
    keys = {cell[6:9] for cell in dump(database)["romancy_history.value"] if cell[:5] == b"\x9e\x03aes"}
    assert keys == {b"old", b"new"}


@pytest.mark.parametrize("wrong", [None, Encrypt({"other": b"x" * 32}), Encrypt({"old": b"x" * 32}), Compress()], ids=repr)
async def test_without_the_key_an_instance_is_blocked_and_goes_on_when_it_comes(database: str, wrong: Any) -> None:
    await begin(database, codec=Encrypt(OLD))
    async with restarted(database, codec=wrong) as env:
        async with Client(database, workflows=[], clock=env.clock) as other:
            await other.send_event("go", "tests", {"to": "abc"})  # without the key, it cannot be matched
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
        assert [line.kind for line in journal].count("blocked") == 1  # it is not replayed again and again
    async with restarted(database, codec=Encrypt(OLD)) as env:
        assert await env.app.get_handle("p").result() == "abcabc"


@pytest.mark.parametrize("column", ["input", "value"])
@pytest.mark.parametrize("required", [True, False])
async def test_a_plain_row_in_place_of_an_encrypted_one(database: str, column: str, required: bool) -> None:
    """A row that was forged with write access but without the key is refused with required=True."""
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
            assert found.output == "xyzabc", "without required=True, plain values are accepted"


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
        assert "encoded: encrypted" in str(after.input), "the arguments of the first generation are encrypted"


async def test_an_event_that_cannot_be_decoded_blocks_who_waits_for_it(database: str) -> None:
    async with TestEnvironment(database, workflows=[waiting]) as env:
        await env.app.start_workflow(waiting.with_options(instance_id="p"), "abc")
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
    async with Client(database, workflows=[waiting]) as client:
        with pytest.raises(CodecError, match="The result of p cannot be decoded here: it is encrypted with key 'old'"):
            await client.get_handle("p").result()
        with pytest.raises(CodecError, match="The input of p"):
            await client.start_workflow(waiting.with_options(instance_id="p"), "abc")
        found = await client.get_instance("p")
        assert found is not None
        assert str(found.input) == found.output == "encoded: encrypted with key 'old'"
        shown = [(entry.input, entry.result) async for entry in client.history("p")]
        assert {value for pair in shown for value in pair} == {"encoded: encrypted with key 'old'"}


async def test_an_outbox_waits_for_the_key(database: str) -> None:
    async with Client(database, workflows=[], broker=UnreachableBroker(), codec=Encrypt(OLD)) as client:
        await client.send_event("told", "tests", {"x": 1})
    broker = UnreachableBroker()
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


class MemoryBlobs:
    """A blob store with coroutines, which raises `error` once."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.error: Exception | None = None
        self.written_at = 0.0

    async def put(self, key: str, data: bytes) -> None:
        self._raise_once()
        self.blobs[key] = data

    async def get(self, key: str) -> bytes | None:
        self._raise_once()
        return self.blobs.get(key)

    async def delete(self, key: str) -> None:
        self._raise_once()
        del self.blobs[key]

    async def list(self) -> AsyncIterator[tuple[str, float]]:
        self._raise_once()
        for key in tuple(self.blobs):
            yield key, self.written_at

    def _raise_once(self) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error


def store_of(env: TestEnvironment) -> EncodingStore:
    store: Any = env.app._open_store
    assert isinstance(store, EncodingStore)
    return store


async def test_a_payload_that_the_blob_store_refuses_stays_in_the_database(database: str) -> None:
    blob_store = MemoryBlobs()
    async with TestEnvironment(database, workflows=[waiting], codec=Offload(blob_store, over=100)) as env:
        blob_store.error = ConnectionError("unreachable")
        handle = await env.app.start_workflow(waiting, "abc" * 100)
        await env.settle()
        assert len(blob_store.blobs) == 3  # the values that came later are outside: the arguments, a result, and the match
        await env.app.send_event("go", "tests", {"to": "abc" * 100})
        assert await handle.result() == "abc" * 101


async def test_an_unreachable_blob_store_is_asked_again(database: str) -> None:
    blob_store = MemoryBlobs()
    await begin(database, codec=Offload(blob_store, over=100))
    async with restarted(database, codec=Offload(blob_store, over=100)) as env:
        blob_store.error = ConnectionError("unreachable")
        with pytest.raises(StoreError, match="could not get a blob: ConnectionError: unreachable") as raised:
            [entry async for entry in env.app.history("p")]
        assert raised.value.retryable
        await env.app.send_event("go", "tests", {"to": "abc"})
        blob_store.error = ConnectionError("unreachable")
        await env.settle()
        assert env.app._claimer is not None
        env.app._claimer.poll_soon()
        assert await env.app.get_handle("p").result() == "abcabc"


async def test_a_blob_that_is_gone_blocks_its_instance_until_it_is_back(database: str) -> None:
    blob_store = MemoryBlobs()
    await begin(database, codec=Offload(blob_store, over=100))
    kept, blob_store.blobs = blob_store.blobs, {}
    async with restarted(database, codec=Offload(blob_store, over=100)) as env:
        await env.app.send_event("go", "tests", {"to": "abc"})
        await env.settle()
        found = await env.app.get_instance("p")
        assert found is not None
        assert found.error is not None
        assert "kept outside the database as 'p/1/" in found.error.message
        blob_store.blobs = kept
        await env.app.resume_workflow("p")
        assert await env.app.get_handle("p").result() == "abcabc"


@workflow(name="codec.recurring")
async def recurring(ctx: WorkflowContext, value: str, round: int = 1) -> str:
    if round < 3:
        await large(ctx, value)
        await ctx.recur(value, round + 1)
    return await large(ctx, value)


async def prefixes(blob_store: MemoryBlobs) -> list[str]:
    return sorted({key.rpartition("/")[0] for key in blob_store.blobs})


@pytest.mark.parametrize("archive", [True, False])
async def test_blobs_go_with_what_refers_to_them(database: str, archive: bool) -> None:
    blob_store = MemoryBlobs()
    blob_store.blobs["others/file.txt"] = b"not ours"
    codec = Offload(blob_store, over=100, grace=3600)
    async with TestEnvironment(database, workflows=[recurring], codec=codec, archive_history=archive) as env:
        await (await env.app.start_workflow(recurring.with_options(instance_id="r"), "abc")).result()
        store = store_of(env)
        blob_store.written_at = env.now().timestamp()
        assert await store.sweep_blobs() == 0  # they are younger than the grace period
        await env.advance(3601)
        await store.sweep_blobs()
        kept = ["r/1", "r/2", "r/3"] if archive else ["r/3"]
        assert await prefixes(blob_store) == ["others", *kept]
        if archive:
            await store.prune_generations(over_before=env.clock.now(), limit=10)
            await store.sweep_blobs()
            assert await prefixes(blob_store) == ["others", "r/3"]
        await store.prune_instances(ended_before=env.clock.now(), limit=10)
        blob_store.error = ConnectionError("unreachable")
        assert await store.sweep_blobs() == 0
        assert await store.sweep_blobs() == 0  # it keeps new keys for another round, because their dates may be wrong
        assert await prefixes(blob_store) == ["others", "r/3"]
        assert await store.sweep_blobs() > 0
        assert await prefixes(blob_store) == ["others"]


async def test_the_maintenance_sweeps_blobs(database: str, tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    blobs.put("gone/1/x", b"data")
    async with TestEnvironment(database, workflows=[], codec=Offload(blobs), start=LATER + timedelta(days=10_000)) as env:
        assert env.app._maintenance is not None
        await env.app._maintenance.round()
        assert len(list(blobs.list())) == 1
        await env.advance(3601)
        await env.app._maintenance.round()
        assert len(list(blobs.list())) == 1, "the blob of a new instance may be misdated"
        await env.advance(3601)
        await env.app._maintenance.round()
        assert list(blobs.list()) == []


# --- a layer that fails


class RefusingLayer(Layer):
    """A layer that refuses some payloads."""

    name: ClassVar[str] = "picky"

    def encode(self, data: bytes, place: bytes) -> bytes:
        if b"bad" in data:
            raise ValueError("not that")
        return data

    def decode(self, data: bytes, place: bytes) -> bytes:
        return data


async def test_a_payload_that_cannot_be_encoded_fails_alone(database: str) -> None:
    async with TestEnvironment(database, workflows=[waiting], codec=RefusingLayer()) as env:
        tried: Sequence[Any] = await asyncio.gather(
            *(env.app.start_workflow(waiting.with_options(instance_id=value), value) for value in ("abc", "bad", "xyz")),
            return_exceptions=True,
        )
        assert [isinstance(one, Exception) for one in tried] == [False, True, False]
        assert "could not be encoded (ValueError)" in str(tried[1])
