"""HTTP in: what comes over the network becomes records, is stored, and only then acknowledged.

    request ──► access ──► body, bounded ──► cloudevents: Event records ──► accept_events ──► 202
                  │401/403      │413/408            │400/415                      │503

`types` says what ingress needs of an app and of ASGI; `entrance` is the way in for the app. `cloudevents` and `jsontext`
turn bytes into records and know no HTTP server. `access` decides who may call, `headers` what browsers may do with the
answer. `asgi` is the only module here that knows Starlette; it takes `More` paths from those who stand above. `wsgi` runs
any ASGI application under a WSGI server.

May import `auth` and whatever stands below `authoring`. It never imports the worker: they meet in the store.
"""
