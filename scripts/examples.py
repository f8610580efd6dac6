"""Write a device's example policy and configuration. Fields that need no value of their own have their defaults.

python scripts/examples.py     writes device/examples/policy.json and device.json; a test compares them with the parsers
"""

import json
from pathlib import Path
from typing import Any

from undertone_device.setup import config
from undertone_shared import policy_fields
from undertone_shared.policy import parse_policy

FOLDER = Path(__file__).parents[1] / "device" / "examples"
# Fields that only an owner knows; every other field has a default, or follows from these.
OWNERS = {
    "sensor": "energy",
    "measures": ["sum", "mean"],
    "cap": [2721, 1001],
    "slot_seconds": 1800,
    "theta": [100, 20000],
    "duration_seconds": 366 * 86400,
    "signers": ["d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"],
}
INSTALLERS: dict[str, Any] = {
    "name": "meter-17",
    "broker": {"host": "broker.example", "password_file": "password", "tls": {"ca": "ca.pem"}},
    "campaigns": ["load"],
    "policy": "policy.json",
    "state": "state",
    "source": {"kind": "file", "path": "/run/meter/energy_wh", "seconds": 60},
    "wifi": {"ssid": "a network", "password": "its password"},
}


def example_policy() -> dict[str, Any]:
    """Return every field of a policy in the parser's order. Raises Invalid if the parser refuses it."""
    read = parse_policy(json.dumps({"version": policy_fields.VERSION, **OWNERS}).encode())
    # If a field has neither a default nor a value in OWNERS, it follows from other fields, so its parsed value is used.
    return {
        name: OWNERS[name] if name in OWNERS else getattr(read, name) if default is None else default
        for name, default in policy_fields.default_fields().items()
    }


def example_config() -> dict[str, Any]:
    """Return every field of a configuration except the password, which a file holds here. Raises Invalid."""
    read = config.parse_config(json.dumps(INSTALLERS).encode())
    broker = {
        name: INSTALLERS["broker"].get(name, getattr(read.broker, name))
        for name in config._BROKER
        if name != "password"
    }
    publish = {"in_flight": read.in_flight, "spread_percent": read.spread_percent}
    shown = {**INSTALLERS, "broker": broker, "publish": publish}
    return {name: shown.get(name, getattr(read, name, None)) for name in config._FIELDS}


def text_of(fields: dict[str, Any]) -> str:
    """Return fields as JSON, one field per line."""
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items())
    return f"{{\n{lines}\n}}\n"


EXAMPLES = {"policy.json": example_policy, "device.json": example_config}

if __name__ == "__main__":
    for name, made in EXAMPLES.items():
        (FOLDER / name).write_text(text_of(made()), encoding="utf-8")
