"""The scenario, step by step, with its narration."""

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
from romancy.demo.external_services import (
    EMPTY_CARD,
    FORGETFUL,
    REQUEST_LOG,
    SLOW_CARD,
    ServiceRequest,
    WorkerReport,
    read_requests,
)
from romancy.demo.process import WorkerProcess, worker_process
from romancy.demo.records import InstanceRecord, Kill, RecordReader, open_records
from romancy.demo.shop import Confirmation, Order, Payment, checkout
from romancy.demo.terminal import Colour, Terminal, paint
from romancy.demo.worker import LEASE

_PAUSE_BEFORE_KILL = 1.0
"""Seconds between the missing response and the kill, so that the drawing has a visible bar."""

SURVIVOR, REFUSED = "order-1001", "order-1002"


class Scenario:
    """The demonstration, in its own folder."""

    def __init__(self, terminal: Terminal, folder: Path, *, forgetful: bool = False) -> None:
        self._terminal = terminal
        self._folder = folder
        self._database = str(folder / "shop.db")
        self._request_log = folder / "requests.jsonl"
        self._variables = {REQUEST_LOG: str(self._request_log), FORGETFUL: "1" if forgetful else ""}

    async def run(self) -> bool:
        """Run from the first order to the last check. Return False if a check fails."""
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
        return self._check(check_all(survivor, refused, read_requests(self._request_log)))

    def _introduce(self) -> None:
        write = self._terminal.write_paragraph
        self._terminal.line(paint("romancy: a worker dies, its work does not", Colour.STRONG))
        write(
            "A shop's checkout is a workflow: reserve, charge, pack, ship, notify. It runs in its own "
            "worker process; this process only starts orders and waits. They share one SQLite file."
        )

    # --- the steps

    async def _die(self, client: Client, records: RecordReader) -> tuple[WorkflowHandle[Confirmation], Kill]:
        write = self._terminal.write_paragraph
        self._terminal.heading(1, "An order arrives")
        async with self._worker("worker-1") as first:
            order = _order("teapot", Payment(source=SLOW_CARD, amount=Decimal("39.80")))
            handle = await client.start_workflow(checkout.with_options(instance_id=SURVIVOR), order)
            write(f"{SURVIVOR} is stored. Whatever happens now, it will be completed.")
            await first.expect("silence")
            attempt = await first.wait_for(records.open_attempt(SURVIVOR), "the record of its attempt")
            owner = timeline.worker_name(attempt.worker)
            write(f"In the database, {attempt.op} runs on {owner}, and no result is recorded.")
            await asyncio.sleep(_PAUSE_BEFORE_KILL)
            self._terminal.heading(2, f"kill -9 {first.pid}")
            await first.kill()
            kill = Kill(SystemClock().now(), attempt)
            write(
                "worker-1 is gone, in the middle of the charge: no exception, no clean-up. The customer's money has "
                "been taken, but that is not recorded. Charging again would take it twice; giving up would keep it "
                "without a delivery."
            )
        return handle, kill

    async def _survive(self, second: WorkerProcess, handle: WorkflowHandle[Confirmation]) -> None:
        write = self._terminal.write_paragraph
        write(
            f"When worker-1 has sent no heartbeat for {LEASE:g} s, worker-2 takes over. It replays the recorded "
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
        write(f"{REFUSED} is paid with a gift card and a credit card, and the credit card is empty.")
        try:
            await second.wait_for(handle.result(), f"the end of {REFUSED}")
        except WorkflowFailedError as error:
            write(f"{REFUSED} has failed ({error.__cause__}), and its completed steps are compensated, the last one first.")

    def _draw(self, records: list[InstanceRecord]) -> None:
        self._terminal.heading(5, "What happened, from the recorded history")
        for record in records:
            self._terminal.lines(timeline.draw(record, self._terminal.width))
            self._terminal.line()
        for line in timeline.LEGEND:
            self._terminal.line(paint(f"   {line}", Colour.PALE))

    def _check(self, checks: list[Check]) -> bool:
        self._terminal.heading(6, "Was anything lost, or done twice?")
        self._show_requests(read_requests(self._request_log))
        for check in checks:
            if check.fault:
                self._terminal.line(f"   {paint('✗', Colour.FAILED)} {check.guarantee}")
                self._terminal.write_paragraph(f"FAILED: {check.fault}", "     ")
            else:
                self._terminal.line(f"   {paint('✓', Colour.OK)} {check.guarantee}")
        return not any(check.fault for check in checks)

    def _show_requests(self, lines: list[ServiceRequest]) -> None:
        self._terminal.write_paragraph("The external services' own log of every request:")
        for line in lines:
            outcome = {"applied": "done", "repeated": "known, not repeated", "declined": "declined"}[line.outcome]
            colour = {"applied": Colour.OK, "repeated": Colour.RETRY, "declined": Colour.FAILED}[line.outcome]
            prefix = f"{timeline.worker_name(line.worker):<9} {line.action:<8}"
            self._terminal.line(f"   {paint(prefix, Colour.PALE)} {line.key:<34} {paint(outcome, colour)}")
        self._terminal.line()

    # --- worker processes

    @asynccontextmanager
    async def _worker(self, label: str) -> AsyncGenerator[WorkerProcess]:
        if label == "worker-2":
            self._terminal.heading(3, "Another worker takes over")
        async with worker_process(label, self._folder, self._database, self._variables, self._show_report) as worker:
            self._terminal.write_paragraph(f"{label} has started (process {worker.pid}).")
            yield worker

    def _show_report(self, report: WorkerReport) -> None:
        """Print a report of a worker."""
        if report.kind != "ready":
            prefix = paint(f"{timeline.worker_name(report.worker)} │", Colour.WORK)
            after = _AFTER[report.line.outcome] if report.line is not None else ""
            self._terminal.line(f"     {prefix} {report.action:<8} {report.text}{after}")


_AFTER = {
    "applied": "",
    "repeated": paint(": known, not repeated", Colour.RETRY),
    "declined": paint(": declined", Colour.FAILED),
}


def _order(item: str, *payments: Payment) -> Order:
    return Order(item=item, quantity=1, payments=list(payments), email="ada@example.org")
