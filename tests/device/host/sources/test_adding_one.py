"""A new kind of source needs one module and one line. The module that is added here is the guide's example."""

import importlib.util
import sys
from pathlib import Path

import pytest

from support.micropython import REPO
from undertone_device.host import sources
from undertone_shared.errors import Invalid

EXAMPLE = Path(__file__).with_name("thermometer.py")
ANSWER = "72 01 4b 46 7f ff 0e 10 57 : crc=57 {}\n72 01 4b 46 7f ff 0e 10 57 t=23125\n"


@pytest.fixture
def added(monkeypatch):
    """The guide's example among the sources, with its line in the table."""
    name = f"{sources.__name__}.thermometer"
    spec = importlib.util.spec_from_file_location(name, EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sources, "MODULES", [*sources.MODULES, "thermometer"])


def test_a_new_source_is_one_module_and_one_line(added, opened, tmp_path):
    place = tmp_path / "28-0316a2"
    place.mkdir()
    (place / "w1_slave").write_text(ANSWER.format("YES"), encoding="utf-8")
    source = opened(kind="thermometer", serial="0316a2", folder=str(tmp_path), range=[-55000, 125000])
    assert source.read(0) == 23125
    (place / "w1_slave").write_text(ANSWER.format("NO"), encoding="utf-8")
    with pytest.raises(ValueError, match="checksum"):
        source.read(0)
    (place / "w1_slave").write_text(ANSWER.format("YES").replace("23125", "125001"), encoding="utf-8")
    with pytest.raises(ValueError, match="out of bounds"):
        source.read(0)
    (place / "w1_slave").unlink()
    with pytest.raises(OSError, match="w1_slave"):
        source.read(0)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "'serial'"),
        ({"serial": 7}, r"source\.serial is 7"),
        ({"serial": "0316a2", "pin": 4}, "unknown field 'pin'"),
        ({"serial": "0316a2", "twice": True}, "unknown field 'twice'"),
    ],
)
def test_a_new_source_has_fields_of_its_own(added, opened, fields, named):
    with pytest.raises(Invalid, match=named):
        opened(kind="thermometer", **fields)


def test_without_the_line_its_kind_is_unknown(opened):
    with pytest.raises(Invalid, match="'thermometer', expected one of command, constant, "):
        opened(kind="thermometer", serial="0316a2")


def test_a_kind_that_two_modules_describe_is_an_error(monkeypatch):
    monkeypatch.setattr(sources, "MODULES", [*sources.MODULES, "files"])
    with pytest.raises(ValueError, match="two modules describe the source command, constant"):
        sources.kinds()


def test_the_guide_has_the_module_as_it_is_tried_here():
    guide = (REPO / "docs/sensors.md").read_text(encoding="utf-8")
    assert EXAMPLE.read_text(encoding="utf-8") in guide
