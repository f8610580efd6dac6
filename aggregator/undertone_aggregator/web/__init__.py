"""Web: the page and the HTTP API. They read stores and never write them; actions need a login.

This room owns the application, its static files, live updates and the API's description. It needs the extra ``web``.
"""
