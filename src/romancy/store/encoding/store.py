"""`EncodingStore`: a decorator of any store that encodes payloads on their way in and decodes them on their way out.

    engine ─► EncodingStore ─► encode ─► put blobs ─► commit of the inner store ─► database
    engine ◄─ EncodingStore ◄─ decode ◄─ get blobs ◄─ reads of the inner store  ◄─┘

An app without a codec does not use it. Encoding and blob calls happen outside of transactions. Payloads that the SQL layer
itself writes (bodies of events and messages, `match` values of waits) are encoded there, with the same codec.

A payload that cannot be decoded is returned as it is, so that it does not hide the other payloads of a result. The user of a
value checks it with `is_encoded`: a worker blocks the instance, a page of the viewer shows that the value is encoded.
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
from romancy.codec import Codec, is_encoded_digest
from romancy.codec.blobs import BlobOwner, owner_of_blob
from romancy.codec.pipeline import EncodingContext, PendingBlobs
from romancy.errors import StoreError
from romancy.model.admin import Content, InstanceListRow, InstanceQuery, InstanceScan, RecentEvent
from romancy.model.history import AttemptRow, Entry, Kind, Outcome
from romancy.model.instance import Inbox, InboxItem, InstanceFilter, InstanceProgress, LoadedInstance, StoredInstance
from romancy.model.messaging import Effect, Sendable, SendEvent, StoreCall, StoreReply
from romancy.model.outbox import OutboxRow
from romancy.model.status import Status
from romancy.model.transition import (
    RESULT_ITEM,
    AcceptEvents,
    Applied,
    AttemptUpdate,
    CreateInstance,
    Ending,
    Existing,
    Refused,
    ResultStored,
    TransactionalResult,
    Transition,
    Wait,
    Write,
    WriteResult,
)
from romancy.store.port import Store
from romancy.store.sql.activity_results import inbox_context
from romancy.store.sql.channels import MESSAGE_CONTEXT
from romancy.store.sql.events import EVENT_CONTEXT, match_context
from romancy.store.sql.outbox import OUTBOX_CONTEXT

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

_log = logging.getLogger("romancy.store")
T = TypeVar("T")
D = TypeVar("D", bound=Effect)

_SWEEP_EVERY = 3600 * MICROS
_SWEEP_PAGE = 500
_CONCURRENT_BLOB_CALLS = 16
"""Number of blob calls that run at the same time."""
_BLOB_TIMEOUT = 30.0
"""Seconds that one blob call may take."""
_MESSAGING_CONTEXTS: Mapping[Kind, EncodingContext] = {Kind.EVENT: EVENT_CONTEXT, Kind.MESSAGE: MESSAGE_CONTEXT}


class _EncodedWrite(NamedTuple):
    """A write, its encoded form, and its blobs.

    Transitions are kept until they are written: a retry after an outage of the database uses the same blobs.
    """

    write: Write
    encoded: Write
    puts: PendingBlobs


class EncodingStore:
    """A store that encodes payloads for an inner store. Operations without payloads are those of the inner store."""

    def __init__(self, inner: Store, codec: Codec) -> None:
        self._inner = inner
        self._codec = codec
        self._encoded_writes: dict[int, _EncodedWrite] = {}
        self._swept_at: int | None = None
        self._unknown_blobs: set[str] = set()
        """The blobs of unknown instances that the last sweep has seen."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def on_remote_commit(self) -> Callable[[], None] | None:
        """Called on the event loop after a commit by another process or connection."""
        return self._inner.on_remote_commit

    @on_remote_commit.setter
    def on_remote_commit(self, callback: Callable[[], None] | None) -> None:
        self._inner.on_remote_commit = callback

    # --- writing

    async def commit(self, batch: Sequence[Write]) -> builtins.list[WriteResult | StoreError]:
        """Encode a batch, put its blobs, write it, and decode the results. A write that cannot be encoded fails alone."""
        answers: dict[int, WriteResult | StoreError] = {}
        ready: dict[int, _EncodedWrite] = {}
        for index, write in enumerate(batch):
            try:
                ready[index] = self._encode_write(write)
            except Exception as error:  # a layer is user code and may raise any exception
                answers[index] = _encoding_error(error)
        # Blobs first: a committed row must never refer to a blob that does not exist.
        await self._put_all_blobs(ready)
        # Before the commit: if it fails, the retry must find the encoded transition with its blobs.
        self._encoded_writes.update(
            {id(one.write): one for one in ready.values() if one.puts and type(one.write) is Transition}
        )
        written = await self._inner.commit([one.encoded for one in ready.values()])
        for index, answer in zip(ready, written, strict=True):
            self._encoded_writes.pop(id(batch[index]), None)
            answers[index] = await self._decode_answer(batch[index], answer)
        return [answers[index] for index in range(len(batch))]

    def _encode_write(self, write: Write) -> _EncodedWrite:
        known = self._encoded_writes.get(id(write))
        if known is not None:
            return known
        puts: PendingBlobs = []
        return _EncodedWrite(write, _RecordEncoder(self._codec, puts).encode(write), puts)

    async def _put_all_blobs(self, ready: dict[int, _EncodedWrite]) -> None:
        """Put the blobs of all writes. If a blob of a write fails, the write keeps its payloads in the database instead."""
        failed = await self._put_blobs([put for one in ready.values() for put in one.puts])
        for index, one in ready.items() if failed else ():
            if any(key in failed for key, _ in one.puts):
                ready[index] = _EncodedWrite(one.write, _RecordEncoder(self._codec).encode(one.write), [])

    async def _decode_answer(self, write: Write, answer: WriteResult | StoreError) -> WriteResult | StoreError:
        if type(answer) is Applied and answer.replies and type(write) is Transition:
            kinds = {store_call.entry.op: store_call.entry.kind for store_call in write.store_calls}
            return answer._replace(replies=tuple([self._decode_reply(reply, kinds) for reply in answer.replies]))
        if isinstance(answer, Existing) and isinstance(write, CreateInstance):
            return await self._decode_existing(write, answer)
        return answer

    def _decode_reply(self, reply: StoreReply, kinds: Mapping[str, Kind]) -> StoreReply:
        context = _MESSAGING_CONTEXTS.get(kinds[reply.op])
        if reply.value is None or context is None:
            return reply
        return replace(reply, value=self._codec.try_decode(reply.value, context))

    async def _decode_existing(self, create: CreateInstance, found: Existing) -> Existing:
        found = replace(
            found, digest=_RecordDecoder(self._codec).decode_digest(found.digest, ("digest", create.instance_id))
        )
        if found.input is None or (found.digest == create.digest and found.digest):
            return replace(found, input=None)
        into = await self._decoder_for([found.input])
        return replace(found, input=into(found.input, "input", create.instance_id, "1"))

    async def create_on(self, connection: object, create: CreateInstance) -> WriteResult:
        """Create an instance in the caller's transaction."""
        encoded = await self._encode_and_put(lambda out: out.encode_create(create))
        answer = await self._inner.create_on(connection, encoded)
        return await self._decode_existing(create, answer) if isinstance(answer, Existing) else answer

    async def emit_on(self, connection: object, effect: Sendable, *, now: int) -> Refused | None:
        """Send an event or a message in the caller's transaction."""
        encoded = await self._encode_and_put(lambda out: out.encode_effect(effect))
        return await self._inner.emit_on(connection, encoded, now=now)

    async def store_result(self, session: AsyncSession, result: TransactionalResult) -> ResultStored | Refused:
        """Store an activity's result in the activity's own transaction."""
        effects = await self._encode_and_put(lambda out: tuple([out.encode_effect(effect) for effect in result.effects]))
        return await self._inner.store_result(session, replace(result, effects=effects))

    async def _encode_and_put(self, encode: Callable[[_RecordEncoder], T]) -> T:
        puts: PendingBlobs = []
        try:
            encoded = encode(_RecordEncoder(self._codec, puts))
            return encode(_RecordEncoder(self._codec)) if await self._put_blobs(puts) else encoded
        except Exception as error:  # a layer is user code and may raise any exception
            raise _encoding_error(error) from error

    async def prune_messaging(self, *, events_before: int, messages_before: int, limit: int) -> int:
        """Delete old events and messages; now and then, delete unreferenced blobs as well."""
        pruned = await self._inner.prune_messaging(events_before=events_before, messages_before=messages_before, limit=limit)
        now = self._inner.now()
        if self._swept_at is None:
            self._swept_at = now
        elif not 0 <= now - self._swept_at < _SWEEP_EVERY:  # negative if the clock was put back
            self._swept_at = now
            await self.sweep_blobs()
        return pruned

    # --- reading, for the engine

    async def load(self, instance_id: str) -> LoadedInstance | None:
        """Load everything a cold replay needs."""
        found = await self._inner.load(instance_id)
        if found is None:
            return None
        entries, attempts, items = found.history, found.attempts, found.inbox
        into = await self._decoder_for([found.input, *_payloads_of_entries(entries), *_payloads_of_attempts(attempts)])
        generation = found.row.generation
        return replace(
            found,
            input=into(found.input, "input", instance_id, str(generation)) or b"",
            history=tuple([into.decode_entry(instance_id, generation, entry) for entry in entries]),
            attempts=tuple([into.decode_attempt(instance_id, generation, one) for one in attempts]),
            inbox=tuple([into.decode_item(instance_id, item) for item in items]),
        )

    async def inbox(self, instance_id: str) -> Inbox:
        """Return the inbox of an instance."""
        found = await self._inner.inbox(instance_id)
        into = _RecordDecoder(self._codec)
        return found._replace(items=tuple([into.decode_item(instance_id, item) for item in found.items]))

    async def endings(self, ids: Sequence[str]) -> dict[str, tuple[Status, Ending] | None]:
        """Return how each instance that exists has ended."""
        found = await self._inner.endings(ids)
        raws = [raw for one in found.values() if one is not None for raw in (one[1].output, one[1].error)]
        into = await self._decoder_for(raws)
        generations = await self._generations([instance_id for instance_id, one in found.items() if one is not None])
        return {
            instance_id: None if one is None else (one[0], into.decode_ending(instance_id, generations[instance_id], one[1]))
            for instance_id, one in found.items()
        }

    async def _generations(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the current generation of instances, as text: it is part of the encoding context of their payloads."""
        progress = await self._inner.progress(ids) if ids else {}
        return {one: str(progress[one].generation) if one in progress else "" for one in ids}

    async def claim_outbox(
        self, broker: str, claimant: str, *, now: int, until: int, limit: int
    ) -> builtins.list[OutboxRow]:
        """Claim due rows of a broker."""
        return self._decode_outbox_rows(await self._inner.claim_outbox(broker, claimant, now=now, until=until, limit=limit))

    # --- reading, for clients and operators

    async def list_outbox(self, *, dead: bool | None, after: int, limit: int) -> builtins.list[OutboxRow]:
        """List rows of the outbox."""
        return self._decode_outbox_rows(await self._inner.list_outbox(dead=dead, after=after, limit=limit))

    def _decode_outbox_rows(self, rows: Iterable[OutboxRow]) -> builtins.list[OutboxRow]:
        return [row._replace(body=self._codec.try_decode(row.body, OUTBOX_CONTEXT)) for row in rows]

    async def get(self, instance_id: str, generation: int | None = None) -> StoredInstance | None:
        """Return one instance with its payloads."""
        found = await self._inner.get(instance_id, generation)
        return None if found is None else (await self._decode_stored([found]))[0]

    async def list(self, query: InstanceFilter) -> builtins.list[StoredInstance]:
        """List instances with their payloads."""
        return await self._decode_stored(await self._inner.list(query))

    async def _decode_stored(self, found: Sequence[StoredInstance]) -> builtins.list[StoredInstance]:
        into = await self._decoder_for([raw for one in found for raw in (one.input, one.output, one.error)])
        return [into.decode_stored(one) for one in found]

    async def history(self, instance_id: str, generation: int, *, after: int, limit: int) -> builtins.list[Entry]:
        """List the history entries of one generation."""
        found = await self._inner.history(instance_id, generation, after=after, limit=limit)
        into = await self._decoder_for(_payloads_of_entries(found))
        return [into.decode_entry(instance_id, generation, entry) for entry in found]

    async def attempts(self, instance_id: str, generation: int) -> builtins.list[AttemptRow]:
        """List the attempts of one generation."""
        found = await self._inner.attempts(instance_id, generation)
        into = await self._decoder_for(_payloads_of_attempts(found))
        return [into.decode_attempt(instance_id, generation, one) for one in found]

    async def undeliverable(self, *, after: int, limit: int) -> builtins.list[tuple[int, int, bytes]]:
        """List events whose target does not exist or has ended."""
        found = await self._inner.undeliverable(after=after, limit=limit)
        return [(seq, at, self._codec.try_decode(body, EVENT_CONTEXT)) for seq, at, body in found]

    async def last_events(self, kind: str, instance_id: str, *, limit: int) -> builtins.list[RecentEvent]:
        """List the last events of a type."""
        found = await self._inner.last_events(kind, instance_id, limit=limit)
        into = _RecordDecoder(self._codec)
        return [one._replace(body=into(one.body, *EVENT_CONTEXT)) for one in found]

    async def scan_instances(self, query: InstanceQuery) -> InstanceScan:
        """List instances without their payloads; `match` values of their waits are decoded."""
        found = await self._inner.scan_instances(query)
        return found._replace(rows=self._decode_list_rows(found.rows))

    async def rows_by_id(self, ids: Sequence[str]) -> builtins.list[InstanceListRow]:
        """List the given instances without their payloads; `match` values of their waits are decoded."""
        return self._decode_list_rows(await self._inner.rows_by_id(ids))

    def _decode_list_rows(self, rows: Iterable[InstanceListRow]) -> builtins.list[InstanceListRow]:
        into = _RecordDecoder(self._codec)
        return [one._replace(waits=into.decode_waits(one.row.instance_id, one.waits)) if one.waits else one for one in rows]

    async def contents(self, ids: Sequence[str]) -> dict[str, Content]:
        """Return arguments and errors for a search, without those in blobs, which are too large for that."""
        found = await self._inner.contents(ids)
        generations = await self._generations(list(found))
        into = _RecordDecoder(self._codec)
        return {
            instance_id: Content(
                None if self._codec.blob_of(one.input) else into(one.input, "input", instance_id, generations[instance_id]),
                None if self._codec.blob_of(one.error) else into(one.error, "error", instance_id, generations[instance_id]),
            )
            for instance_id, one in found.items()
        }

    async def errors(self, ids: Sequence[str]) -> dict[str, bytes]:
        """Return the errors that the given instances failed with."""
        found = await self._inner.errors(ids)
        into = await self._decoder_for(found.values())
        generations = await self._generations(list(found))
        return {
            instance_id: into(raw, "error", instance_id, generations[instance_id]) or raw
            for instance_id, raw in found.items()
        }

    # --- blobs

    async def _put_blobs(self, puts: PendingBlobs) -> set[str]:
        """Put blobs; return the keys of those that failed."""
        if not puts or self._codec.offload is None:
            return set()
        put = self._codec.offload.blobs.put
        done = await _gather_limited([_call_blob_store("put a blob", put, key, data) for key, data in puts])
        failed = {key: one for (key, _), one in zip(puts, done, strict=True) if isinstance(one, StoreError)}
        for error in list(failed.values())[:1]:
            _log.warning("%s. Payloads kept in the database instead: %d", str(error).rstrip("."), len(failed))
        return set(failed)

    async def _decoder_for(self, raws: Iterable[bytes | None]) -> _RecordDecoder:
        offload = self._codec.offload
        if offload is None:
            return _RecordDecoder(self._codec)
        keys = list(dict.fromkeys(key for raw in raws if (key := self._codec.blob_of(raw)) is not None))
        found = await _gather_limited([_call_blob_store("get a blob", offload.blobs.get, key) for key in keys])
        for one in found:
            if isinstance(one, StoreError):
                raise one
        return _RecordDecoder(self._codec, {key: blob for key, blob in zip(keys, found, strict=True) if blob is not None})

    async def sweep_blobs(self) -> int:
        """Delete old blobs whose instance or generation is gone; return how many.

        A young blob may belong to a write that is about to be committed. The age is by the blob store's clock, which may be
        wrong: so a blob of an unknown instance is deleted only if the instance was unknown in the last sweep as well.
        """
        offload, deleted = self._codec.offload, 0
        unknown_before, self._unknown_blobs = self._unknown_blobs, set()
        if offload is None:
            return deleted
        before = self._inner.now() / MICROS - offload.grace
        try:
            async for page in _pages(offload.blobs.list()):
                owners = {
                    key: owner
                    for key, written_at in page
                    if written_at < before and (owner := owner_of_blob(key)) is not None
                }
                found = await self._inner.progress(sorted({owner.instance_id for owner in owners.values()}))
                for key, owner in owners.items():
                    progress = found.get(owner.instance_id)
                    if progress is None:
                        self._unknown_blobs.add(key)
                        if key not in unknown_before:
                            continue
                    if await self._is_gone(owner, progress):
                        if isinstance(
                            error := await _call_blob_store("delete a blob", offload.blobs.delete, key), StoreError
                        ):
                            raise error
                        deleted += 1
        except Exception as error:  # a blob store is user code and may raise any exception: maintenance must continue
            _log.warning("unreferenced blobs could not be deleted, will try again: %s", error)
        return deleted

    async def _is_gone(self, owner: BlobOwner, progress: InstanceProgress | None) -> bool:
        """Return whether no row refers to blobs of this generation, now or later."""
        if progress is None:
            return True
        # A later generation than the current one may be about to begin: its blobs are put before its commit.
        return owner.generation < progress.generation and await self._inner.get(*owner) is None


class _RecordEncoder:
    """Encodes records. Large payloads are added to `puts` as blobs; without `puts` they stay in the records."""

    def __init__(self, codec: Codec, puts: PendingBlobs | None = None) -> None:
        self._puts = puts
        self._codec = codec

    def encode(self, write: Write) -> Write:
        """Encode a write."""
        match write:
            case Transition():
                return self._encode_transition(write)
            case CreateInstance():
                return self.encode_create(write)
            case AcceptEvents():
                return replace(
                    write, starts=tuple([tuple([self.encode_create(one) for one in some]) for some in write.starts])
                )
            case AttemptUpdate():
                owner = BlobOwner(write.instance_id, write.generation)
                return replace(write, attempt=self._encode_attempt(owner, write.attempt))
            case _:
                return write

    def encode_create(self, create: CreateInstance) -> CreateInstance:
        """Encode a new instance."""
        owner = BlobOwner(create.instance_id, 1)
        return create._replace(
            input=self._encode_value(create.input, owner, "input", create.instance_id, "1"),
            digest=self._encode_digest(create.digest, "digest", create.instance_id),
            ending=self._encode_ending(owner, create.ending),
        )

    def encode_effect(self, effect: D) -> D:
        """Encode the instances that an effect starts. The event or message itself is encoded by the inner store."""
        if not isinstance(effect, SendEvent) or not effect.starts:
            return effect
        return replace(effect, starts=tuple([self.encode_create(create) for create in effect.starts]))

    def _encode_transition(self, write: Transition) -> Transition:
        owner = BlobOwner(write.instance_id, write.generation)
        recur = write.recur
        if recur is not None:
            following = BlobOwner(write.instance_id, write.generation + 1)
            context = ("input", write.instance_id, str(following.generation))
            recur = replace(recur, input=self._encode_value(recur.input, following, *context))
        return write._replace(
            history=tuple([self._encode_entry(owner, entry) for entry in write.history]),
            attempts=tuple([self._encode_attempt(owner, attempt) for attempt in write.attempts]),
            ending=self._encode_ending(owner, write.ending),
            effects=tuple([self.encode_effect(effect) for effect in write.effects]),
            store_calls=tuple([self._encode_store_call(owner, store_call) for store_call in write.store_calls]),
            recur=recur,
        )

    def _encode_store_call(self, owner: BlobOwner, store_call: StoreCall) -> StoreCall:
        return replace(store_call, entry=self._encode_entry(owner, store_call.entry))

    def _encode_entry(self, owner: BlobOwner, entry: Entry) -> Entry:
        scope = (owner.instance_id, str(owner.generation), entry.op)
        value = entry.value
        if value is not None:
            context = _value_context(entry, scope)
            value = self._encode_value(value, owner, *context)
        return entry._replace(
            digest=self._encode_digest(entry.digest, "digest", *scope),
            input=None if entry.input is None else self._encode_value(entry.input, owner, "asked", *scope),
            value=value,
        )

    def _encode_attempt(self, owner: BlobOwner, attempt: AttemptRow) -> AttemptRow:
        if attempt.error is None and attempt.details is None:
            return attempt
        scope = _attempt_context(owner.instance_id, owner.generation, attempt)
        return replace(
            attempt,
            error=None if attempt.error is None else self._encode_value(attempt.error, owner, "attempt", *scope),
            details=None if attempt.details is None else self._encode_value(attempt.details, owner, "details", *scope),
        )

    def _encode_ending(self, owner: BlobOwner, ending: Ending | None) -> Ending | None:
        if ending is None:
            return None
        output, error, scope = ending.output, ending.error, (owner.instance_id, str(owner.generation))
        return replace(
            ending,
            output=None if output is None else self._encode_value(output, owner, "output", *scope),
            error=None if error is None else self._encode_value(error, owner, "error", *scope),
        )

    def _encode_value(self, raw: bytes, owner: BlobOwner, *context: str) -> bytes:
        return self._codec.encode_or_offload(raw, context, owner, self._puts)

    def _encode_digest(self, digest: bytes, *context: str) -> bytes:
        encoded = self._codec.encode(digest, context) if digest else digest
        return encoded if is_encoded_digest(encoded) else digest


class _RecordDecoder:
    """Decodes records. A payload that cannot be decoded stays as it is."""

    def __init__(self, codec: Codec, blobs: Mapping[str, bytes] | None = None) -> None:
        self._codec = codec
        self._blobs = blobs or {}

    def __call__(self, raw: bytes | None, *context: str) -> bytes | None:
        return None if raw is None else self._codec.try_decode(raw, context, self._blobs)

    def decode_digest(self, raw: bytes, context: EncodingContext) -> bytes:
        """Decode a digest."""
        return self._codec.try_decode(raw, context) if is_encoded_digest(raw) else raw

    def decode_entry(self, instance_id: str, generation: int, entry: Entry) -> Entry:
        """Decode a history entry."""
        scope = (instance_id, str(generation), entry.op)
        return entry._replace(
            digest=self.decode_digest(entry.digest, ("digest", *scope)),
            input=self(entry.input, "asked", *scope),
            value=self(entry.value, *_value_context(entry, scope)),
        )

    def decode_attempt(self, instance_id: str, generation: int, attempt: AttemptRow) -> AttemptRow:
        """Decode an attempt of an activity."""
        scope = _attempt_context(instance_id, generation, attempt)
        error, details = self(attempt.error, "attempt", *scope), self(attempt.details, "details", *scope)
        return replace(attempt, error=error, details=details)

    def decode_item(self, instance_id: str, item: InboxItem) -> InboxItem:
        """Decode an inbox item: only those with results hold payloads."""
        if item.kind != RESULT_ITEM:
            return item
        return replace(item, body=self(item.body, *inbox_context(instance_id, item.op)))

    def decode_ending(self, instance_id: str, generation: str, ending: Ending) -> Ending:
        """Decode how an instance ended."""
        output = self(ending.output, "output", instance_id, generation)
        error = self(ending.error, "error", instance_id, generation)
        return replace(ending, output=output, error=error)

    def decode_stored(self, stored: StoredInstance) -> StoredInstance:
        """Decode an instance with its payloads."""
        instance_id, generation = stored.row.instance_id, str(stored.row.generation)
        return replace(
            stored,
            input=self(stored.input, "input", instance_id, generation) or b"",
            output=self(stored.output, "output", instance_id, generation),
            error=self(stored.error, "error", instance_id, generation),
            waits=self.decode_waits(instance_id, stored.waits),
        )

    def decode_waits(self, instance_id: str, waits: Iterable[Wait]) -> tuple[Wait, ...]:
        """Decode the `match` values of waits."""
        return tuple(
            [
                wait if wait.match is None else replace(wait, match=self(wait.match, *match_context(instance_id, wait.op)))
                for wait in waits
            ]
        )


def _value_context(entry: Entry, scope: EncodingContext) -> EncodingContext:
    """Return the encoding context of an entry's value.

    Events and messages were encoded when they were sent, and are copied into histories as they are.
    """
    context = _MESSAGING_CONTEXTS.get(entry.kind) if entry.outcome is Outcome.OK else None
    return ("value", *scope) if context is None else context


def _attempt_context(instance_id: str, generation: int, attempt: AttemptRow) -> EncodingContext:
    return instance_id, str(generation), attempt.op, str(attempt.attempt)


def _payloads_of_entries(entries: Iterable[Entry]) -> builtins.list[bytes | None]:
    return [raw for entry in entries for raw in (entry.input, entry.value)]


def _payloads_of_attempts(attempts: Iterable[AttemptRow]) -> builtins.list[bytes | None]:
    return [raw for attempt in attempts for raw in (attempt.error, attempt.details)]


def _encoding_error(error: Exception) -> StoreError:
    """Return the error of a failed encoding. Its text omits that of the cause, which may contain the payload."""
    failed = StoreError(f"A payload could not be encoded ({type(error).__name__}): see the layers of App(codec=...).")
    failed.__cause__ = error
    return failed


# --- calls of the blob store: plain functions in threads, or coroutines


async def _call_blob_store(what: str, call: Callable[..., Any], *args: Any) -> Any:
    """Call the blob store, which may raise any exception. Return its result, or a `StoreError` on failure or timeout."""
    try:
        async with asyncio.timeout(_BLOB_TIMEOUT):
            if inspect.iscoroutinefunction(call):
                return await call(*args)
            result = await asyncio.to_thread(call, *args)
            return await result if inspect.isawaitable(result) else result
    except Exception as error:
        failed = StoreError(f"The blob store of App(codec=...) could not {what}: {type(error).__name__}: {error}")
        failed.retryable = True
        failed.__cause__ = error
        return failed


async def _gather_limited(calls: Sequence[Coroutine[Any, Any, Any]]) -> builtins.list[Any]:
    """Run calls with limited concurrency; return their results, in order."""
    slots = asyncio.Semaphore(_CONCURRENT_BLOB_CALLS)

    async def one(call: Coroutine[Any, Any, Any]) -> Any:
        async with slots:
            return await call

    return list(await asyncio.gather(*map(one, calls)))


async def _pages(listed: Any) -> AsyncIterator[builtins.list[tuple[str, float]]]:
    """Iterate over the listing of a blob store in pages."""
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
    while page := await asyncio.to_thread(_next_page, rest):
        yield page


def _next_page(rest: Iterator[tuple[str, float]]) -> builtins.list[tuple[str, float]]:
    return list(islice(rest, _SWEEP_PAGE))
