"""Decoders of meters: no bytes raise an error, and the work grows linearly with the bytes, however they are cut."""

import contextlib
import random
import struct
import sys
from collections.abc import Callable

import pytest
from frames import OBIS_1_8_0, SML, TELEGRAM

from undertone_device.sensors import crc, decimals, iec62056, lines, modbus, p1, sml

MODULES = {module.__file__ for module in (crc, decimals, iec62056, lines, modbus, p1, sml)}
PUSHED = b"/ESY5Q3DA1004\r\n\r\n1-0:1.8.0*255(00012345.123*kWh)\r\n!\r\n"
LINES = b"0.0.0(12345678)\r\n1.8.0(00123.456*kWh)\r\n!\r\n"
START = SML[:8]


def readout(text):
    check = 3
    for byte in text:
        check ^= byte
    return iec62056.even(b"\x02" + text + b"\x03" + bytes([check]))


DECODERS: dict[str, tuple[Callable, bytes, int]] = {
    "p1": (lambda: p1.P1(("1-0:1.8.1",)), TELEGRAM, 123456789),
    "sml": (lambda: sml.Sml(OBIS_1_8_0), SML, 79139),
    "readout": (lambda: iec62056.Readout(("1.8.0",)), readout(LINES), 123456),
    "telegram": (lambda: iec62056.Telegram(("1.8.0",)), iec62056.even(PUSHED), 12345123),
}
# Parts with which a frame of each grammar begins, repeats or nests. The tests repeat them many times.
HOSTILE = {
    "starts": START,
    "escapes": START[:4],
    "escape bytes and one": START + b"\x1b\x1b\x1b\x1b\x1b",
    "ends": START + b"\x1b\x1b\x1b\x1b\x1a\x00",
    "slashes": b"/",
    "telegrams without an end": b"/a\r\n\r\n1-0:1.8.1(1*kWh)\r\n",
    "ends of telegrams": b"/!",
    "texts": b"\x82",
    "text and end": b"\x82\x03",
    "line": b"(",
    "registers": iec62056.even(b"1.8.0(1*kWh)\r\n"),
    "zeros": bytes(1),
}


def lines_run(decoder, data, piece):
    """How many lines of the decoders' code run for the data, which come in pieces."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if frame.f_code.co_filename not in MODULES:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for i in range(0, len(data), piece):
            decoder.feed(data[i : i + piece])
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_the_work_is_linear(name, hostile):
    make = DECODERS[name][0]
    text = HOSTILE[hostile]
    for piece in (300, 4000):
        small, large = (lines_run(make(), (text * size)[:size], piece) for size in (1000, 4000))
        # Four times as many bytes may take four times the work, plus the checksum of one more frame.
        assert large < 6 * small, (small, large)
        assert large < 200 * 4000


def test_a_frame_of_nested_lists_and_long_numbers_is_bounded():
    for body in (b"\x71" * 4000, b"\x7f" * 4000, b"\xff" * 4000, b"\x5f" * 4000, b"\x8f\x0f\x0f" * 1300):
        whole = START + body + b"\x1b\x1b\x1b\x1b\x1a\x00"
        checked = crc.crc16(whole, crc.X25, 0xFFFF) ^ 0xFFFF
        decoder = sml.Sml(OBIS_1_8_0)
        assert lines_run(decoder, whole + bytes([checked & 255, checked >> 8]), 5000) < 300 * 4100
        assert decoder.bad == 1


def damaged(frame, source):
    """The frame with a few bytes changed, left out or doubled, or with bits flipped."""
    data = bytearray(frame)
    for _ in range(source.randrange(1, 6)):
        at = source.randrange(len(data))
        kind = source.randrange(4)
        if kind == 0:
            data[at] = source.randrange(256)
        elif kind == 1:
            del data[at : at + source.randrange(1, 9)]
            data += b"x"
        elif kind == 2:
            data[at:at] = data[at : at + source.randrange(1, 9)]
        else:
            data[at] ^= 1 << source.randrange(8)
    return bytes(data)


@pytest.mark.slow_but("sml")
@pytest.mark.parametrize("name", DECODERS)
def test_whatever_is_damaged_raises_nothing_and_hides_no_later_frame(name):
    make, frame, reading = DECODERS[name]
    source = random.Random(6205621)
    for _ in range(200):
        decoder = make()
        stream = damaged(frame, source) + frame
        readings = []
        piece = source.randrange(1, 50)
        for i in range(0, len(stream), piece):
            readings += decoder.feed(stream[i : i + piece])
        # The damaged frame may have swallowed the beginning of the frame after it. The frame after that one is read.
        assert decoder.feed(frame)[-1:] == [reading]
        assert all(isinstance(value, int) for value in readings)


def test_a_valid_checksum_around_anything_raises_nothing():
    """The CRC or BCC is right, so that the values themselves are parsed."""
    source = random.Random(51)
    for _ in range(200):
        body = damaged(SML[8:-8], source).replace(b"\x1b\x1b\x1b\x1b", b"")
        whole = START + body + bytes(-len(body) % 4) + b"\x1b\x1b\x1b\x1b\x1a" + bytes([-len(body) % 4])
        checked = crc.crc16(whole, crc.X25, 0xFFFF) ^ 0xFFFF
        sml.Sml(OBIS_1_8_0).feed(whole + bytes([checked & 255, checked >> 8]))
        text = damaged(TELEGRAM[1:-7], source).replace(b"/", b"").replace(b"!", b"")
        checked = crc.crc16(b"/" + text + b"!", crc.ARC, 0)
        p1.P1(("1-0:1.8.1", "0-1:24.2.1")).feed(b"/" + text + b"!%04X\r\n" % checked)
        text = bytes(byte & 0x7F for byte in damaged(LINES, source))
        iec62056.Readout(("1.8.0",)).feed(readout(text.replace(b"\x02", b"").replace(b"\x03", b"")))


def test_a_modbus_exception_is_told_apart_from_a_damaged_answer():
    register = modbus.Register(17, 3, 107, 2, "unsigned")
    frame = b"\x11\x83\x02"
    whole = frame + struct.pack("<H", crc.crc16(frame, crc.MODBUS, 0xFFFF))
    with pytest.raises(ValueError, match="no value for this register"):
        modbus.rtu_value(register, whole)
    with pytest.raises(ValueError, match="missing, damaged or from another meter"):
        modbus.rtu_value(register, whole[:-1])
    with pytest.raises(ValueError, match="missing, damaged or from another meter"):
        modbus.rtu_value(register, b"")
    with pytest.raises(ValueError, match="no value for this register"):
        modbus.tcp_value(register, 1, b"\0\1\0\0\0\3" + frame)
    with pytest.raises(ValueError, match="no valid answer"):
        modbus.tcp_value(register, 2, b"\0\1\0\0\0\3" + frame)


def test_modbus_answers_are_values_or_value_errors():
    source = random.Random(502)
    register = modbus.Register(17, 3, 107, 2, "float")
    for _ in range(2000):
        frame = source.randbytes(source.randrange(16))
        for read in (modbus.rtu_value, lambda register, frame: modbus.tcp_value(register, 1, frame)):
            with contextlib.suppress(ValueError):
                assert isinstance(read(register, frame), int)
