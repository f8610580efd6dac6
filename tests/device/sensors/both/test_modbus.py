"""Modbus frames are those of the standard, and a damaged frame gives no reading."""

import struct

from frames import flipped

from undertone_device.sensors.crc import MODBUS, crc16
from undertone_device.sensors.modbus import (
    Register,
    rtu_bytes,
    rtu_question,
    rtu_value,
    tcp_bytes,
    tcp_question,
    tcp_value,
)

ENERGY = Register(17, 3, 107, 2)


def value_or_none(read, *arguments):
    try:
        return read(*arguments)
    except ValueError:
        return None


def with_crc(frame):
    return frame + struct.pack("<H", crc16(frame, MODBUS, 0xFFFF))


def test_the_questions():
    # The question is for unit 17, function 3, registers 107 and 108.
    assert rtu_question(ENERGY)[:-2] == b"\x11\x03\x00\x6b\x00\x02"
    assert tcp_question(ENERGY, 0x1501) == b"\x15\x01\x00\x00\x00\x06\x11\x03\x00\x6b\x00\x02"
    # The CRC of the frame 01 03 00 00 00 0A is C5 CD.
    assert rtu_question(Register(1, 3, 0, 10))[-2:] == b"\xc5\xcd"


def test_forms():
    answer = b"\x03\x04\xff\xfe\x00\x01"
    assert Register(1, 3, 0, 2, "signed").value(answer) == -131071
    assert Register(1, 3, 0, 2, "unsigned", True).value(b"\x03\x04\x00\x02\x00\x01") == 65538
    assert Register(1, 3, 0, 2, "float", scale=(1000, 1)).value(b"\x03\x04\x42\xf6\xe9\x79") == 123456
    assert Register(1, 4, 0, 1, scale=(1, 10)).value(b"\x04\x02\x00\x7b") == 12
    assert Register(1, 3, 0, 4).value(b"\x03\x08" + bytes(6) + b"\x12\x34") == 0x1234


def test_no_bit_of_a_serial_frame_may_change():
    frame = with_crc(b"\x11\x03\x04\x00\x01\x86\xa0")
    assert len(frame) == rtu_bytes(ENERGY)
    assert rtu_value(ENERGY, frame) == 100000
    for damaged in flipped(frame):
        assert value_or_none(rtu_value, ENERGY, damaged) is None, damaged


def test_an_exception_or_another_answer_is_no_reading():
    for frame in (with_crc(b"\x11\x83\x02"), with_crc(b"\x12\x03\x04\x00\x01\x86\xa0"), b"", b"\x11"):
        assert value_or_none(rtu_value, ENERGY, frame) is None
    frame = b"\x00\x07\x00\x00\x00\x07\x11\x03\x04\x00\x01\x86\xa0"
    assert tcp_bytes(frame[:5]) == 6
    assert tcp_bytes(frame[:6]) == tcp_bytes(frame) == len(frame)
    assert tcp_value(ENERGY, 7, frame) == 100000
    assert value_or_none(tcp_value, ENERGY, 8, frame) is None
    assert value_or_none(tcp_value, ENERGY, 7, frame[:-1]) is None
    # The head and the length are checked here. The data have no checksum but that of TCP.
    for i in range(9):
        damaged = bytearray(frame)
        damaged[i] ^= 1
        assert value_or_none(tcp_value, ENERGY, 7, bytes(damaged)) is None, i
