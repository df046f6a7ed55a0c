"""A store whose payloads are encoded: around any other, where bytes go in and come out.

    engine ─► CodedStore ─► encode ─► blobs are put ─► the store's commit ─► the database
    engine ◄─ CodedStore ◄─ decode ◄─ blobs are got ◄─ the store's reads  ◄─┘

An app without a codec has none of this. Encoding and fetching lie outside of transactions. What the deciding code makes
itself (the bodies of events and messages, what a wait matches) it encodes itself, with the same coder.

What cannot be decoded is passed on as it is: it must not hide its neighbours. Who uses a value looks at it first
(`is_encoded`): a worker blocks the instance, a page shows that it is encoded.
"""

from __future__ import annotations

import asyncio
import builtins
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from romancy.clock import MICROS
from romancy.codec import Coder, is_encoded_digest
from romancy.codec.blobs import Home, home_of
from romancy.codec.coder import Place, Puts
from romancy.errors import StoreError
from romancy.model.history import Attempt, Entry, Kind, Outcome
from romancy.model.instance import Inbox, Loaded, Mail, Query, Standing, Stored
from romancy.model.operators import Content, Line, SeenEvent, Survey, Surveyed
from romancy.model.outbox import OutboxRow
from romancy.model.status import Status
from romancy.model.talk import Ask, Deed, Reply, Said, SendEvent
from romancy.model.transition import (
    RESULT,
    Accept,
    Answer,
    Applied,
    Beat,
    Create,
    Deposit,
    Ending,
    Existing,
    Left,
    Refused,
    Transition,
    Wait,
    Write,
)
from romancy.store.port import Store
from romancy.store.sql.channels import MESSAGE
from romancy.store.sql.deposits import mail_place
from romancy.store.sql.events import EVENT, match_place
from romancy.store.sql.outbox import OUTBOX

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

_log = logging.getLogger("romancy.store")
T = TypeVar("T")
D = TypeVar("D", bound=Deed)

_SWEEP_EVERY = 3600 * MICROS
_SWEEP_PAGE = 500
_AT_ONCE = 16
"""Blobs that are put or got at the same time."""
_PATIENCE = 30.0
"""Seconds that one of them may take."""
_TALK: Mapping[Kind, Place] = {Kind.EVENT: EVENT, Kind.MESSAGE: MESSAGE}


class _Kept(NamedTuple):
    """A transition as it was encoded: it is written again if the database was away, with the same blobs."""

    write: Write
    encoded: Write
    puts: Puts


