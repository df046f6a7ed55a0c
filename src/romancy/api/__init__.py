"""The management API: what a `Manager` can be asked, over HTTP, below `/api/v1`.

    request ──► ingress: who calls, what they may ──► routes: read the question ──► Manager ──► JSON
                                                         │400/415                      │404/409/503
    table     every path: method, question, answer, who may: routes and the OpenAPI document come from it
    questions what is asked, checked          shapes    answers that `manage.records` has no shape for
    watch     one look at the database for all who watch          stream   what watchers are told, as server-sent events
    login     a token becomes a cookie

Instance ids are arbitrary text, so they never stand in a path. May import `manage` and what stands below it.
"""
