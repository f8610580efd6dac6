"""IEC 62056-21: only an undamaged readout is a reading."""

from frames import flipped

from undertone_device.sensors.iec62056 import LARGEST, READ_OUT, SIGN_ON, Readout, even

LINES = b"0.0.0(12345678)\r\n1-0:1.8.0*255(00123.456*kWh)\r\n1.8.0(00123.456*kWh)\r\n2.8.0(00007.000*kWh)\r\n!\r\n"


def readout(lines):
    check = 3
    for byte in lines:
        check ^= byte
    return even(b"\x02" + lines + b"\x03" + bytes([check & 0x7F]))


def test_a_register_in_the_campaigns_unit():
    assert Readout("1.8.0").feed(b"\x00" + even(b"/LGZ5\\2ZMD\r\n") + readout(LINES)) == [123456]
    assert Readout("2.8.0", scale=(1, 1)).feed(readout(LINES)) == [7]


def test_what_we_say_has_even_parity():
    assert SIGN_ON == b"\xaf\x3f\x21\x8d\x0a"
    for byte in SIGN_ON + READ_OUT:
        assert sum([byte >> i & 1 for i in range(8)]) % 2 == 0


def test_no_bit_may_change():
    whole = readout(b"0.0.0(1)\r\n1.8.0(00123.456*kWh)\r\n!\r\n")
    assert Readout("1.8.0").feed(whole) == [123456]
    for damaged in flipped(whole):
        assert Readout("1.8.0").feed(damaged) == [], damaged


def test_two_characters_whose_damage_cancels_in_the_sum_are_found_by_parity():
    damaged = bytearray(readout(LINES))
    damaged[30] ^= 1
    damaged[31] ^= 1
    assert Readout("1.8.0").feed(bytes(damaged)) == []


def test_after_damage_the_next_readout_counts():
    meter = Readout("1.8.0")
    assert meter.feed(readout(LINES)[:-1] + b"\x00" + readout(LINES)) == [123456]
    assert meter.bad == 1


def test_what_is_no_reading():
    for lines in (b"!\r\n", b"1.8.0(1*kWh)\r\n1.8.0(2*kWh)\r\n", b"1.8.0(1*MWh)\r\n", b"1.8.0(*kWh)\r\n", b"1.8.0(1"):
        meter = Readout("1.8.0")
        assert meter.feed(readout(lines)) == [], lines
        assert meter.bad == 1


def test_noise_does_not_grow():
    meter = Readout("1.8.0")
    assert meter.feed(even(b"\x02" + b"x" * (LARGEST + 10))) == []
    assert meter.feed(readout(LINES)) == [123456]
