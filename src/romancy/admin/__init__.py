"""Operating it: what a person on call asks and does, one set of calls behind the API, the viewer and the command line.

    viewer ─┐
    api ────┼─► Manager ──► the store's port (looking), the client's calls (steering)
    cli ────┘

`records` are the shapes that all of them show. `filters` is the one grammar in which instances are looked for. `explain`
says why an instance stands where it stands, and what will move it. Nothing here knows HTTP or a terminal.
"""
