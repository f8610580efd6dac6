"""IEC 62056-21: only an undamaged readout gives a reading."""

from frames import flipped

from undertone_device.sensors.iec62056 import SIGN_ON, Readout, Telegram, answer_to, even

LINES = b"0.0.0(12345678)\r\n1-0:1.8.0*255(00123.456*kWh)\r\n1.8.0(00123.456*kWh)\r\n2.8.0(00007.000*kWh)\r\n!\r\n"


def readout(lines):
    check = 3
    for byte in lines:
        check ^= byte
    return even(b"\x02" + lines + b"\x03" + bytes([check & 0x7F]))


def test_a_register_in_the_campaigns_unit():
    assert Readout(("1.8.0",)).feed(b"\x00" + even(b"/LGZ5\\2ZMD\r\n") + readout(LINES)) == [123456]
    assert Readout(("2.8.0",), scale=(1, 1)).feed(readout(LINES)) == [7]


def test_what_we_say_has_even_parity():
    assert SIGN_ON == b"\xaf\x3f\x21\x8d\x0a"
    for byte in SIGN_ON + answer_to(b"/LGZ5\\2ZMD\r\n")[0]:
        assert sum([byte >> i & 1 for i in range(8)]) % 2 == 0


def test_no_bit_may_change():
    whole = readout(b"0.0.0(1)\r\n1.8.0(00123.456*kWh)\r\n!\r\n")
    assert Readout(("1.8.0",)).feed(whole) == [123456]
    for damaged in flipped(whole):
        assert Readout(("1.8.0",)).feed(damaged) == [], damaged


def test_two_characters_whose_damage_cancels_in_the_sum_are_found_by_parity():
    damaged = bytearray(readout(LINES))
    damaged[30] ^= 1
    damaged[31] ^= 1
    assert Readout(("1.8.0",)).feed(bytes(damaged)) == []


def test_after_damage_the_next_readout_counts():
    meter = Readout(("1.8.0",))
    assert meter.feed(readout(LINES)[:-1] + b"\x00" + readout(LINES)) == [123456]
    assert meter.bad == 1


def test_what_is_no_reading():
    for lines in (b"!\r\n", b"1.8.0(1*kWh)\r\n1.8.0(2*kWh)\r\n", b"1.8.0(1*MWh)\r\n", b"1.8.0(*kWh)\r\n", b"1.8.0(1"):
        meter = Readout(("1.8.0",))
        assert meter.feed(readout(lines)) == [], lines
        assert meter.bad == 1


def test_a_readout_may_have_any_length():
    profile = b"P.01(1112310000)(00)(15)(4)(1.5)(kW)\r\n" + b"(0.123)(0.456)(0.789)(1.012)\r\n" * 2000
    lines = b"F.F(00)\r\n1.8.0(00123.456*kWh)\r\n" + profile + b"x" * 5000 + b"\r\n!\r\n"
    assert len(lines) > 60000
    assert Readout(("1.8.0",)).feed(readout(lines)) == [123456]


def test_the_codes_of_a_register_and_which_of_them_counts():
    for lines, reading in (
        (b"1-0:1.8.0*255(00000.005*kWh)\r\n", [5]),
        (b"1.8.0*255(00000.005*kWh)\r\n", [5]),
        (b"1-0:1.8.0*255(00000.007*kWh)\r\n1.8.0(00000.005*kWh)\r\n1.8.0*01(00000.003*kWh)\r\n", [5]),
        (b"1-0:1.8.0*255(00000.005*kWh)\r\n2-0:1.8.0*255(00000.005*kWh)\r\n", []),
        (b"1.8.0*01(00000.005*kWh)\r\n", []),
        (b"11.8.0(00000.005*kWh)\r\n", []),
    ):
        assert Readout(("1.8.0",)).feed(readout(lines)) == reading, lines
    exact = b"1-0:1.8.0*255(00000.005*kWh)\r\n2-0:1.8.0*255(00000.007*kWh)\r\n"
    assert Readout(("2-0:1.8.0",)).feed(readout(exact)) == [7]
    assert Readout(("1-0:1.8.0*255", "2-0:1.8.0*255")).feed(readout(exact)) == [12]


def test_the_largest_demand_has_its_time_behind_it():
    lines = b"1.6.0(01.193*kW)(1112161230)\r\n"
    assert Readout(("1.6.0",), "kW").feed(readout(lines)) == [1193]


def test_the_offered_speed_is_taken():
    for name, answer, baud in (
        (b"/LGZ4\\2ZMD3104407.B32\r\n", b"\x06040\r\n", 4800),
        (b"/ISK5MT174-0001\r\n", b"\x06050\r\n", 9600),
        (b"/LGZ0ZMD\r\n", b"\x06000\r\n", 300),
        (b"/ABB6x\r\n", b"\x06060\r\n", 19200),
        # In modes B and A, the meter goes on without waiting for an answer.
        (b"/SIEEx\r\n", b"", 9600),
        (b"/SIEAx\r\n", b"", 600),
        (b"/SIE x\r\n", b"", 300),
        (b"/SIE9x\r\n", b"", 300),
    ):
        expected = even(answer), baud
        assert answer_to(name) == expected, name
        assert answer_to(even(name)) == expected, name
    for name in (b"", b"/LGZ", b"LGZ5ZMD\r\n", b"\x00\xff"):
        try:
            answer_to(name)
        except ValueError:
            continue
        raise AssertionError(name)


# EasyMeter Q3D and Hager EHZ push these lines: there is no STX and no BCC, and Hager's registers have no unit.
EASYMETER = (
    b"/ESY5Q3DA1004 V3.03\r\n\r\n1-0:0.0.0*255(0012345678)\r\n1-0:1.8.0*255(00012345.1234567*kWh)\r\n"
    b"1-0:21.7.0*255(000123.45*W)\r\n1-0:1.7.0*255(000310.60*W)\r\n1-0:96.5.5*255(82)\r\n"
    b"0-0:96.1.255*255(1ESY1234567890)\r\n!\r\n"
)
HAGER = (
    b"/HAG5eHZ010C_EHZ1ZA22\r\n\r\n1-0:0.0.0*255(1095110000123456)\r\n1-0:1.8.0*255(001234.5678)\r\n"
    b"1-0:96.5.5*255(82)\r\n0-0:96.1.255*255(0000123456)\r\n!\r\n"
)


def test_what_a_meter_pushes():
    stream = even(b"8(1*kWh)\r\n!\r\n" + EASYMETER + EASYMETER + HAGER)
    meter = Telegram(("1.8.0",))
    readings = []
    for i in range(0, len(stream), 7):
        readings += meter.feed(stream[i : i + 7])
    assert readings == [12345123, 12345123, 1234568]
    assert meter.bad == 0
    assert Telegram(("1-0:1.7.0",), "W", (100, 1)).feed(even(EASYMETER)) == [31060]


def test_no_bit_of_a_pushed_telegram_may_change():
    for damaged in flipped(even(HAGER)):
        assert Telegram(("1.8.0",)).feed(damaged) == [], damaged


def test_another_unit_is_refused_and_a_cut_telegram_hides_no_other():
    meter = Telegram(("1.8.0",), "Wh")
    assert meter.feed(even(EASYMETER)) == []
    assert meter.bad == 1
    meter = Telegram(("1.8.0",))
    assert meter.feed(even(EASYMETER[:100] + HAGER)) == [1234568]
    assert meter.bad == 1
