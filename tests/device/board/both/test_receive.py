"""A board without files gets its files over the serial line, either all of them or none."""

import json
import os

from undertone_device.board.receive import LARGEST, parse_files, wait
from undertone_device.setup.config import read_config
from undertone_shared.errors import Invalid
from undertone_shared.policy_fields import VERSION

DEVICE = {
    "name": "meter-17",
    "broker": {"host": "broker.example", "password_file": "password", "tls": {"ca": "ca.crt"}},
    "campaigns": ["load"],
    "policy": "policy.json",
    "state": "state",
}
POLICY = {
    "version": VERSION,
    "sensor": "energy",
    "measures": ["sum"],
    "cap": [2721, 1001],
    "slot_seconds": 1800,
    "theta": [100, 20000],
    "duration_seconds": 31622400,
    "insecure": True,
}


def files(**changes):
    made = {
        "device.json": json.dumps(DEVICE),
        "policy.json": json.dumps(POLICY),
        "password": "secret\n",
        "ca.crt": "certificate\n",
    }
    made.update(changes)
    return {name: text for name, text in made.items() if text is not None}


class Lines:
    def __init__(self, *lines):
        self._lines = list(lines)

    def readline(self):
        return self._lines.pop(0) if self._lines else ""


def write(name, data):
    with open(name, "wb") as file:
        file.write(data)


def test_a_source_that_a_board_does_not_have_is_refused():
    for kind, taken in (("board", True), ("p1", False), ("telepathy", False), (7, False)):
        line = json.dumps(files(**{"device.json": json.dumps(dict(DEVICE, source={"kind": kind}))}))
        try:
            parse_files(line)
            refused = ""
        except Invalid as error:
            refused = str(error)
        assert taken == (refused == ""), kind
        assert taken or "source.kind is %r" % (kind,) in refused


def test_files_are_written_and_the_board_reads_them():
    said = []
    assert wait(Lines("noise\n", json.dumps(files()) + "\n"), write, said.append)
    assert "refused" in said[1]
    assert said[2] == "stored 4 files"
    assert read_config("device.json").name == "meter-17"
    assert sorted(os.listdir(".")) == ["ca.crt", "device.json", "password", "policy.json"]


def test_device_json_comes_last():
    order = []
    wait(Lines(json.dumps(files())), lambda name, data: order.append(name), lambda text: None)
    assert order[-1] == "device.json"


def test_lines_that_end_write_nothing():
    assert not wait(Lines(), write, lambda text: None)
    assert os.listdir(".") == []


def test_nothing_is_written_unless_all_is_right():
    broken = dict(POLICY)
    broken["cap"] = [1, 2]
    for line in (
        "",
        "[]",
        "{}",
        '{"a": "b"',
        json.dumps(files(**{"device.json": None})),
        json.dumps(files(**{"policy.json": json.dumps(broken)})),
        json.dumps(files(**{"device.json": "{}"})),
        json.dumps(files(password=None)),
        json.dumps(files(**{"ca.crt": None})),
        json.dumps(files(**{"../x": "y"})),
        json.dumps(files(**{".x": "y"})),
        json.dumps(files(x=5)),
        "x" * (LARGEST + 1),
    ):
        try:
            parse_files(line)
        except Invalid:
            continue
        raise AssertionError(line[:80])
