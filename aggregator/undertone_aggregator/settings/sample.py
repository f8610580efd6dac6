"""The sample configuration: every option with its help, and with its default or an example. `options` defines them."""

from undertone_aggregator.settings.config import SECTIONS
from undertone_aggregator.settings.options import sample

_EXAMPLES: dict[str, dict[str, str]] = {
    "broker": {
        "access": '"access"',
        "password_file": '"aggregator.password"',
        "ca_file": '"ca.crt"',
        "certificate": '"tls/server.crt"',
        "key": '"tls/server.key"',
        "reached_as": '"meters.example.org"',
        "websocket": '"0.0.0.0:8443"',
        "connections": "50000",
        "websocket_url": '"wss://broker.example.org:8443/mqtt"',
    },
    "store": {},
    "campaign": {
        "name": '"meters"',
        "title": '"Electricity of a home"',
        "sensor": '"load"',
        "unit": '"Wh"',
        "window": '"24h"',
        "bound": "10000",
        "epsilon": "1",
        "start": '"now"',
        "theta_max": "5000",
        "reach": "1.25",
        "cohort_seed": '"000102030405060708090a0b0c0d0e0f"',
        "groups": '"groups.csv"',
        "holidays": '"GB-SCT"',
        "succeeds": '"last-year"',
    },
    "landing": {"folder": '"landing"'},
    "outlet": {
        "host": '"broker.example"',
        "user": '"aggregator"',
        "password_file": '"outlet.password"',
        "ca_file": '"ca.crt"',
    },
    "server": {
        "home_assistant": '"homeassistant"',
        "alerts": '"alerts.urls"',
        "health": '"127.0.0.1:9464"',
        "page": '"127.0.0.1:8080"',
        "page_token": '"page.token"',
    },
    "join": {
        "listen": '"0.0.0.0:8444"',
        "url": '"https://meters.example.org:8444"',
        "operator": '"Energy cooperative of Example"',
        "contact": '"energy@meters.example.org"',
        "certificate": '"tls/public.crt"',
        "key": '"tls/public.key"',
    },
    "stream": {"theta": "5000", "slew": "0.05", "share": "0.75", "round_epsilon": "0.2"},
}


def sample_tables(*names: str) -> str:
    """Return the tables of these names, as TOML with every option, its help, and its default or an example."""
    return "\n".join(sample(SECTIONS[name], name, _EXAMPLES[name]) for name in names)
