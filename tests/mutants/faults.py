"""Planted faults: small changes to the code, each with the tests that must catch it.

`make mutants` plants them one after another in a copy of the project. A fault whose old text is not in the code exactly once
fails `make test`: adapt the fault, do not drop it.
"""

from __future__ import annotations

from dataclasses import dataclass

_CONFORMANCE = "tests/store/test_conformance.py"
_FAULTS = "tests/acceptance/test_known_faults.py"


@dataclass(frozen=True, slots=True)
class Fault:
    """One planted fault."""

    name: str
    promise: str
    """The promise that the fault breaks."""
    file: str
    """The path below `src/romancy`."""
    old: str
    new: str
    tests: tuple[str, ...]
    """Arguments for pytest: quick tests, of which at least one must fail."""


def _conformance(*names: str) -> tuple[str, ...]:
    """Tests of the store's conformance suite."""
    return tuple(f"{_CONFORMANCE}::{name}" for name in names)


FAULTS: tuple[Fault, ...] = (
    # --- ownership
    Fault(
        "fence-owner",
        "a worker that has lost an instance cannot change it",
        "store/sql/transitions.py",
        "    return state.owner == write.worker\n",
        "    return True\n",
        _conformance(
            "TestClaims::test_the_old_owner_is_fenced",
            "TestTransitions::test_a_zombie_changes_nothing",
            "TestEvents::test_a_zombie_consumes_nothing_and_says_nothing",
        ),
    ),
    Fault(
        "fence-epoch",
        "a write under an old epoch is refused, also from a worker that owns the instance again",
        "store/sql/transitions.py",
        "if state.generation != write.generation or state.epoch != write.epoch or state.ended:",
        "if state.generation != write.generation or state.ended:",
        _conformance(
            "TestTransitions::test_a_zombie_changes_nothing",
            "TestClaims::test_the_old_owner_is_fenced",
            "TestTransitions::test_a_warm_run_claims_with_its_transition",
            "TestRequests::test_terminating_ends_it_and_fences_its_run",
        ),
    ),
    Fault(
        "fence-steps",
        "the fast path of steps checks the epoch, too",
        "store/sqlite/queries/batch.sql",
        "WHERE i.id = new.id AND i.generation = new.generation AND i.epoch = new.under AND i.owner = new.owner\n",
        "WHERE i.id = new.id AND i.generation = new.generation\n",
        _conformance(
            "TestSteps::test_one_that_may_not_be_is_refused_alone", "TestTransitions::test_a_zombie_changes_nothing"
        ),
    ),
    Fault(
        "sweep-missing",
        "instances of dead workers are taken over",
        "store/sql/ownership.py",
        "    keys = as_json(ids)\n"
        '        cursor.run("note_each", {"now": now, "kind": why, "detail": "", "ids": keys})\n'
        '        cursor.run("free", {"now": now, "ids": keys})\n',
        '    keys = as_json(ids)\n        cursor.run("note_each", {"now": now, "kind": why, "detail": "", "ids": keys})\n',
        _conformance("TestMaintenance::test_a_sweep_frees_the_instances_of_a_silent_worker"),
    ),
    Fault(
        "sweep-early",
        "a worker that has sent a heartbeat meanwhile is not declared dead",
        "store/sql/ownership.py",
        "    return row is not None and row[0] != heartbeat_at\n",
        "    return False\n",
        _conformance("TestMaintenance::test_a_sweep_spares_a_worker_that_has_beaten_since"),
    ),
    Fault(
        "adopted-early",
        "an instance whose claim or start is still unanswered is not adopted, however long that takes",
        "worker/claimer.py",
        "        for instance_id in sorted(set(await worker.store.owned(worker.id)) - here):\n"
        "            try:\n"
        "                if await worker.resume_owned(instance_id):\n",
        "        owned = await worker.store.owned(worker.id)\n"
        "        missing = {id for id in owned if not worker.has(id)}\n"
        '        again, self._missing = missing & getattr(self, "_missing", set()), missing\n'
        "        for instance_id in sorted(again):\n"
        "            try:\n"
        "                loaded = await worker.store.load(instance_id)\n"
        "                if loaded is not None and not await worker.resume(loaded.row):\n",
        ("tests/engine/test_adoption.py",),
    ),
    Fault(
        "second-runner",
        "a late answer does not start a second runner for an instance",
        "worker/worker.py",
        "        there = self._find_runner(create.instance_id)\n        if self.pending_claims.is_named",
        "        there = None\n        self._hosts.pop(create.instance_id, None)\n        if self.pending_claims.is_named",
        ("tests/engine/test_adoption.py",),
    ),
    Fault(
        "thread-missing",
        "an attempt for which no thread could start does not run later, beside the next attempt",
        "thread_pool.py",
        "            if not self._prepared or self._closed:\n"
        "                self._prepare()\n"
        "            self._prepared -= 1\n"
        "            self._calls.put(call)\n",
        "            self._calls.put(call)\n            self._prepare()\n",
        ("tests/engine/test_thread_pool.py",),
    ),
    Fault(
        "poll-missing",
        "due instances are found although all notifications are lost",
        "worker/claimer.py",
        "async with asyncio.timeout(worker.options.poll_interval):",
        "async with asyncio.timeout(None):",
        ("tests/engine/test_notifications.py",),
    ),
    # --- durability
    Fault(
        "ack-before-commit",
        "nothing is acknowledged before it is durable",
        "store/committer.py",
        "_CHECKS_PER_TIMEOUT + 1))\n        if self._deadline_timer is None:\n",
        "_CHECKS_PER_TIMEOUT + 1))\n        future.set_result(Applied())\n        if self._deadline_timer is None:\n",
        ("tests/unit/test_committer.py::test_nothing_is_acknowledged_before_the_commit",),
    ),
    Fault(
        "failed-neighbours",
        "a write that fails does not fail the others of its batch",
        "store/committer.py",
        "        return await self._write_one_by_one(left)\n",
        "        self._record_failures(left.submitted, left.pairs, left.error)\n        return None\n",
        ("tests/unit/test_committer.py::test_what_is_poisoned_fails_alone",),
    ),
    Fault(
        "partial-batch-repeated",
        "the committed part of a batch that breaks off is not written again",
        "store/sql/server.py",
        "            if not answers:\n                raise\n",
        "            raise\n",
        ("tests/store/dialects/test_postgres_errors.py::test_of_a_batch_that_breaks_off_what_is_written_is_answered",),
    ),
    Fault(
        "file-gone",
        "nothing is acknowledged when the database file is gone",
        "store/sqlite/database.py",
        "            identity.require_throttled()  # before the commit is acknowledged\n",
        "            pass\n",
        ("tests/acceptance/test_lost_file.py",),
    ),
    Fault(
        "accepted-before-stored",
        "an event is answered with 202 only after it is stored",
        "http/gateway.py",
        "accepted = await self._service.accept_events(events) if events else []",
        "accepted = []\n            self._late = asyncio.ensure_future(self._service.accept_events(events))",
        ("tests/http/test_gateway.py::test_not_before_it_is_stored",),
    ),
    Fault(
        "start-before-cause",
        "an activity does not start before the transition that starts it is durable",
        "worker/runner/transition.py",
        "    attempts.starting, attempts.new = attempts.new, []\n",
        "    attempts.launch(runner, attempts.new)\n    attempts.starting, attempts.new = [], []\n",
        ("tests/engine/test_durability.py",),
    ),
    Fault(
        "partial-write",
        "a write that the database refuses leaves nothing behind",
        "store/sqlite/apply.py",
        '        cursor.raw.execute("ROLLBACK TO alone")\n',
        "",
        _conformance("TestBatches::test_a_refused_write_leaves_nothing_of_itself"),
    ),
    Fault(
        "timer-lost",
        "a timer outlives the worker that set it",
        "store/sql/transitions.py",
        "        if write.status in _AT_REST:\n            state.wake_at = None\n",
        "        state.wake_at = None\n        if write.status in _AT_REST:\n",
        _conformance("TestTransitions::test_a_release_makes_it_due_at_its_wake_time"),
    ),
    Fault(
        "attempts-forgotten",
        "a back-off continues after a restart with its attempt number",
        "store/sql/transitions.py",
        "        unit.put_attempts(state, write.attempts)\n    if write.withdrawn:",
        "        pass\n    if write.withdrawn:",
        (
            "tests/acceptance/test_retries.py::test_a_long_backoff_survives_a_restart_with_its_attempt_number_and_holds_no_worker",
        ),
    ),
    # --- replay
    Fault(
        "effects-replayed",
        "a workflow's effects are emitted once, however often it is replayed",
        "core/execution.py",
        "        if recorded:\n            seq = self._effect_seqs[issue.op]\n",
        "        if recorded:\n            seq = self._effect_seqs[issue.op]\n"
        "            if issue.detail is not None:\n"
        "                self.effects.append((issue.op, cast(Effect, issue.detail)))\n",
        (f"{_FAULTS}::test_what_a_body_says_is_said_once_however_often_it_is_replayed",),
    ),
    Fault(
        "compensation-reversed",
        "activities are compensated in reverse order of completion",
        "core/execution.py",
        "            stack.pop()\n        return stack[-1] if stack else None\n",
        "            stack.pop()\n        left = [one for one in stack if one.op not in self._compensated]\n"
        "        return left[0] if left else None\n",
        ("tests/unit/test_execution.py::test_the_last_completed_is_undone_first",),
    ),
    # --- waiting
    Fault(
        "wake-lost",
        "an item that arrives between the last read of the inbox and the release is not missed",
        "store/sql/transitions.py",
        "    elif has_replies or state.inbox_version != write.inbox_seen:\n",
        "    elif has_replies:\n",
        _conformance(
            "TestEvents::test_a_running_instance_is_not_released_past_what_came",
            "TestTransitions::test_a_release_that_missed_a_signal_keeps_the_owner",
        ),
    ),
    Fault(
        "wait-not-woken",
        "an event wakes the instances that wait for it",
        "store/sql/events.py",
        "    wake(cursor, woken, now)\n    return woken, list(",
        "    return woken, list(",
        _conformance("TestEvents::test_one_that_comes_after_it", "TestEvents::test_every_instance_that_waits_gets_it"),
    ),
    Fault(
        "cursor-without-selector",
        "an event that did not match stays available for later waits",
        "store/sqlite/queries/messaging.sql",
        "    SELECT max(seq) FROM romancy_consumed_events WHERE instance_id = :id AND selector = :selector), 0))\n",
        "    SELECT max(seq) FROM romancy_consumed_events WHERE instance_id = :id), 0))\n",
        _conformance("TestEvents::test_what_does_not_fit_stays_for_later_waits"),
    ),
    Fault(
        "dedupe-off",
        "an event with a known source and id has no effect",
        "store/sqlite/queries/messaging.sql",
        "INSERT OR IGNORE INTO romancy_events (source,",
        "INSERT OR REPLACE INTO romancy_events (source,",
        _conformance(
            "TestAccepting::test_source_and_id_tell_events_apart", "TestAccepting::test_a_known_one_wakes_no_instance"
        ),
    ),
    Fault(
        "late-is-in-time",
        "an event that arrives at the deadline of a wait is too late",
        "store/sql/messaging.py",
        "before = min((time for time in (store_call.due, store_call.before) if time is not None), default=None)",
        "before = store_call.before",
        _conformance(
            "TestDeadlines::test_what_comes_at_the_deadline_is_late", "TestDeadlines::test_the_log_decides_what_was_late"
        ),
    ),
    Fault(
        "delivered-twice",
        "a competing message is deleted when its receipt is recorded",
        "store/sql/channels.py",
        '    cursor.run("drop_delivery", (instance_id, channel, seq))\n    cursor.run("drop_messages", (as_json([seq]),))\n',
        '    cursor.run("drop_delivery", (instance_id, channel, seq))\n',
        _conformance("TestCompeting::test_one_gets_it"),
    ),
    Fault(
        "replacement-missing",
        "an instance that was woken for a message and lost its worker is replaced",
        "store/sql/ownership.py",
        "        wake_replacements(cursor, ids, now)  # others may take sooner what these were woken for\n",
        "",
        _conformance("TestCompeting::test_whose_worker_is_gone_is_replaced"),
    ),
    Fault(
        "cancel-overlooked",
        "an instance whose cancellation was acknowledged cannot complete",
        "store/sql/transitions.py",
        "        write.ending is not None\n        and write.status is not Status.CANCELLED\n",
        "        False\n        and write.status is not Status.CANCELLED\n",
        _conformance("TestRequests::test_an_end_that_does_not_know_of_the_cancellation_is_no_end"),
    ),
    Fault(
        "recur-drops-inbox",
        "inbox items and messages are kept for the next generation",
        "store/sql/unit_of_work.py",
        '        self.cursor.run("forget_waits", (state.id,))\n',
        '        self.cursor.run("forget_waits", (state.id,))\n        self._ended[state.id] = now\n',
        _conformance("TestGenerations::test_what_arrived_is_there_for_the_next"),
    ),
    Fault(
        "inbox-item-again",
        "a cancellation whose inbox item is read again while it is consumed cancels once",
        "worker/runner/inbox.py",
        "            if item.id in self.consumed or item.id in self.recently_consumed:\n",
        "            if item.id in self.consumed:\n",
        ("tests/acceptance/test_cancellation.py::test_a_cancellation_that_is_read_twice_cancels_once",),
    ),
    # --- the outbox
    Fault(
        "deleted-before-the-answer",
        "a row of the outbox is deleted after the broker has accepted the event, not before",
        "outbox/relay.py",
        "        try:\n            async with self._slots:\n",
        "        self._outcomes.append(Delivered(row.seq))\n        try:\n            async with self._slots:\n",
        ("tests/outbox/test_relay.py::test_a_row_is_there_until_the_broker_has_answered",),
    ),
    Fault(
        "claim-ignored",
        "two relays do not deliver the same row",
        "store/sqlite/queries/outbox.sql",
        "SET claimed_by = :claim, next_at = :until, attempts",
        "SET claimed_by = :claim, attempts",
        _conformance(
            "TestRelaying::test_two_relays_share_without_overlap",
            "TestRelaying::test_a_claim_says_whose_it_is_and_how_often_it_was_tried",
        ),
    ),
    Fault(
        "lost-claim-settles",
        "a relay that has lost its claim on a row cannot change it",
        "store/sqlite/queries/outbox.sql",
        "DELETE FROM romancy_outbox\nWHERE claimed_by = :claim AND seq IN",
        "DELETE FROM romancy_outbox\nWHERE seq IN",
        _conformance("TestRelaying::test_who_has_lost_a_claim_changes_nothing"),
    ),
    # --- HTTP access
    Fault(
        "path-spelling",
        "no other spelling of a path bypasses authentication",
        "http/gateway.py",
        '    if path.endswith("\\n") and not path.startswith("/cancel/"):\n',
        "    if False:\n",
        ("tests/http/test_access.py::test_no_other_spelling_of_a_path_needs_no_token",),
    ),
    Fault(
        "cross-origin-cookie",
        "a page of another origin cannot write with the cookie",
        "http/access.py",
        '        if scope["method"] not in _READING:\n',
        '        if scope["method"] not in _READING and not by_cookie:\n',
        ("tests/http/test_access.py::test_a_cookie_does_not_let_pages_of_others_write",),
    ),
    Fault(
        "cross-origin-login",
        "a page of another origin cannot write with credentials that an auth function accepts",
        "http/access.py",
        "    if foreign or headers.get(",
        "    if by_cookie and foreign or headers.get(",
        ("tests/http/test_access.py::test_pages_of_others_may_not_write_by_what_a_function_goes_by",),
    ),
    Fault(
        "dns-rebinding",
        "a foreign host name that resolves to this machine gives no access",
        "http/access.py",
        "    if not _is_local_name(headers, served_on):\n",
        "    if False:\n",
        ("tests/http/test_access.py::test_pages_in_a_browser_may_neither_steer_nor_send",),
    ),
    Fault(
        "expired-token",
        "an expired token gives no access",
        "auth.py",
        "        return next((token for token in matches if token.valid(now)), None)\n",
        "        return next(iter(matches), None)\n",
        ("tests/http/test_access.py::test_strangers_are_asked_who_they_are",),
    ),
    Fault(
        "database-error-exposed",
        "error messages of the database are not shown to unauthenticated callers",
        "http/gateway.py",
        "    if isinstance(error, StoreError | ConfigurationError) and caller.role is CallerRole.EVENTS:\n",
        "    if False:\n",
        ("tests/http/test_gateway.py::test_what_the_database_says_is_not_for_everybody",),
    ),
)
BY_NAME = {fault.name: fault for fault in FAULTS}
