"""DSMR P1: only an undamaged telegram gives a reading."""

from frames import TELEGRAM, flipped

from undertone_device.sensors.crc import ARC, crc16
from undertone_device.sensors.p1 import P1

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


def test_a_beginning_within_a_telegram_ends_it():
    p1 = P1(TARIFFS)
    assert p1.feed(b"/" * 1000 + b"!ABCD\r\n" + TELEGRAM) == [246913578]
    assert p1.bad == 1000
    assert p1.feed(TELEGRAM[:-3] + TELEGRAM) == [246913578]
    assert p1.bad == 1001


def test_noise_and_endless_lines_hide_nothing():
    p1 = P1(TARIFFS)
    for _ in range(8):
        assert p1.feed(b"/" + b"x" * 1000) == []
    assert p1.feed(b"\r\n" + TELEGRAM) == [246913578]
    # The text message of a telegram may have 2048 digits.
    long = telegram(b"0-0:96.13.0(" + b"30" * 1024 + b")", b"1-0:1.8.1(1.0*kWh)", b"1-0:1.8.2(1.0*kWh)")
    assert p1.feed(long) == [2000]


def test_gas_water_and_heat_have_a_time_before_their_value():
    """The lines are those of DSMR 4.0 (gas), of the Belgian e-MUCS (gas, water) and of DSMR 5.0 (heat)."""
    for line, code, unit, reading in (
        (b"0-1:24.2.1(101209112500W)(12785.123*m3)", "0-1:24.2.1", "m3", 12785123),
        (b"0-1:24.2.3(200512134558S)(00112.384*m3)", "0-1:24.2.3", "m3", 112384),
        (b"0-2:24.2.1(200512134558S)(00872.234*m3)", "0-2:24.2.1", "m3", 872234),
        (b"0-4:24.2.1(161129200000W)(00012.345*GJ)", "0-4:24.2.1", "GJ", 12345),
    ):
        lines = (b"0-1:24.1.0(003)", b"0-3:24.2.1(101209112500W)(00001.000*m3)", line)
        assert P1((code,), unit).feed(telegram(*lines)) == [reading], line
    assert P1(("0-1:24.2.1",), "m3").feed(TELEGRAM) == [12785123]


def test_a_gas_meter_that_is_not_there_gives_no_reading():
    for line in (
        b"0-1:24.2.1(632525252525S)(00000.000)",
        b"0-1:24.2.1(632525252525S)(00000.000*m3)",
        b"0-1:24.2.1(101209112500)(00001.000*m3)",
        b"0-1:24.2.1()(00001.000*m3)",
        b"0-1:24.2.1(101209112500W)(00001.000*m3)(00002.000*m3)",
        b"0-1:24.2.1(101209112500W)",
    ):
        p1 = P1(("0-1:24.2.1",), "m3")
        assert p1.feed(telegram(line)) == [], line
        assert p1.bad == 1


def test_a_crc_without_its_leading_zeros():
    seen = 0
    for number in range(200):
        body = telegram(b"0-0:96.7.21(%05d)" % number, b"1-0:1.8.1(1.0*kWh)")[:-6]
        crc = crc16(body, ARC, 0)
        if crc < 0x1000:
            seen += 1
            p1 = P1(("1-0:1.8.1",))
            assert p1.feed(body + b"%X\r\n" % crc) == [1000]
            assert p1.feed(body + b"%04X\r\n" % crc) == [1000]
            assert p1.feed(body + b"%X\r\n" % (crc ^ 1)) == []
            assert p1.feed(body + b"\r\n") == []
    assert seen > 3