class CodedStore:
    """Every verb of a store, with payloads encoded on the way in and decoded on the way out.

    Verbs without payloads are the other store's own.
    """

    def __init__(self, inner: Store, coder: Coder) -> None:
        self._inner = inner
        self._coder = coder
        self._kept: dict[int, _Kept] = {}
        self._swept_at: int | None = None
        self._strange: set[str] = set()
        """The blobs of no known instance that the last sweep has seen."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def on_foreign_commit(self) -> Callable[[], None] | None:
        """Called when another process has written."""
        return self._inner.on_foreign_commit

    @on_foreign_commit.setter
    def on_foreign_commit(self, call: Callable[[], None] | None) -> None:
        self._inner.on_foreign_commit = call

    # --- writing

    async def commit(self, batch: Sequence[Write]) -> builtins.list[Answer | StoreError]:
        """Encode, write, and decode what the answers say. A write that cannot be encoded is answered alone."""
        answers: dict[int, Answer | StoreError] = {}
        ready: dict[int, _Kept] = {}
        for index, write in enumerate(batch):
            try:
                ready[index] = self._encoded(write)
            except Exception as error:  # a layer may raise anything
                answers[index] = _not_encoded(error)
        await self._put_all(ready)
        self._kept.update({id(one.write): one for one in ready.values() if one.puts and type(one.write) is Transition})
        written = await self._inner.commit([one.encoded for one in ready.values()])
        for index, answer in zip(ready, written, strict=True):
            self._kept.pop(id(batch[index]), None)
            answers[index] = await self._answer(batch[index], answer)
        return [answers[index] for index in range(len(batch))]

    def _encoded(self, write: Write) -> _Kept:
        kept = self._kept.get(id(write))
        if kept is not None:
            return kept
        puts: Puts = []
        return _Kept(write, _Out(self._coder, puts).write(write), puts)

    async def _put_all(self, ready: dict[int, _Kept]) -> None:
        """Put the blobs of all writes. A write of which one cannot be put is written with its payloads in the database."""
        failed = await self._put([put for one in ready.values() for put in one.puts])
        for index, one in ready.items() if failed else ():
            if any(key in failed for key, _ in one.puts):
                ready[index] = _Kept(one.write, _Out(self._coder).write(one.write), [])

    async def _answer(self, write: Write, answer: Answer | StoreError) -> Answer | StoreError:
        if type(answer) is Applied and answer.replies and type(write) is Transition:
            kinds = {ask.entry.op: ask.entry.kind for ask in write.asks}
            return answer._replace(replies=tuple([self._reply(reply, kinds) for reply in answer.replies]))
        if isinstance(answer, Existing) and isinstance(write, Create):
            return await self._existing(write, answer)
        return answer

    def _reply(self, reply: Reply, kinds: Mapping[str, Kind]) -> Reply:
        place = _TALK.get(kinds[reply.op])
        if reply.value is None or place is None:
            return reply
        return replace(reply, value=self._coder.as_far_as_possible(reply.value, place))

    async def _existing(self, create: Create, found: Existing) -> Existing:
        found = replace(found, digest=_In(self._coder).digest(found.digest, ("digest", create.instance_id)))
        if found.input is None or (found.digest == create.digest and found.digest):
            return replace(found, input=None)
        into = await self._fetched([found.input])
        return replace(found, input=into(found.input, "input", create.instance_id, "1"))

    async def begin_on(self, connection: object, create: Create) -> Answer:
        """A new instance in somebody's transaction."""
        encoded = await self._put_out(lambda out: out.create(create))
        answer = await self._inner.begin_on(connection, encoded)
        return await self._existing(create, answer) if isinstance(answer, Existing) else answer

    async def say_on(self, connection: object, deed: Said, *, now: int) -> Refused | None:
        """Say something in somebody's transaction."""
        encoded = await self._put_out(lambda out: out.deed(deed))
        return await self._inner.say_on(connection, encoded, now=now)

    async def deposit(self, session: AsyncSession, deposit: Deposit) -> Left | Refused:
        """Leave a result in an activity's own transaction."""
        deeds = await self._put_out(lambda out: tuple([out.deed(deed) for deed in deposit.deeds]))
        return await self._inner.deposit(session, replace(deposit, deeds=deeds))

    async def _put_out(self, encode: Callable[[_Out], T]) -> T:
        puts: Puts = []
        try:
            encoded = encode(_Out(self._coder, puts))
            return encode(_Out(self._coder)) if await self._put(puts) else encoded
        except Exception as error:  # a layer may raise anything
            raise _not_encoded(error) from error

    async def forget(self, *, events_before: int, messages_before: int, limit: int) -> int:
        """Delete what is old; now and then, blobs that nobody refers to."""
        forgotten = await self._inner.forget(events_before=events_before, messages_before=messages_before, limit=limit)
        now = self._inner.now()
        if self._swept_at is None:
            self._swept_at = now
        elif not 0 <= now - self._swept_at < _SWEEP_EVERY:  # below nothing, the time was put back
            self._swept_at = now
            await self.sweep_blobs()
        return forgotten

    # --- reading, for the engine

    async def load(self, instance_id: str) -> Loaded | None:
        """Everything a cold replay needs."""
        found = await self._inner.load(instance_id)
        if found is None:
            return None
        entries, attempts, mails = found.history, found.attempts, found.inbox
        into = await self._fetched([found.input, *_of_entries(entries), *_of_attempts(attempts)])
        generation = found.row.generation
        return replace(
            found,
            input=into(found.input, "input", instance_id, str(generation)) or b"",
            history=tuple([into.entry(instance_id, generation, entry) for entry in entries]),
            attempts=tuple([into.attempt(instance_id, generation, one) for one in attempts]),
            inbox=tuple([into.mail(instance_id, mail) for mail in mails]),
        )

    async def inbox(self, instance_id: str) -> Inbox:
        """What has arrived for an instance."""
        found = await self._inner.inbox(instance_id)
        into = _In(self._coder)
        return found._replace(mails=tuple([into.mail(instance_id, mail) for mail in found.mails]))

    async def endings(self, ids: Sequence[str]) -> dict[str, tuple[Status, Ending] | None]:
        """How each instance that exists has ended."""
        found = await self._inner.endings(ids)
        raws = [raw for one in found.values() if one is not None for raw in (one[1].output, one[1].error)]
        into = await self._fetched(raws)
        generations = await self._generations([instance_id for instance_id, one in found.items() if one is not None])
        return {
            instance_id: None if one is None else (one[0], into.ending(instance_id, generations[instance_id], one[1]))
            for instance_id, one in found.items()
        }

    async def _generations(self, ids: Sequence[str]) -> dict[str, str]:
        """In which generation instances are, as their payloads are bound to it."""
        standings = await self._inner.standings(ids) if ids else {}
        return {one: str(standings[one].generation) if one in standings else "" for one in ids}

    async def claim_outbox(
        self, broker: str, claimant: str, *, now: int, until: int, limit: int
    ) -> builtins.list[OutboxRow]:
        """Take rows of a broker that are due."""
        return self._rows(await self._inner.claim_outbox(broker, claimant, now=now, until=until, limit=limit))

    # --- reading, for people

    async def list_outbox(self, *, dead: bool | None, after: int, limit: int) -> builtins.list[OutboxRow]:
        """Rows of the outbox."""
        return self._rows(await self._inner.list_outbox(dead=dead, after=after, limit=limit))

    def _rows(self, rows: Iterable[OutboxRow]) -> builtins.list[OutboxRow]:
        return [row._replace(body=self._coder.as_far_as_possible(row.body, OUTBOX)) for row in rows]

    async def get(self, instance_id: str, generation: int | None = None) -> Stored | None:
        """One instance with its payloads."""
        found = await self._inner.get(instance_id, generation)
        return None if found is None else (await self._all_stored([found]))[0]

    async def list(self, query: Query) -> builtins.list[Stored]:
        """Instances with their payloads."""
        return await self._all_stored(await self._inner.list(query))

    async def _all_stored(self, found: Sequence[Stored]) -> builtins.list[Stored]:
        into = await self._fetched([raw for one in found for raw in (one.input, one.output, one.error)])
        return [into.stored(one) for one in found]

    async def history(self, instance_id: str, generation: int, *, after: int, limit: int) -> builtins.list[Entry]:
        """Entries of one generation."""
        found = await self._inner.history(instance_id, generation, after=after, limit=limit)
        into = await self._fetched(_of_entries(found))
        return [into.entry(instance_id, generation, entry) for entry in found]

    async def attempts(self, instance_id: str, generation: int) -> builtins.list[Attempt]:
        """Attempts of one generation."""
        found = await self._inner.attempts(instance_id, generation)
        into = await self._fetched(_of_attempts(found))
        return [into.attempt(instance_id, generation, one) for one in found]

    async def undeliverable(self, *, after: int, limit: int) -> builtins.list[tuple[int, int, bytes]]:
        """Events that nobody can take."""
        found = await self._inner.undeliverable(after=after, limit=limit)
        return [(place, at, self._coder.as_far_as_possible(body, EVENT)) for place, at, body in found]

    async def last_events(self, kind: str, instance_id: str, *, limit: int) -> builtins.list[SeenEvent]:
        """The last events of a type."""
        found = await self._inner.last_events(kind, instance_id, limit=limit)
        into = _In(self._coder)
        return [one._replace(body=into(one.body, *EVENT)) for one in found]

    async def survey(self, wanted: Survey) -> Surveyed:
        """Instances without their payloads; what they wait for."""
        found = await self._inner.survey(wanted)
        return found._replace(lines=self._lines(found.lines))

    async def lines(self, ids: Sequence[str]) -> builtins.list[Line]:
        """The given instances without their payloads; what they wait for."""
        return self._lines(await self._inner.lines(ids))

    def _lines(self, lines: Iterable[Line]) -> builtins.list[Line]:
        into = _In(self._coder)
        return [line._replace(waits=into.waits(line.row.instance_id, line.waits)) if line.waits else line for line in lines]

    async def contents(self, ids: Sequence[str]) -> dict[str, Content]:
        """Arguments and errors to be searched; those in blobs are too large for that."""
        found = await self._inner.contents(ids)
        generations = await self._generations(list(found))
        into = _In(self._coder)
        return {
            instance_id: Content(
                None if self._coder.blob_of(one.input) else into(one.input, "input", instance_id, generations[instance_id]),
                None if self._coder.blob_of(one.error) else into(one.error, "error", instance_id, generations[instance_id]),
            )
            for instance_id, one in found.items()
        }

    async def errors(self, ids: Sequence[str]) -> dict[str, bytes]:
        """What the given instances failed with."""
        found = await self._inner.errors(ids)
        into = await self._fetched(found.values())
        generations = await self._generations(list(found))
        return {
            instance_id: into(raw, "error", instance_id, generations[instance_id]) or raw
            for instance_id, raw in found.items()
        }

    # --- blobs

    async def _put(self, puts: Puts) -> set[str]:
        """Put blobs; the keys of those that could not be put."""
        if not puts or self._coder.offload is None:
            return set()
        put = self._coder.offload.blobs.put
        done = await _few_at_once([_called("put a blob", put, key, data) for key, data in puts])
        failed = {key: one for (key, _), one in zip(puts, done, strict=True) if isinstance(one, StoreError)}
        for error in list(failed.values())[:1]:
            _log.warning("%s (%d in all). These payloads stay in the database.", error, len(failed))
        return set(failed)

    async def _fetched(self, raws: Iterable[bytes | None]) -> _In:
        offload = self._coder.offload
        if offload is None:
            return _In(self._coder)
        keys = list(dict.fromkeys(key for raw in raws if (key := self._coder.blob_of(raw)) is not None))
        found = await _few_at_once([_called("get a blob", offload.blobs.get, key) for key in keys])
        for one in found:
            if isinstance(one, StoreError):
                raise one
        return _In(self._coder, {key: blob for key, blob in zip(keys, found, strict=True) if blob is not None})

    async def sweep_blobs(self) -> int:
        """Delete blobs of instances and generations that are gone, if they are old; how many.

        A young one may belong to something that is about to be committed. Its age is by the clock of whoever keeps it, which
        may be wrong: one of an instance that is not known goes only if the last sweep has seen it, too, and did not know it.
        """
        offload, deleted = self._coder.offload, 0
        before_that, self._strange = self._strange, set()
        if offload is None:
            return deleted
        before = self._inner.now() / MICROS - offload.grace
        try:
            async for page in _pages(offload.blobs.list()):
                homes = {key: home for key, written_at in page if written_at < before and (home := home_of(key)) is not None}
                standings = await self._inner.standings(sorted({home.instance_id for home in homes.values()}))
                for key, home in homes.items():
                    standing = standings.get(home.instance_id)
                    if standing is None:
                        self._strange.add(key)
                        if key not in before_that:
                            continue
                    if await self._is_gone(home, standing):
                        if isinstance(error := await _called("delete a blob", offload.blobs.delete, key), StoreError):
                            raise error
                        deleted += 1
        except Exception as error:  # whoever keeps them may raise anything: the rest of the upkeep goes on
            _log.warning("blobs that nobody refers to could not be deleted, will try again: %s", error)
        return deleted

    async def _is_gone(self, home: Home, standing: Standing | None) -> bool:
        """Nothing refers to blobs of this generation, nor ever will."""
        if standing is None:
            return True
        # A later one may be about to begin.
        return home.generation < standing.generation and await self._inner.get(*home) is None


