"""SML: only an undamaged frame is a reading."""

from frames import OBIS_1_8_0, SML, flipped

from undertone_device.sensors.crc import X25, crc16
from undertone_device.sensors.sml import LARGEST, Sml

READING = 79139  # 791393 * 10^-1 Wh


def frame(body):
    start = b"\x1b\x1b\x1b\x1b\x01\x01\x01\x01"
    fill = -len(body) % 4
    whole = start + body + bytes(fill) + b"\x1b\x1b\x1b\x1b\x1a" + bytes([fill])
    crc = crc16(whole, X25, 0xFFFF) ^ 0xFFFF
    return whole + bytes([crc & 255, crc >> 8])


def entry(name=OBIS_1_8_0, unit=30, scaler=b"\x52\x00", value=b"\x53\x12\x34"):
    return b"\x77\x07" + name + b"\x01\x01\x62" + bytes([unit]) + scaler + value + b"\x01"


def test_a_recorded_frame():
    assert Sml(OBIS_1_8_0).feed(SML) == [READING]
    assert Sml(OBIS_1_8_0, scale=(1, 1000)).feed(SML) == [79]
    assert Sml(b"\x01\x00\x10\x07\x00\xff", "W", (10, 1)).feed(SML) == [21440]


def test_no_bit_may_change():
    for damaged in flipped(SML):
        assert Sml(OBIS_1_8_0).feed(damaged) == [], damaged


def test_bytes_come_as_they_come():
    sml = Sml(OBIS_1_8_0)
    stream = SML[120:] + SML + SML
    readings = []
    for i in range(0, len(stream), 5):
        readings += sml.feed(stream[i : i + 5])
    assert readings == [READING, READING]


def test_kinds_of_values():
    for value, reading in (
        (b"\x53\x12\x34", 0x1234),
        (b"\x52\xff", -1),
        (b"\x62\xff", 255),
        (b"\x55\xff\xff\xff\x00", -256),
    ):
        assert Sml(OBIS_1_8_0).feed(frame(entry(value=value))) == [reading]
    assert Sml(OBIS_1_8_0).feed(frame(entry(scaler=b"\x52\x03"))) == [0x1234000 // 0x1000 * 1000]


def test_an_escape_in_the_data_is_written_twice():
    escape = b"\x1b\x1b\x1b\x1b"
    body = b"\x0a" + b"\x01" * 5 + escape + escape + entry()
    assert Sml(OBIS_1_8_0).feed(frame(body)) == [0x1234]


def test_what_is_no_reading():
    for body in (
        b"",
        entry(unit=27),
        entry() + entry(),
        entry(value=b"\x05\x01\x02\x03\x04"),
        entry(scaler=b"\x52\x20"),
        entry(scaler=b"\x02\x41"),
        entry(scaler=b"\x71\x01"),
        entry(value=b"\x59" + b"\x7f" + b"\xff" * 7),
        b"\x71" * 40 + b"\x01",
        b"\x7f\x8f",
        b"\xff\xff\xff\x0f",
        b"\x20\x10",
    ):
        sml = Sml(OBIS_1_8_0)
        assert sml.feed(frame(body)) == [], body
        assert sml.bad == 1, body


def test_what_looks_like_many_beginnings_is_checked_once():
    sml = Sml(OBIS_1_8_0)
    assert sml.feed(SML[:8] * 200 + b"\x1b\x1b\x1b\x1b\x1a\x00AA" + SML) == [READING]
    assert sml.bad <= 2
    assert sml.feed(SML[:8] * 200 + SML) == [READING]
    assert sml.bad <= 4


def test_noise_does_not_grow():
    sml = Sml(OBIS_1_8_0)
    for _ in range(5):
        assert sml.feed(SML[:8] + b"\x42" * 1000) == []
    assert len(sml._buffer) <= LARGEST + 1008
    assert sml.feed(SML)[-1:] == [READING]
