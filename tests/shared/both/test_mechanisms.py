"""Small mechanisms of every kind pass all proofs by enumeration, under every interpreter."""

from proofs import check_small
from small_mechanisms import SMALL

from undertone_shared.checks import check_cap
from undertone_shared.errors import Invalid
from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_shared.table import LARGEST_PACKED, TableMechanism, parse_table


def test_every_outcome_of_every_small_mechanism():
    for name, mechanism, theta in SMALL:
        try:
            check_small(mechanism, theta)
        except AssertionError as error:
            raise AssertionError("%s: %s" % (name, error))


def refused(function, *arguments):
    try:
        function(*arguments)
    except Invalid as error:
        return str(error)
    raise AssertionError("accepted %r" % (arguments,))


def test_bad_integers_are_one_sentence():
    window = WindowMechanism(7, 3, 5, 2, 8)
    for expected, function, arguments in (
        ("a is 3, expected an integer from 4 to 1073741823", WindowMechanism, (3, 3, 5, 2, 8)),
        ("b is 0, expected an integer from 1 to 1073741823", WindowMechanism, (3, 0, 5, 2, 8)),
        ("b is 1.0, expected an integer from 1 to 1073741823", WindowMechanism, (3, 1.0, 5, 2, 8)),
        ("levels is True, expected an integer from 1 to 1073741823", WindowMechanism, (3, 1, 5, 2, True)),
        ("the total weight is 2147483648, expected less than 2^30", WindowMechanism, (4, 2, 1 << 28, 1, 1 << 29)),
        ("there are 3 edges, expected levels + 2 = 4", WindowMechanism, (3, 1, 1, 1, 2, (1, 2, 3))),
        ("edges[2] is 2, expected more than 2", WindowMechanism, (3, 1, 1, 1, 2, (1, 2, 2, 3))),
        ("level is 9, expected an integer from 0 to 8", window.weights, (9,)),
        ("level is -1, expected 0 to 8", window.draw, (-1, None)),
        ("theta is 0, expected 1 to 134217727", window.level, (0, 0, None)),
        ("theta is 134217728, expected 1 to 134217727", window.level, (0, 134217728, None)),
        ("the truncated reading is 6, expected 0 to theta = 5", window.level, (6, 5, None)),
        ("symbol is 21, expected an integer from 0 to 20", window.decode, (21, 5)),
        ("cap is 3, expected a pair of integers [p, q]", check_cap, (3,)),
        ("cap's numerator is 1, expected an integer from 2 to 4611686018427387904", check_cap, ((1, 2),)),
        ("coin is 65537, expected an integer from 0 to 65536", Hybrid, (65537, window, window)),
        ("the Hybrid's first part is not stochastic rounding with symbols from 0", Hybrid, (1, window, window)),
    ):
        assert refused(function, *arguments) == expected


def packed(*rows):
    return [b"".join(bytes((w >> 16, w >> 8 & 255, w & 255)) for w in row) for row in rows]


def test_bad_tables_are_one_sentence():
    good = packed((156, 100), (100, 156))
    assert TableMechanism(8, good, (0, 5), 0).certificate() == (156, 100)
    for expected, arguments in (
        ("bits is 8.0, expected an integer from 8 to 24", (8.0, good, (0, 5), 0)),
        ("shift is 21, expected an integer from 0 to 20", (8, good, (0, 5), 21)),
        ("the table's number of levels less one is 257, expected an integer from 1 to 256", (8, good, (0,) * 258, 0)),
        ("row 1 of the table sums to 255, expected 2^8 = 256", (8, packed((156, 100), (100, 155)), (0, 5), 0)),
        (
            "the table's weight in row 0, column 1 is 0, expected at least 1",
            (8, packed((256, 0), (100, 156)), (0, 5), 0),
        ),
        ("the table has 1 rows, expected one for each of 2 levels", (8, good[1:], (0, 5), 0)),
        ("row 1 of the table has 5 bytes, expected 6", (8, [good[0], good[1][1:]], (0, 5), 0)),
        ("level value 1 is 0, expected more than 0", (8, good, (0, 0), 0)),
        ("level value 0 is 1, expected at most 0", (8, good, (1, 5), 0)),
        ("level value 1 is 2.5, expected an integer from -1048576 to 1048576", (8, good, (0, 2.5), 0)),
        ("there are 1 decode values, expected 2", (8, good, (0, 5), 0, ((1,), 1))),
    ):
        assert refused(TableMechanism, *arguments) == expected
    assert TableMechanism(8, good * 128 + good[:1], tuple(range(257)), 20).levels == 256
    table = TableMechanism(8, good, (0, 5), 0)
    assert table.breach((2, 1)) is None
    assert table.breach((3, 2)) == 0
    assert refused(table.decode, 0, 5) == "this table has no decode values, so no report can be decoded"
    assert refused(table.level, 7, 6, None) == (
        "the truncated reading is 7, expected 0 to theta = 6, within the table's range"
    )
    assert refused(table.draw, 2, None) == "level is 2, expected 0 to 1"


def test_the_largest_table_is_read_and_nothing_larger():
    # The rows of a table have at most 4,950 bytes, for example 75 rows of 22 weights with 3 bytes each.
    row = "AAAB" * 22
    fields = {"bits": 8, "shift": 0, "values": list(range(75)), "rows": [row] * 75}
    assert LARGEST_PACKED == 75 * 22 * 3
    assert refused(parse_table, "table", fields) == "row 0 of the table sums to 22, expected 2^8 = 256"
    fields["rows"] = [row] * 75 + ["AAAB"]
    assert refused(parse_table, "table", fields) == "table.rows have more than 6600 characters"
