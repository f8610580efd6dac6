"""The calls by which a board's sensor.py reads a meter are those of docs/sensors.md."""

import re
import struct
import sys
from types import ModuleType
from typing import Any

import pytest

from support.guides import blocks
from support.micropython import REPO
from undertone_device.sensors import iec62056, sml

sys.path.append(str(REPO / "tests/device/sensors/both"))

from frames import OBIS_1_8_0, SML
from test_iec62056 import LINES, readout
from test_modbus import with_crc

PAGE = (REPO / "docs/sensors.md").read_text(encoding="utf-8")


class Line:
    """A serial line with a Modbus meter, which answers the question that it knows."""

    question = with_crc(b"\x01\x03" + struct.pack(">HH", 40, 2))
    answer = with_crc(b"\x01\x03\x04" + struct.pack(">f", 1234.5))

    def __init__(self, *_: int, **__: int):
        self.waiting = b"rest of an answer"

    def any(self) -> int:
        return len(self.waiting)

    def write(self, data: bytes) -> None:
        assert (data, self.waiting) == (self.question, b"")
        self.waiting = self.answer

    def read(self, number: int) -> bytes | None:
        data, self.waiting = self.waiting[:number], self.waiting[number:]
        return data or None


def test_the_sensor_py_for_modbus_reads_the_register(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = ModuleType("machine")
    machine.UART = Line  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "machine", machine)
    [program] = [text for text in blocks("sensors.md", "python") if "rtu_question" in text]
    names: dict[str, Any] = {}
    exec(program, names)
    assert names["read"]() == 1234500
    monkeypatch.setattr(Line, "answer", Line.answer[:-1] + b"?")
    with pytest.raises(ValueError, match="damaged"):
        names["read"]()
    monkeypatch.setattr(Line, "answer", b"")
    with pytest.raises(ValueError, match="damaged"):
        names["read"]()


def test_the_decoders_that_the_page_names_give_the_readings() -> None:
    [text] = re.findall(r"`meter = (Sml\(.*?\))`", PAGE)
    decoder = eval(text, {"Sml": sml.Sml})
    assert decoder.feed(SML) == sml.Sml(OBIS_1_8_0).feed(SML) != []
    for name in ("SIGN_ON", "answer_to", "Readout", "Telegram"):
        assert re.search(rf"`[^`]*\b{name}\b", PAGE)
        assert hasattr(iec62056, name)
    assert iec62056.Readout(("1.8.0",)).feed(readout(LINES)) == [123456]
    reply, baud = iec62056.answer_to(b"/LGZ5\\2ZMD\r\n")
    assert (len(reply), baud) == (6, 9600)
