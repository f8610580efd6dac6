"""Join: where people redeem a join code: what a code offers, its redemption, the HTTP application and its listener.

Owns the HTTP API of joining, its limits, its pages and its TLS.
May import: fleet.
Start reading: ``joining.py`` for what a code does, ``app.py`` for the API.
"""
