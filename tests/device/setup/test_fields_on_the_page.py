"""The table of device/README.md has every field of device.json that the device accepts, and each default."""

import ast
import json
import re
from typing import Any

import pytest

from support.micropython import REPO
from undertone_device.setup import config
from undertone_device.setup.config import DeviceConfig, parse_config
from undertone_shared.errors import Invalid

TEXT = (REPO / "device/README.md").read_text(encoding="utf-8").partition("## The fields of device.json\n")[2]
ROWS = dict(re.findall(r"^\| `([\w.]+)` \| .* \| (.+) \|$", TEXT.partition("\n## ")[0], re.MULTILINE))
NEEDED = {
    "name": "meter-17",
    "broker": {"host": "broker.example"},
    "campaigns": ["load"],
    "policy": "policy.json",
    "state": "state",
}


def accepted() -> set[str]:
    """The fields that the calls of ``check_object`` in config.py allow, with those of ``source`` that it reads."""
    found = {"source.kind", "source.seconds"}
    with open(config.__file__, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "check_object":
            where, value, *lists = call.args
            prefix = ast.literal_eval(where) + "."
            for fields in lists:
                # The objects `groups` and `source` may have any fields, so their own are the optional ones.
                if ast.dump(fields) != ast.dump(value):
                    names = vars(config)[fields.id] if isinstance(fields, ast.Name) else ast.literal_eval(fields)
                    found |= {prefix.removeprefix("the configuration.") + name for name in names}
    return found


def test_the_table_has_every_field_and_no_other() -> None:
    assert sorted(ROWS) == sorted(accepted())


def parsed(**changes: Any) -> DeviceConfig:
    return parse_config(json.dumps(NEEDED | changes).encode())


def test_the_table_has_the_defaults() -> None:
    plain = parsed()
    defaults = {
        "broker.keepalive": plain.broker.keepalive,
        "prefix": plain.prefix,
        "groups": plain.groups,
        "outbox": plain.outbox,
        "counter_modulus": plain.counter_modulus,
        "source": plain.source,
        "source.seconds": plain.sample_seconds,
        "publish.in_flight": plain.in_flight,
        "publish.spread_percent": plain.spread_percent,
        "ntp": plain.ntp,
    }
    assert {name: ROWS[name].strip("`") for name in defaults} == {name: str(each) for name, each in defaults.items()}
    encrypted = parsed(broker={"host": "broker.example", "tls": {}}).broker.port
    assert ROWS["broker.port"] == f"{encrypted} with `tls`, {plain.broker.port} without"
    assert plain.broker.user == plain.name


@pytest.mark.parametrize("name", [name for name, default in ROWS.items() if default == "needed" and "." not in name])
def test_a_field_that_the_table_calls_needed_is_needed(name: str) -> None:
    with pytest.raises(Invalid):
        parse_config(json.dumps({each: value for each, value in NEEDED.items() if each != name}).encode())


def test_the_needed_fields_are_all_in_the_table() -> None:
    assert {name for name, default in ROWS.items() if default == "needed"} == {*NEEDED, "broker.host"}
