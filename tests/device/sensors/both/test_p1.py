"""DSMR P1: only an undamaged telegram is a reading."""

from frames import TELEGRAM, flipped

from undertone_device.sensors.crc import ARC, crc16
from undertone_device.sensors.p1 import LARGEST, P1

TARIFFS = ("1-0:1.8.1", "1-0:1.8.2")


def telegram(*lines):
    body = b"/XYZ5 meter\r\n\r\n" + b"".join([line + b"\r\n" for line in lines]) + b"!"
    return body + b"%04X\r\n" % crc16(body, ARC, 0)


def test_the_tariffs_are_added_in_the_campaigns_unit():
    assert P1(TARIFFS).feed(TELEGRAM) == [246913578]
    assert P1(("1-0:2.7.0",), "kW").feed(TELEGRAM) == [0]
    assert P1(("1-0:1.7.0",), "kW").feed(TELEGRAM) == [1193]


def test_bytes_come_as_they_come():
    p1 = P1(TARIFFS)
    stream = TELEGRAM[300:] + TELEGRAM + TELEGRAM + TELEGRAM[:20]
    readings = []
    for i in range(0, len(stream), 7):
        readings += p1.feed(stream[i : i + 7])
    assert readings == [246913578, 246913578]
    assert p1.feed(TELEGRAM[20:]) == [246913578]


def test_no_bit_may_change():
    short = telegram(b"1-0:1.8.1(000012.345*kWh)", b"1-0:1.8.2(000067.890*kWh)")
    assert P1(TARIFFS).feed(short) == [80235]
    for damaged in flipped(short):
        assert P1(TARIFFS).feed(damaged) == [], damaged


def test_a_damaged_telegram_does_not_hide_the_next():
    p1 = P1(TARIFFS)
    assert p1.feed(TELEGRAM[:100] + TELEGRAM) == [246913578]
    assert p1.bad == 1


def test_registers_that_are_missing_or_double_or_in_another_unit_are_no_reading():
    for lines in (
        (b"1-0:1.8.1(000012.345*kWh)",),
        (b"1-0:1.8.1(1.0*kWh)", b"1-0:1.8.2(1.0*kWh)", b"1-0:1.8.2(1.0*kWh)"),
        (b"1-0:1.8.1(1.0*kWh)", b"1-0:1.8.2(1.0*MWh)"),
        (b"1-0:1.8.1(1.0*kWh)", b"1-0:1.8.2()"),
        (b"1-0:1.8.1(1.0*kWh)", b"1-0:1.8.2(\xff*kWh)"),
        (b"1-0:1.8.1(999999999.9*kWh)", b"1-0:1.8.2(1.0*kWh)"),
    ):
        p1 = P1(TARIFFS)
        assert p1.feed(telegram(*lines)) == [], lines
        assert p1.bad == 1


def test_a_telegram_without_a_checksum_is_none():
    p1 = P1(TARIFFS)
    assert p1.feed(telegram(b"1-0:1.8.1(1.0*kWh)", b"1-0:1.8.2(1.0*kWh)")[:-6] + b"\r\n\r\n\r\n\r\n") == []
    assert p1.bad == 1


def test_what_looks_like_many_beginnings_is_checked_once():
    checked = []

    class Counted(P1):
        def _drop(self, length):
            checked.append(length)
            P1._drop(self, length)

    p1 = Counted(TARIFFS)
    assert p1.feed(b"/" * 1000 + b"!ABCD\r\n" + TELEGRAM) == [246913578]
    assert len(checked) <= 2
    assert p1.feed(b"/" * 1000 + TELEGRAM) == [246913578]
    assert len(checked) <= 4


def test_noise_does_not_grow():
    p1 = P1(TARIFFS)
    for _ in range(8):
        assert p1.feed(b"/" + b"x" * 1000) == []
    assert len(p1._buffer) <= LARGEST + 1001
    assert p1.feed(b"\r\n" + TELEGRAM) == [246913578]
