"""Samples from this machine: a file, a command, a list, a FIFO. Also: how a wrong source is refused."""

import json
import os
import sys
from pathlib import Path

import pytest

from undertone_device.host.sources import open_source
from undertone_device.setup.config import parse_config
from undertone_shared.errors import Invalid


def source(**fields):
    config = {"name": "m", "broker": {"host": "h"}, "campaigns": ["c"], "policy": "p", "state": "s", "source": fields}
    return parse_config(json.dumps(config).encode())


def test_a_file_is_read_anew_for_each_sample(tmp_path):
    path = tmp_path / "meter"
    meter = open_source(source(kind="file", path=str(path)))
    for content, expected in (("12\n", 12), ("-3", -3)):
        path.write_text(content, encoding="utf-8")
        assert meter.read(0) == expected
        assert meter.trouble == ""
    for content in ("", "1.5", "1e3", "9" * 70):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match=r"sample|literal"):
            meter.read(0)
    path.unlink()
    with pytest.raises(OSError, match="meter"):
        meter.read(0)
    assert meter.trouble.startswith("no sample: ")
    path.write_text("4", encoding="utf-8")
    assert (meter.read(0), meter.trouble) == (4, "")


def test_a_file_or_a_command_may_give_a_burst(tmp_path):
    path = tmp_path / "burst"
    path.write_text("12 15\n-3\n", encoding="utf-8")
    assert open_source(source(kind="file", path=str(path))).read(0) == [12, 15, -3]
    bounded = open_source(source(kind="file", path=str(path), range=[0, 20]))
    with pytest.raises(ValueError, match="sample"):
        bounded.read(0)
    command = [sys.executable, "-c", "print(*range(1000))"]
    assert open_source(source(kind="command", command=command)).read(0) == list(range(1000))
    path.write_text("12 x", encoding="utf-8")
    with pytest.raises(ValueError, match="no integer"):
        open_source(source(kind="file", path=str(path))).read(0)


def test_a_command_is_run_for_each_sample():
    command = [sys.executable, "-c", "print(42)"]
    assert open_source(source(kind="command", command=command, timeout_seconds=600)).read(0) == 42
    with pytest.raises(OSError, match="ended with code 1"):
        open_source(source(kind="command", command=["false"])).read(0)
    with pytest.raises(OSError, match="ended with code 7") as failed:
        open_source(source(kind="command", command=["sh", "-c", "exit 7", "--password=hush"])).read(0)
    assert "hush" not in str(failed.value)
    with pytest.raises(OSError, match="absent"):
        open_source(source(kind="command", command=["/absent"])).read(0)
    with pytest.raises(OSError, match="timed out"):
        open_source(source(kind="command", command=["sleep", "9"], timeout_seconds=1)).read(0)


def test_a_list_is_played_once(tmp_path):
    path = tmp_path / "list"
    path.write_text("1\n\n2\n", encoding="utf-8")
    recording = open_source(source(kind="list", path=str(path)))
    assert [recording.read(0), recording.read(0), recording.read(0)] == [1, 2, None]
    for content in ("", "1\nx\n"):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(Invalid, match=r"source\.path"):
            open_source(source(kind="list", path=str(path)))


def test_a_fifo_gives_what_has_arrived(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    lines = open_source(source(kind="fifo", path=str(path)))
    assert not lines.polled
    assert lines.arrived() == []
    with Path(path).open("w", encoding="utf-8") as writer:
        writer.write("1\n2\n1873.5 W kitchen\n3")
        writer.flush()
        assert lines.arrived() == [1, 2]
        # The trouble is shown in the status and the log, so it must not contain what was read.
        assert "a line is no integer" in lines.trouble
        assert "1873" not in lines.trouble
        assert "kitchen" not in lines.trouble
        writer.write("4\n")
        writer.flush()
        assert (lines.arrived(), lines.trouble) == ([34], "")
    lines.close()
    with pytest.raises(Invalid, match=r"source\.path"):
        open_source(source(kind="fifo", path=str(tmp_path / "none")))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "telepathy"}, "source.kind"),
        ({"kind": ["stdin"]}, "source.kind"),
        ({"seconds": 5}, "source.kind"),
        ({}, "source is missing or empty"),
        ({"kind": "file"}, "'path'"),
        ({"kind": "constant", "value": 1.5}, "source.value"),
        ({"kind": "command", "command": "ls"}, "source.command"),
        ({"kind": "command", "command": [""]}, r"source.command\[0\]"),
        ({"kind": "stdin", "path": "x"}, "unknown field 'path'"),
        ({"kind": "p1", "port": "/dev/x", "obis": []}, "source.obis"),
        ({"kind": "p1", "port": "/dev/x", "obis": "1-0:1.8.0", "scale": [1.5, 1]}, "source.scale"),
        ({"kind": "sml", "port": "/dev/x", "obis": "1.8.0"}, "source.obis"),
        ({"kind": "sml", "port": "/dev/x", "obis": "1-0:1.8.0", "unit": "kWh"}, "source.unit"),
        ({"kind": "modbus-tcp", "host": "h", "slave": 1, "address": 0, "registers": 3}, "source.registers"),
        ({"kind": "modbus-tcp", "host": "h", "slave": 1, "address": 0, "form": "double"}, "source.form"),
        ({"kind": "modbus-tcp", "host": "h", "slave": 300, "address": 0}, "source.slave"),
        ({"kind": "home-assistant", "url": "ftp://h", "entity": "e", "token_file": "t"}, "source.url"),
        ({"kind": "home-assistant", "url": "http://", "entity": "e", "token_file": "t"}, "source.url"),
        ({"kind": "home-assistant", "url": "http://h:x", "entity": "e", "token_file": "t"}, "source.url"),
        ({"kind": "home-assistant", "url": "http://u:p@h", "entity": "e", "token_file": "t"}, "source.url"),
    ],
)
def test_a_source_that_does_not_fit_is_refused_by_its_field(fields, words):
    with pytest.raises(Invalid, match=words):
        open_source(source(**fields))


def test_a_path_is_in_the_configurations_folder(tmp_path):
    (tmp_path / "meter").write_text("5", encoding="utf-8")
    config = source(kind="file", path="meter")
    config.folder = str(tmp_path)
    assert open_source(config).read(0) == 5


def test_a_board_is_not_a_phone():
    with pytest.raises(Invalid, match=r"main\.py"):
        open_source(source(kind="board"))
