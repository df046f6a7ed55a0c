"""The HTTP interface of an app: it accepts CloudEvents, reports health and metrics, and checks every caller.

    request ──► access ──► body, bounded ──► cloudevents: Event records ──► accept_events ──► 202
                  │401/403      │413/408            │400/415                      │503

    gateway       the ASGI application, the only module here that imports Starlette
    lazy_gateway  imports the gateway when the app serves for the first time
    lifespan      starts and stops the app
    access        decides whether a caller may make a request
    body          reads request bodies within bounds of size and time
    cloudevents   parses events; depends on no HTTP server
    strict_json   parses JSON from untrusted senders
    problems      the errors of requests, with their statuses
    headers       response headers that restrict browsers
    types         the types of ASGI, and what this package needs of an app
    wsgi          runs an ASGI application under a WSGI server

An event is stored before it is acknowledged. The API and the viewer add their paths as `gateway.ExtraRoutes`.

May import `auth`, `metrics`, `model`, `errors` and `clock`. It never imports the worker: they share only the store.
"""
