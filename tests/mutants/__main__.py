"""`make mutants`: plant every fault, or those that are named, and see that it is caught.

python -m tests.mutants [NAME...]
"""

from __future__ import annotations

import sys
import time

from tests.mutants.faults import BY_NAME, FAULTS
from tests.mutants.project_copy import caught, garden, sound


def main(names: list[str]) -> int:
    """0 if every fault was caught."""
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        print(f"There is no fault {', '.join(unknown)}. There are: {', '.join(BY_NAME)}.", file=sys.stderr)
        return 2
    faults = [BY_NAME[name] for name in names] or list(FAULTS)
    width = max(len(fault.name) for fault in faults)
    escaped: list[str] = []
    with garden() as place:
        print("The tests without a fault ...", flush=True)
        trouble = sound(place, faults)
        if trouble is not None:
            print(trouble, file=sys.stderr)
            return 1
        for fault in faults:
            began = time.monotonic()
            why = caught(place, fault)
            escaped += [] if why is None else [fault.name]
            took = time.monotonic() - began
            print(f"{fault.name:{width}}  {why or 'caught'}  ({took:.1f} s)  {fault.promise}", flush=True)
    print(f"{len(faults) - len(escaped)} of {len(faults)} faults were caught.")
    if escaped:
        print(f"Not caught: {', '.join(escaped)}.", file=sys.stderr)
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
