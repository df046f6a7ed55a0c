"""The management API: the calls of a `Manager` over HTTP, below `/api/v1`.

    request ──► http: check the caller ──► routes: validate the request ──► Manager ──► JSON
                      │401/403                      │400/415                   │404/409/503

    endpoints  the table of all endpoints, from which the routes, the OpenAPI document and the access rules are made
    requests   the parameters and bodies of requests, with their validation
    responses  the responses that are not records of `admin.records`
    routes     the routes on Starlette
    openapi    the OpenAPI document
    watcher    polls the database once for all clients that watch instances
    sse        sends changes to these clients, as server-sent events
    login      exchanges a token for a session cookie
    mount      combines the API, the login and the viewer for the gateway

Instance ids are arbitrary text, so they are never part of a path. May import `admin` and the packages below it.
"""
