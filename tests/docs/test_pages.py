"""Each family of boards has its row and each sensor its section, and the settings that they show are valid."""

import json
import re

import pytest

from support.micropython import REPO
from undertone_device.host.sources import kinds, parse_fields
from undertone_device.setup.config import parse_config

SENSORS = (REPO / "docs/sensors.md").read_text("utf-8")
_SOURCE = re.compile(r'`(\{"kind": .*?\})`')
_BASE = {"name": "m", "broker": {"host": "h"}, "campaigns": ["c"], "policy": "p", "state": "s"}


@pytest.mark.parametrize("shown", _SOURCE.findall(SENSORS.replace("\n", " ")))
def test_what_the_page_configures_is_accepted(shown):
    config = parse_config(json.dumps({**_BASE, "source": json.loads(shown)}).encode())
    assert parse_fields(config)


def test_every_kind_of_source_has_a_section():
    assert [kind for kind in kinds() if f'"kind": "{kind}"' not in SENSORS and f"`{kind}`" not in SENSORS] == []


def test_every_port_has_a_row():
    text = (REPO / "tests/device/board/stand_in/machine.py").read_text("utf-8")
    ports = re.findall(r'^    "(\w+)": Port\(', text, re.MULTILINE)
    assert len(ports) == 5
    page = (REPO / "docs/boards.md").read_text("utf-8").partition("## 1. ")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| [^|]+ \| `(\w+)` \|", page, re.MULTILINE)) == sorted(ports)
