"""Plant every fault, or those that are named, and check that a test catches it: `python -m tests.mutants [NAME...]`.

`make mutants` runs it.
"""

from __future__ import annotations

import sys
import time

from tests.mutants.faults import BY_NAME, FAULTS
from tests.mutants.project_copy import baseline_failure, copy_project, escape_reason


def main(names: list[str]) -> int:
    """Plant the faults; returns 0 if every fault was caught."""
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        print(f"There is no fault {', '.join(unknown)}. There are: {', '.join(BY_NAME)}.", file=sys.stderr)
        return 2
    faults = [BY_NAME[name] for name in names] or list(FAULTS)
    width = max(len(fault.name) for fault in faults)
    escaped: list[str] = []
    with copy_project() as copy:
        print("The tests without a fault ...", flush=True)
        trouble = baseline_failure(copy, faults)
        if trouble is not None:
            print(trouble, file=sys.stderr)
            return 1
        for fault in faults:
            began = time.monotonic()
            why = escape_reason(copy, fault)
            escaped += [] if why is None else [fault.name]
            took = time.monotonic() - began
            print(f"{fault.name:{width}}  {why or 'caught'}  ({took:.1f} s)  {fault.promise}", flush=True)
    print(f"{len(faults) - len(escaped)} of {len(faults)} faults were caught.")
    if escaped:
        print(f"Not caught: {', '.join(escaped)}.", file=sys.stderr)
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
