"""Measures a channel with competing workers: messages per second."""

from __future__ import annotations

from functools import partial
from statistics import median

from benchmarks.child import Figures, run
from benchmarks.interleave import interleave
from benchmarks.report import save, table

WORKERS, SENDERS = 10, 20


def measure(*, quick: bool, rounds: int | None = None) -> None:
    """Send and receive, print the table, save the figures."""
    messages, rounds = (2_000, rounds or 1) if quick else (20_000, rounds or 3)
    results = interleave(
        "published and received at once, messages/s", {"romancy": partial(_compete, messages)}, rounds, "both"
    )
    found = results["romancy"]
    table(
        f"A channel with {WORKERS} competing workers, {messages:,} messages, {SENDERS} senders: medians of {rounds} rounds",
        ["", "messages/s"],
        [
            ["published without subscribers", median(one["publish"] for one in found)],
            ["received from the pool", median(one["receive"] for one in found)],
            ["published and received at once", median(one["both"] for one in found)],
        ],
        ["One process. A message is durable when publish returns, and received once it is in the history of a worker."],
    )
    save("channel", {"messages": messages, "rounds": found}, [], quick=quick)


def _compete(messages: int, file: str) -> Figures:
    load = {"messages": messages, "workers": WORKERS, "senders": SENDERS}
    return run("romancy_channel", {"task": "compete", "database": file, **load})
