"""Join: what a join code offers, its redemption, and the HTTP application and listener at which people redeem it.

Owns the HTTP API of joining, its limits, its pages and its TLS.
May import: fleet.
Start reading: ``joining.py`` for what a code does, ``app.py`` for the API.
"""
