"""Web: the page and the HTTP API. Both read stores. Only the actions of somebody who has logged in change them.

This room owns the application, its static files, live updates and the API's description. It needs the extra ``web``.
May import: base, campaign, counts, estimate, ingest, mqtt, server, settings, store.
Start reading: ``site.py`` for what is shown, ``app.py`` for the routes.
"""