class _Out:
    """Encodes records. Large payloads join `puts`; without that they stay where they are."""

    def __init__(self, coder: Coder, puts: Puts | None = None) -> None:
        self._puts = puts
        self._coder = coder

    def write(self, write: Write) -> Write:
        """Anything that is written."""
        match write:
            case Transition():
                return self._transition(write)
            case Create():
                return self.create(write)
            case Accept():
                return replace(write, starts=tuple([tuple([self.create(one) for one in some]) for some in write.starts]))
            case Beat():
                home = Home(write.instance_id, write.generation)
                return replace(write, attempt=self._attempt(home, write.attempt))
            case _:
                return write

    def create(self, create: Create) -> Create:
        """A new instance."""
        home = Home(create.instance_id, 1)
        return create._replace(
            input=self._value(create.input, home, "input", create.instance_id, "1"),
            digest=self._small(create.digest, "digest", create.instance_id),
            ending=self._ending(home, create.ending),
        )

    def deed(self, deed: D) -> D:
        """What was said: events and messages are encoded by the store, the instances that they start here."""
        if not isinstance(deed, SendEvent) or not deed.starts:
            return deed
        return replace(deed, starts=tuple([self.create(create) for create in deed.starts]))

    def _transition(self, write: Transition) -> Transition:
        home = Home(write.instance_id, write.generation)
        recur = write.recur
        if recur is not None:
            following = Home(write.instance_id, write.generation + 1)
            place = ("input", write.instance_id, str(following.generation))
            recur = replace(recur, input=self._value(recur.input, following, *place))
        return write._replace(
            history=tuple([self._entry(home, entry) for entry in write.history]),
            attempts=tuple([self._attempt(home, attempt) for attempt in write.attempts]),
            ending=self._ending(home, write.ending),
            deeds=tuple([self.deed(deed) for deed in write.deeds]),
            asks=tuple([self._ask(home, ask) for ask in write.asks]),
            recur=recur,
        )

    def _ask(self, home: Home, ask: Ask) -> Ask:
        return replace(ask, entry=self._entry(home, ask.entry))

    def _entry(self, home: Home, entry: Entry) -> Entry:
        whose = (home.instance_id, str(home.generation), entry.op)
        value = entry.value
        if value is not None:
            place = _place_of_value(entry, whose)
            value = self._value(value, home, *place)
        return entry._replace(
            digest=self._small(entry.digest, "digest", *whose),
            input=None if entry.input is None else self._value(entry.input, home, "asked", *whose),
            value=value,
        )

    def _attempt(self, home: Home, attempt: Attempt) -> Attempt:
        if attempt.error is None and attempt.details is None:
            return attempt
        whose = _whose_attempt(home.instance_id, home.generation, attempt)
        return replace(
            attempt,
            error=None if attempt.error is None else self._value(attempt.error, home, "attempt", *whose),
            details=None if attempt.details is None else self._value(attempt.details, home, "details", *whose),
        )

    def _ending(self, home: Home, ending: Ending | None) -> Ending | None:
        if ending is None:
            return None
        output, error, whose = ending.output, ending.error, (home.instance_id, str(home.generation))
        return replace(
            ending,
            output=None if output is None else self._value(output, home, "output", *whose),
            error=None if error is None else self._value(error, home, "error", *whose),
        )

    def _value(self, raw: bytes, home: Home, *place: str) -> bytes:
        return self._coder.put_out(raw, place, home, self._puts)

    def _small(self, digest: bytes, *place: str) -> bytes:
        encoded = self._coder.encode(digest, place) if digest else digest
        return encoded if is_encoded_digest(encoded) else digest


