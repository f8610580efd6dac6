"""The page and the HTTP API: what the stores say, read-only; actions only behind a login. Needs the extra ``web``."""
