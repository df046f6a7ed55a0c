"""What happens, one act after another, told in plain words while it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

from romancy import Client, WorkflowFailedError, WorkflowHandle
from romancy.clock import SystemClock
from romancy.demo import timeline
from romancy.demo.checks import Check, check_all
from romancy.demo.external_services import EMPTY_CARD, FORGETFUL, LEDGER, SLOW_CARD, LedgerLine, WorkerReport, read_ledger
from romancy.demo.process import WorkerProcess, worker_process
from romancy.demo.records import InstanceRecord, Kill, RecordReader, open_records
from romancy.demo.shop import Confirmation, Order, Payment, checkout
from romancy.demo.terminal import Colour, Terminal, paint
from romancy.demo.worker import LEASE

_PAUSE_BEFORE_KILL = 1.0
"""Seconds between the bank's silence and the kill. Only for the eye: the drawing gets a bar one can see."""

SURVIVOR, REFUSED = "order-1001", "order-1002"


class Story:
    """The demonstration, in a folder of its own."""

    def __init__(self, terminal: Terminal, folder: Path, *, forgetful: bool = False) -> None:
        self._terminal = terminal
        self._folder = folder
        self._database = str(folder / "shop.db")
        self._ledger = folder / "ledger.jsonl"
        self._surroundings = {LEDGER: str(self._ledger), FORGETFUL: "1" if forgetful else ""}

    async def run(self) -> bool:
        """From the first order to the last check. False: a promise was broken."""
        self._introduce()
        async with (
            Client(self._database, workflows=[checkout]) as client,
            open_records(client, self._database) as records,
        ):
            handle, kill = await self._die(client, records)
            async with self._worker("worker-2") as second:
                await self._survive(second, handle)
                await self._refuse(second, client)
                await second.stop()
            survivor = await records.read(SURVIVOR, kill)
            refused = await records.read(REFUSED)
        self._draw([survivor, refused])
        return self._check(check_all(survivor, refused, read_ledger(self._ledger)))

    def _introduce(self) -> None:
        write = self._terminal.write_paragraph
        self._terminal.line(paint("romancy: a worker dies, its work does not", Colour.STRONG))
        write(
            "A shop's checkout is a workflow: reserve, charge, pack, ship, notify. It runs in a worker process of its "
            "own; this process only starts orders and waits. Between them: one SQLite file."
        )

    # --- the acts

    async def _die(self, client: Client, records: RecordReader) -> tuple[WorkflowHandle[Confirmation], Kill]:
        write = self._terminal.write_paragraph
        self._terminal.heading(1, "An order arrives")
        async with self._worker("worker-1") as first:
            order = _order("teapot", Payment(source=SLOW_CARD, amount=Decimal("39.80")))
            handle = await client.start_workflow(checkout.with_options(instance_id=SURVIVOR), order)
            write(f"{SURVIVOR} is stored. Whatever happens now, it will be carried out.")
            await first.expect("silence")
            attempt = await first.wait_for(records.open_attempt(SURVIVOR), "the record of its attempt")
            owner = timeline.worker_name(attempt.worker)
            write(f"The database knows: {attempt.op} runs on {owner}; no result is recorded.")
            await asyncio.sleep(_PAUSE_BEFORE_KILL)
            self._terminal.heading(2, f"kill -9 {first.pid}")
            await first.kill()
            kill = Kill(SystemClock().now(), attempt)
            write(
                "worker-1 is gone, in the middle of the charge: no exception, no clean-up. The customer's money has "
                "been taken, and nobody wrote that down. Charging again would take it twice; giving up would keep it "
                "for nothing."
            )
        return handle, kill

    async def _survive(self, second: WorkerProcess, handle: WorkflowHandle[Confirmation]) -> None:
        write = self._terminal.write_paragraph
        write(
            f"When worker-1 has given no sign of life for {LEASE:g} s, worker-2 takes over. It replays the recorded "
            "steps without running them, and runs the charge again, under the same idempotency key."
        )
        confirmation = await second.wait_for(handle.result(), f"the end of {SURVIVOR}")
        receipts = ", ".join(receipt.number for receipt in confirmation.receipts)
        write(f"{SURVIVOR} has completed: receipt {receipts}, parcel {confirmation.tracking}.")

    async def _refuse(self, second: WorkerProcess, client: Client) -> None:
        write = self._terminal.write_paragraph
        self._terminal.heading(4, "An order that cannot be paid")
        gift = Payment(source="gift card", amount=Decimal("20.00"))
        order = _order("samovar", gift, Payment(source=EMPTY_CARD, amount=Decimal("229.00")))
        handle = await client.start_workflow(checkout.with_options(instance_id=REFUSED), order)
        write(f"{REFUSED} is paid with a gift card and a credit card, and the latter is empty.")
        try:
            await second.wait_for(handle.result(), f"the end of {REFUSED}")
        except WorkflowFailedError as error:
            write(f"{REFUSED} has failed ({error.__cause__}), and what it had done is undone, the last step first.")

    def _draw(self, records: list[InstanceRecord]) -> None:
        self._terminal.heading(5, "What happened, from the recorded history")
        for record in records:
            self._terminal.lines(timeline.draw(record, self._terminal.width))
            self._terminal.line()
        for line in timeline.LEGEND:
            self._terminal.line(paint(f"   {line}", Colour.PALE))

    def _check(self, checks: list[Check]) -> bool:
        self._terminal.heading(6, "Was anything lost, or done twice?")
        self._show_ledger(read_ledger(self._ledger))
        for check in checks:
            if check.fault:
                self._terminal.line(f"   {paint('✗', Colour.FAILED)} {check.promise}")
                self._terminal.write_paragraph(f"BROKEN: {check.fault}", "     ")
            else:
                self._terminal.line(f"   {paint('✓', Colour.OK)} {check.promise}")
        return not any(check.fault for check in checks)

    def _show_ledger(self, lines: list[LedgerLine]) -> None:
        self._terminal.write_paragraph("The outside world's own ledger, every request it ever got:")
        for line in lines:
            outcome = {"applied": "done", "repeated": "known, not done again", "declined": "declined"}[line.outcome]
            colour = {"applied": Colour.OK, "repeated": Colour.RETRY, "declined": Colour.FAILED}[line.outcome]
            who = f"{timeline.worker_name(line.worker):<9} {line.action:<8}"
            self._terminal.line(f"   {paint(who, Colour.PALE)} {line.key:<34} {paint(outcome, colour)}")
        self._terminal.line()

    # --- its means

    @asynccontextmanager
    async def _worker(self, label: str) -> AsyncGenerator[WorkerProcess]:
        if label == "worker-2":
            self._terminal.heading(3, "Another worker takes over")
        async with worker_process(label, self._folder, self._database, self._surroundings, self._show_report) as worker:
            self._terminal.write_paragraph(f"{label} has started (process {worker.pid}).")
            yield worker

    def _show_report(self, report: WorkerReport) -> None:
        """What a worker does, as it does it."""
        if report.kind != "ready":
            who = paint(f"{timeline.worker_name(report.worker)} │", Colour.WORK)
            after = _AFTER[report.line.outcome] if report.line is not None else ""
            self._terminal.line(f"     {who} {report.action:<8} {report.text}{after}")


_AFTER = {
    "applied": "",
    "repeated": paint(": known, not done again", Colour.RETRY),
    "declined": paint(": declined", Colour.FAILED),
}


def _order(item: str, *payments: Payment) -> Order:
    return Order(item=item, quantity=1, payments=list(payments), email="ada@example.org")
