"""Meters on a wired M-Bus: a stand-in for a serial port answers with frames of EN 13757-3."""

import pytest

from support.refusal import refused
from undertone_device.host.sources import mbus
from undertone_shared.errors import Invalid

ADDRESS = 7
RESET = bytes.fromhex("1040074716")
REQUEST = bytes.fromhex("105b076216")
HEADER = bytes.fromhex("78563412 2440 01 07 55 00 0000")
ENERGY = bytes.fromhex("0406") + (12345).to_bytes(4, "little")  # kWh, 32 bits
AT_THE_BILLING_DATE = bytes.fromhex("4406") + (11111).to_bytes(4, "little")
VOLUME = bytes.fromhex("0413") + (6789).to_bytes(4, "little")  # litres
FLOW, RETURN = bytes.fromhex("025a 1202"), bytes.fromhex("025e a501")  # tenths of a degree


def frame(*records):
    body = bytes([0x08, ADDRESS, 0x72]) + HEADER + b"".join(records)
    return b"\x68" + bytes([len(body), len(body)]) + b"\x68" + body + bytes([sum(body) & 255]) + b"\x16"


WHOLE = frame(AT_THE_BILLING_DATE, ENERGY, VOLUME, FLOW, RETURN)


class Bus:
    """Stands for a serial port, because pseudo-terminals have no even parity. Answers in turn."""

    def __init__(self, *exchanges):
        self._exchanges = list(exchanges)
        self._waiting = b""
        self.asked = []
        self.timeout = 0.0

    def open(self, path, baud, parity):
        assert (path, baud, parity) == ("/dev/ttyUSB0", 2400, "E")
        return self

    def write(self, question):
        self.asked.append(bytes(question))
        if self._exchanges and self._exchanges[0][0] == question:
            self._waiting += self._exchanges.pop(0)[1]

    def read(self, count):
        data, self._waiting = self._waiting[:count], self._waiting[count:]
        return data

    def reset_input_buffer(self):
        self._waiting = b""

    def close(self):
        pass


@pytest.fixture
def sampled(opened, monkeypatch):
    """Take a sample of the meter at address 7 on a bus."""

    def sample(bus, **fields):
        monkeypatch.setattr(mbus, "open_port", bus.open)
        return opened(kind="mbus", port="/dev/ttyUSB0", address=ADDRESS, **fields).sample(0)

    return sample


@pytest.mark.parametrize(
    ("fields", "reading"),
    [
        ({"unit": "Wh"}, 12345000),
        ({"unit": "m3", "scale": [1000, 1]}, 6789),
        ({"unit": "C", "scale": [10, 1]}, 530),
        ({"unit": "C", "scale": [10, 1], "record": 2}, 421),
    ],
)
def test_the_current_value_of_one_quantity(sampled, fields, reading):
    bus = Bus((RESET, b"\xe5"), (REQUEST, WHOLE))
    assert sampled(bus, **fields) == reading
    assert bus.asked == [RESET, REQUEST]


LARGE = bytes.fromhex("0406") + (1 << 21).to_bytes(4, "little")  # kWh: more than 2^30 Wh


def test_a_reading_that_is_too_large_says_which_field_makes_it_smaller(sampled):
    with pytest.raises(ValueError, match=r"beyond 30 bits: set a scale, such as \[1, 1000\]"):
        sampled(Bus((RESET, b"\xe5"), (REQUEST, frame(LARGE))), unit="Wh")
    assert sampled(Bus((RESET, b"\xe5"), (REQUEST, frame(LARGE))), unit="Wh", scale=[1, 1000]) == 1 << 21


def test_a_meter_that_wakes_late_is_asked_again(sampled):
    bus = Bus((RESET, b""), (RESET, b"\xe5"), (REQUEST, WHOLE))
    assert sampled(bus, unit="Wh") == 12345000


def test_no_bit_of_an_answer_may_change(sampled, monkeypatch):
    """If the length changes, the answer never ends. The fixed bytes or the checksum show any other change."""
    monkeypatch.setattr(mbus, "_ANSWER_SECONDS", 0)
    short = frame(ENERGY)
    for i in range(len(short)):
        for bit in range(8):
            damaged = bytearray(short)
            damaged[i] ^= 1 << bit
            with pytest.raises((OSError, ValueError)):
                sampled(Bus((RESET, b"\xe5"), (REQUEST, bytes(damaged))), unit="Wh")


def test_a_meter_without_the_quantity_is_an_error_with_its_unit(sampled):
    with pytest.raises(ValueError, match="current values in Wh is 0"):
        sampled(Bus((RESET, b"\xe5"), (REQUEST, frame(VOLUME))), unit="Wh")


def test_a_silent_bus_is_an_error_with_its_address(sampled):
    with pytest.raises(OSError, match="address 7"):
        sampled(Bus(), unit="Wh")


@pytest.mark.parametrize(
    ("fields", "facts"),
    [({"unit": "kWh"}, ("source.unit", "kWh")), ({"unit": "Wh", "address": 251}, ("source.address", "251"))],
)
def test_fields_are_checked(opened, fields, facts):
    with refused(*facts, error=Invalid):
        opened(**{"kind": "mbus", "port": "/dev/ttyUSB0", "address": 1} | fields)
