"""The numbers that meters send become integers without any error."""

from undertone_device.sensors.decimals import binary32, scaled, units


def refused(text, scale=(1, 1)):
    try:
        units(text, scale)
    except ValueError:
        return True
    return False


def test_decimal_text_is_scaled_exactly_and_rounded_half_up():
    assert units("001234.567", (1000, 1)) == 1234567
    assert units("-0.5", (1, 1)) == 0
    assert units("0.5", (1, 1)) == 1
    assert units("1.4999", (1, 1)) == 1
    assert units("12", (1, 5)) == 2
    assert units("13", (1, 5)) == 3


def test_what_is_not_a_decimal_number_is_refused():
    for text in ("", "-", ".", "1.", ".5", "1,5", "1e3", "+1", "1 ", "nan", "1.2.3", "1" * 40, "\u0661"):
        assert refused(text), text


def test_a_reading_has_thirty_bits():
    assert scaled((1 << 30) - 1, 1, (1, 1)) == (1 << 30) - 1
    assert refused(str(1 << 30))
    assert refused("-" + str(1 << 30))


def test_ieee_singles_without_a_float():
    assert binary32(0x42F6E979, (1000, 1)) == 123456  # 123.456
    assert binary32(0xC0490FDB, (1000000, 1)) == -3141593
    assert binary32(0x00000001, (1, 1)) == 0
    assert binary32(0x80000000, (1, 1)) == 0
    assert binary32(0x4B800000, (1, 1)) == 16777216
    for bits in (0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF):
        try:
            binary32(bits, (1, 1))
        except ValueError:
            continue
        raise AssertionError(bits)
