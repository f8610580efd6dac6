"""SML: only an undamaged frame gives a reading."""

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
        entry(value=b"\x5a" + bytes(9)),
        b"\x8f\x8f\x8f\x0f" + bytes(60),
    ):
        sml = Sml(OBIS_1_8_0)
        assert sml.feed(frame(body)) == [], body
        assert sml.bad == 1, body


def test_a_beginning_within_a_frame_ends_it():
    sml = Sml(OBIS_1_8_0)
    assert sml.feed(SML[:8] * 200 + b"\x1b\x1b\x1b\x1b\x1a\x00AA" + SML) == [READING]
    assert sml.bad == 200
    assert sml.feed(SML[:-1] + SML) == [READING]
    assert sml.feed(SML[:-3] + SML) == [READING]
    assert sml.bad == 202


def test_noise_does_not_grow():
    sml = Sml(OBIS_1_8_0)
    for _ in range(5):
        assert sml.feed(SML[:8] + b"\x42" * 1000) == []
        assert len(sml._frame) <= LARGEST
    assert sml.feed(b"\x42" * LARGEST) == []
    assert sml._frame is None
    assert sml.feed(SML) == [READING]


def test_escapes_that_touch_others():
    escape = b"\x1b\x1b\x1b\x1b"
    for literal in (b"\x1b", b"\x1b\x1b\x1b", escape, escape + b"\x1b\x1b", escape + escape):
        for after in (b"", b"\x01\x01\x01\x01", b"\x1a\x00\x00"):
            field = bytes([1 + len(literal + after)]) + literal.replace(escape, escape + escape) + after
            assert Sml(OBIS_1_8_0).feed(frame(entry() + field)) == [0x1234], (literal, after)


def serial_entry(serial):
    number = bytes([serial >> shift & 255 for shift in (32, 24, 16, 8, 0)])
    return entry(b"\x01\x00\x60\x01\x00\xff", 255, b"\x01", b"\x0b\x0a\x01DZG" + number)


def power(serial, value):
    return frame(serial_entry(serial) + entry(POWER, 27, b"\x52\xfe", value))


POWER = b"\x01\x00\x10\x07\x00\xff"


def test_a_dzg_meters_unsigned_power():
    """DZG meters of some serial numbers write a power of less than four bytes unsigned, though marked as signed.

    The values are those of known readings: 328.05 W is written as 53 80 25, and -1260.61 W as 55 ff fe 13 93.
    """
    for serial, value, reading in (
        (42000000, b"\x53\x80\x25", 32805),
        (48999999, b"\x53\x80\x25", 32805),
        (55000000, b"\x52\xff", 255),
        (58999999, b"\x54\x80\x00\x00", 8388608),
        (42000000, b"\x55\xff\xfe\x13\x93", -126061),
        (42000000, b"\x53\x12\x34", 0x1234),
        (41999999, b"\x53\x80\x25", -32731),
        (49000000, b"\x53\x80\x25", -32731),
        (60000000, b"\x53\x80\x25", -32731),
        (42000000 + (1 << 32), b"\x53\x80\x25", -32731),
    ):
        assert Sml(POWER, "W", (100, 1)).feed(power(serial, value)) == [reading], (serial, value)
    # In another register of such a meter, the number is signed, as it is marked.
    other = serial_entry(42000000) + entry(value=b"\x53\xff\xfe")
    assert Sml(OBIS_1_8_0).feed(frame(other)) == [-2]