class _In:
    """Decodes records, as far as it is possible."""

    def __init__(self, coder: Coder, blobs: Mapping[str, bytes] | None = None) -> None:
        self._coder = coder
        self._blobs = blobs or {}

    def __call__(self, raw: bytes | None, *place: str) -> bytes | None:
        return None if raw is None else self._coder.as_far_as_possible(raw, place, self._blobs)

    def digest(self, raw: bytes, place: Place) -> bytes:
        """A digest."""
        return self._coder.as_far_as_possible(raw, place) if is_encoded_digest(raw) else raw

    def entry(self, instance_id: str, generation: int, entry: Entry) -> Entry:
        """An entry of a history."""
        whose = (instance_id, str(generation), entry.op)
        return entry._replace(
            digest=self.digest(entry.digest, ("digest", *whose)),
            input=self(entry.input, "asked", *whose),
            value=self(entry.value, *_place_of_value(entry, whose)),
        )

    def attempt(self, instance_id: str, generation: int, attempt: Attempt) -> Attempt:
        """An attempt of an activity."""
        whose = _whose_attempt(instance_id, generation, attempt)
        error, details = self(attempt.error, "attempt", *whose), self(attempt.details, "details", *whose)
        return replace(attempt, error=error, details=details)

    def mail(self, instance_id: str, mail: Mail) -> Mail:
        """Something that arrived."""
        if mail.kind != RESULT:
            return mail
        return replace(mail, body=self(mail.body, *mail_place(instance_id, mail.op)))

    def ending(self, instance_id: str, generation: str, ending: Ending) -> Ending:
        """How an instance ended."""
        output = self(ending.output, "output", instance_id, generation)
        error = self(ending.error, "error", instance_id, generation)
        return replace(ending, output=output, error=error)

    def stored(self, stored: Stored) -> Stored:
        """An instance with its payloads."""
        instance_id, generation = stored.row.instance_id, str(stored.row.generation)
        return replace(
            stored,
            input=self(stored.input, "input", instance_id, generation) or b"",
            output=self(stored.output, "output", instance_id, generation),
            error=self(stored.error, "error", instance_id, generation),
            waits=self.waits(instance_id, stored.waits),
        )

    def waits(self, instance_id: str, waits: Iterable[Wait]) -> tuple[Wait, ...]:
        """What an instance waits for."""
        return tuple(
            [
                wait if wait.match is None else replace(wait, match=self(wait.match, *match_place(instance_id, wait.op)))
                for wait in waits
            ]
        )


