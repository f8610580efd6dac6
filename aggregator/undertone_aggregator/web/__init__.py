"""Web: the page and the HTTP API. They read stores and never write them; actions need a login.

Owns the application, its static files, live news, the API's description. Needs the extra ``web``.
May import: base, campaign, counts, estimate, mqtt, server, settings, store.
Start reading: ``site.py`` for what is shown, ``app.py`` for the routes.
"""
