"""Each board family and each sensor has its page, and what a page configures is a configuration."""

import json
import re

import pytest

from support.micropython import REPO
from undertone_device.host.sources import kinds, parse_fields
from undertone_device.setup.config import parse_config

SENSORS = sorted((REPO / "docs/sensors").glob("*.md"))
_SOURCE = re.compile(r'`(\{"kind": .*?\})`')
_BASE = {"name": "m", "broker": {"host": "h"}, "campaigns": ["c"], "policy": "p", "state": "s"}


@pytest.mark.parametrize("page", SENSORS, ids=lambda page: page.stem)
def test_what_a_page_configures_is_accepted(page):
    shown = _SOURCE.findall(page.read_text("utf-8").replace("\n", " "))
    assert shown
    for text in shown:
        source = json.loads(text)
        config = parse_config(json.dumps({**_BASE, "source": source}).encode())
        assert parse_fields(config)


def test_every_kind_of_source_has_a_page():
    pages = " ".join(page.read_text("utf-8") for page in SENSORS)
    assert [kind for kind in kinds() if f'"kind": "{kind}"' not in pages and f"`{kind}`" not in pages] == []


def test_every_port_has_a_page():
    text = (REPO / "tests/device/board/stand_in/machine.py").read_text("utf-8")
    ports = re.findall(r'^    "(\w+)": Port\(', text, re.MULTILINE)
    assert len(ports) == 5
    assert {path.stem for path in (REPO / "docs/boards").glob("*.md")} == set(ports)