def _place_of_value(entry: Entry, whose: Place) -> Place:
    """Events and messages were encoded when they were sent, and are copied as they are into histories."""
    talk = _TALK.get(entry.kind) if entry.outcome is Outcome.OK else None
    return ("value", *whose) if talk is None else talk


def _whose_attempt(instance_id: str, generation: int, attempt: Attempt) -> Place:
    return instance_id, str(generation), attempt.op, str(attempt.attempt)


def _of_entries(entries: Iterable[Entry]) -> builtins.list[bytes | None]:
    return [raw for entry in entries for raw in (entry.input, entry.value)]


def _of_attempts(attempts: Iterable[Attempt]) -> builtins.list[bytes | None]:
    return [raw for attempt in attempts for raw in (attempt.error, attempt.details)]


def _not_encoded(error: Exception) -> StoreError:
    """The error's words may hold what was to be encoded: they are the cause's."""
    failed = StoreError(f"A payload could not be encoded ({type(error).__name__}): see the layers of App(codec=...).")
    failed.__cause__ = error
    return failed


# --- whoever keeps the blobs: plain functions in threads, or coroutines


async def _called(what: str, call: Callable[..., Any], *args: Any) -> Any:
    """What a call gives; a `StoreError` if it fails, or takes too long. It may raise anything."""
    try:
        async with asyncio.timeout(_PATIENCE):
            if inspect.iscoroutinefunction(call):
                return await call(*args)
            result = await asyncio.to_thread(call, *args)
            return await result if inspect.isawaitable(result) else result
    except Exception as error:
        failed = StoreError(f"The blob store of App(codec=...) could not {what}: {type(error).__name__}: {error}")
        failed.retryable = True
        failed.__cause__ = error
        return failed


async def _few_at_once(calls: Sequence[Coroutine[Any, Any, Any]]) -> builtins.list[Any]:
    """What calls give, in order."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Coroutine[Any, Any, Any]) -> Any:
        async with slots:
            return await call

    return list(await asyncio.gather(*map(one, calls)))


async def _pages(listed: Any) -> AsyncIterator[builtins.list[tuple[str, float]]]:
    """What a blob store lists, some at a time."""
    if hasattr(listed, "__aiter__"):
        page: builtins.list[tuple[str, float]] = []
        async for one in listed:
            page.append(one)
            if len(page) == _SWEEP_PAGE:
                yield page
                page = []
        yield page
        return
    rest: Iterator[tuple[str, float]] = iter(listed)
    while page := await asyncio.to_thread(_some, rest):
        yield page


def _some(rest: Iterator[tuple[str, float]]) -> builtins.list[tuple[str, float]]:
    return list(islice(rest, _SWEEP_PAGE))
