"""Checks of single values: what they accept at their limits, what they refuse, and that they name the field."""

from undertone_shared.checks import SMALL, check_cap, check_integer, check_object, check_text, integers
from undertone_shared.errors import Invalid

# The first and last characters of ranges that are invisible or change the order of other characters.
HIDDEN = (
    (0x00, 0x1F),
    (0x7F, 0x9F),
    (0xAD, 0xAD),
    (0x61C, 0x61C),
    (0x200B, 0x200F),
    (0x2028, 0x202E),
    (0x2060, 0x206F),
    (0xD800, 0xDFFF),
    (0xFEFF, 0xFEFF),
    (0xFFF9, 0xFFFB),
    (0xE0000, 0xE007F),
)


def refusal(check, *arguments):
    """What the check says, or None if it accepts the value."""
    try:
        check(*arguments)
    except Invalid as error:
        return str(error)
    return None


def test_text_is_of_visible_characters_alone():
    for first, last in HIDDEN:
        for code in (first, (first + last) // 2, last):
            said = "note has the character U+%04X, expected visible text" % code
            assert refusal(check_text, "note", "a%sb" % chr(code), 9) == said
        for code in (first - 1, last + 1):
            if code >= 0:
                assert check_text("note", chr(code), 1) == chr(code)


def test_text_has_a_longest_length():
    assert check_text("note", "", 0) == ""
    assert check_text("note", "Zähler", 6) == "Zähler"
    assert refusal(check_text, "note", "1234567", 6) == "note is '1234567', expected text of at most 6 characters"
    for value in (None, 5, b"ab", ["a"]):
        assert "expected text" in refusal(check_text, "note", value, 6)


def test_integers_have_a_range_and_are_neither_bool_nor_float():
    for value in (-3, 0, 7):
        assert check_integer("n", value, -3, 7) == value
    for value in (-4, 8, True, False, 1.0, "1", None):
        assert refusal(check_integer, "n", value, -3, 7) == "n is %r, expected an integer from -3 to 7" % (value,)


def test_a_cap_is_a_fraction_of_at_least_one():
    for cap in ((1, 1), [7, 7], (2, 1), (1 << 62, 1), (1 << 62, 1 << 62)):
        check_cap(cap)
    for cap, word in (
        ((1, 2), "numerator"),
        (((1 << 62) + 1, 1), "numerator"),
        ((1, 0), "denominator"),
        ((0, 0), "denominator"),
        ((2, "1"), "denominator"),
        (("2", 1), "numerator"),
        ((2,), "pair"),
        ((2, 1, 1), "pair"),
        ("21", "pair"),
        (None, "pair"),
    ):
        assert word in refusal(check_cap, cap), cap


def test_an_object_has_all_of_its_fields_and_no_other():
    assert check_object("it", {"a": 1, "b": None}, ("b", "a")) == {"a": 1, "b": None}
    assert refusal(check_object, "it", {"a": 1}, ("a", "b")) == "it has no field 'b'"
    assert refusal(check_object, "it", {"a": 1, "c": 2}, ("a",)) == "it has an unknown field 'c'"
    for value in (None, [], "a", 5):
        assert refusal(check_object, "it", value, ("a",)) == "it is %r, expected an object" % (value,)


def test_lists_of_integers_have_a_length_and_30_bits_each():
    for value in ([1], [1, 2, 3], [SMALL - 1, 1 - SMALL]):
        assert integers("them", value, 1, 3) == tuple(value)
    for value in ([], [1, 2, 3, 4], (1, 2), "12", None):
        assert refusal(integers, "them", value, 1, 3) == "them is not a list of 1 to 3 integers"
    for value in (SMALL, -SMALL, True, "1", None):
        said = refusal(integers, "them", [5, value], 1, 3)
        assert said == "them[1] is %r, expected an integer from %d to %d" % (value, 1 - SMALL, SMALL - 1)
