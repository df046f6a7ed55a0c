"""What must hold when everybody is at rest."""

from __future__ import annotations

from tests.explore.participants import Spec, listen, seen
from tests.explore.scenario import Scene
from tests.model.messaging import Party

from romancy import DeterminismViolationError
from romancy.model.instance import LoadedInstance
from romancy.model.status import Status
from romancy.testing import RecordedHistory, replay_history


async def check(scene: Scene) -> None:
    """Enter into the books whatever is wrong."""
    books = scene.books
    for id in scene.acknowledged:
        if id not in books.sent:
            books.fault(f"{id} was acknowledged, and was never said")
    for spec in scene.cast.listeners:
        await _check_listener(scene, spec["id"])
    for spec in scene.cast.speakers:
        await _check_speaker(scene, spec)


async def _check_listener(scene: Scene, id: str) -> None:
    books = scene.books
    party, loaded = books.parties[id], await scene.stage.load(id)
    for op, ask in party.waits.items():
        lying = next(books.available(id, ask), None)
        if lying is not None:
            books.fault(f"{id} waits for {op}, and {lying.id} lies there")
    _check_rest(scene, party, loaded)
    pending = _replay(scene, loaded)
    if missing := set(pending) - set(loaded.waits):
        books.fault(f"{id} waits for {sorted(missing)}, and nobody knows")
    if seen[id] != party.got:
        books.fault(f"{id} has heard {seen[id]}; it was given {party.got}")
    if loaded.row.status is Status.COMPLETED:
        await _check_result(scene, id, party)


def _check_rest(scene: Scene, party: Party, loaded: LoadedInstance) -> None:
    """Whoever has not ended is in nobody's hands, and something will wake it."""
    row, books = loaded.row, scene.books
    if party.ended != row.status.ended:
        books.fault(f"{row.instance_id} is {row.status}")
    if row.status.ended:
        return
    if row.owner is not None or (row.wake_at is None and not loaded.waits):
        books.fault(f"{row.instance_id} is {row.status}, and nothing will wake it: {row}")


def _replay(scene: Scene, loaded: LoadedInstance) -> tuple[str, ...]:
    """Run the body again, by its history: what it waits for. What it has heard is in `seen`."""
    row = loaded.row
    history = RecordedHistory(
        row.workflow, row.version, row.instance_id, row.generation, loaded.begun_at, loaded.input, loaded.history
    )
    try:
        replayed = replay_history(listen, history)
    except DeterminismViolationError as error:
        scene.books.fault(f"{row.instance_id} cannot be replayed: {error}")
        return ()
    return () if row.status.ended else replayed.pending


async def _check_result(scene: Scene, id: str, party: Party) -> None:
    stored = await scene.stage.store.get(id)
    assert stored is not None
    assert stored.output is not None
    result = listen.result.decode(stored.output)
    if result != party.got:
        scene.books.fault(f"{id} has returned {result}; it was given {party.got}")


async def _check_speaker(scene: Scene, spec: Spec) -> None:
    """It has ended, and said everything once. (Whoever it would send to may have ended.)"""
    books, id = scene.books, spec["id"]
    row = (await scene.stage.load(id)).row
    if row.status is not Status.COMPLETED:
        books.fault(f"{id} is {row.status}: {row}")
    said = [sent.data["n"] for sent in books.sent.values() if sent.data["by"] == id]
    wanted = [item["data"]["n"] for item in spec["items"] if item["how"] != "to"]
    if [number for number in said if number in wanted] != wanted:
        books.fault(f"{id} was to say {wanted}, and said {said}")
