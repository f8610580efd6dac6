"""Mechanisms at the limits of their integers. The last value is accepted, and the next one is refused by name."""

import binascii

from undertone_shared.entropy import Entropy
from undertone_shared.errors import Invalid
from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_shared.table import LARGEST_LEVEL, LARGEST_PACKED, WIDTH, TableMechanism, parse_table

SMALL = 1 << 30
ROUNDING = WindowMechanism(2, 1, 1, 1, 1)
PIECEWISE = WindowMechanism(2, 1, 3, 2, 16, None, 2)


def refused(named, make, *arguments):
    try:
        make(*arguments)
    except Invalid as error:
        assert named in str(error), (named, str(error))
        return True
    return False


class Word:
    """Stands for `Entropy`: returns this word at every call."""

    def __init__(self, word):
        self.word = word

    def below(self, n):
        assert 0 <= self.word < n
        return self.word


def test_the_total_weight_is_a_small_integer():
    assert WindowMechanism(SMALL - 2, 1, 1, 1, 1).total == SMALL - 1
    assert refused("total weight is %d" % SMALL, WindowMechanism, SMALL - 1, 1, 1, 1, 1)
    for place, name in ((0, "a"), (1, "b"), (2, "window"), (3, "stride"), (4, "levels")):
        for value in (0, SMALL):
            numbers = [2, 1, 1, 1, 1]
            numbers[place] = value
            assert refused("%s is %d" % (name, value), WindowMechanism, *numbers)
        if name not in ("a", "b"):
            numbers[place] = SMALL - 1
            assert refused("total weight", WindowMechanism, *numbers)
    assert refused("a is 5", WindowMechanism, 5, 5, 1, 1, 1)
    assert refused("a is %d" % (SMALL - 1), WindowMechanism, SMALL - 1, SMALL - 1, 1, 1, 1)
    assert WindowMechanism(6, 5, 1, 1, 1).certificate() == (6, 5)


def test_the_bin_of_a_reading_is_the_number_of_inner_edges_up_to_it():
    for levels in range(1, 20):
        edges = tuple([3 * i + i * i for i in range(levels + 2)])
        mechanism = WindowMechanism(2, 1, 3, 1, levels, edges)
        for x in range(-3, edges[-1] + 3):
            assert mechanism.level(x, 0, None) == sum([edge <= x for edge in edges[1:-1]]), (levels, x)
        assert refused("edges", WindowMechanism, 2, 1, 3, 1, levels, edges[:-1])
        assert refused("edges", WindowMechanism, 2, 1, 3, 1, levels, edges + (9999,))
        for i in range(1, levels + 2):
            flat = edges[:i] + (edges[i - 1],) + edges[i + 1 :]
            assert refused("edges[%d] is %d" % (i, edges[i - 1]), WindowMechanism, 2, 1, 3, 1, levels, flat)


def test_a_level_stays_within_small_integers():
    for levels in (1, 16, 1000):
        mechanism = WindowMechanism(2, 1, 3, 2, levels)
        largest = (SMALL - 1) // levels
        assert mechanism.covers(1)
        assert mechanism.covers(largest)
        assert not mechanism.covers(0)
        assert not mechanism.covers(largest + 1)
        assert refused("theta is %d" % (largest + 1), mechanism.level, 0, largest + 1, Word(0))
        assert refused("theta is 0, expected 1 to %d" % largest, mechanism.level, 0, 0, Word(0))
        assert mechanism.level(0, 7, Word(0)) == 0
        assert mechanism.level(7, 7, Word(6)) == levels
        assert refused("reading is -1", mechanism.level, -1, 7, Word(0))
        assert refused("reading is 8", mechanism.level, 8, 7, Word(0))
        assert refused("level is -1", mechanism.draw, -1, Word(0))
        assert refused("level is %d" % (levels + 1), mechanism.draw, levels + 1, Word(0))
    # The reading 5 of 7 on 16 levels is 11 3/7, so three of seven words round it up.
    assert [WindowMechanism(2, 1, 3, 2, 16).level(5, 7, Word(word)) for word in range(7)] == [12] * 3 + [11] * 4


def test_the_coin_of_a_hybrid_and_its_parts():
    assert Hybrid(0, ROUNDING, PIECEWISE).choose(Word(0)) is ROUNDING
    assert Hybrid(65536, ROUNDING, PIECEWISE).choose(Word(65535)) is PIECEWISE
    for coin in (-1, 65537):
        assert refused("coin is %d" % coin, Hybrid, coin, ROUNDING, PIECEWISE)
    hybrid = Hybrid(20000, ROUNDING, PIECEWISE)
    assert hybrid.choose(Word(19999)) is PIECEWISE
    assert hybrid.choose(Word(20000)) is ROUNDING
    for part in (
        WindowMechanism(2, 1, 1, 1, 2),
        WindowMechanism(2, 1, 1, 1, 1, None, 1),
        WindowMechanism(2, 1, 1, 1, 1, (0, 1, 2)),
    ):
        assert refused("first part", Hybrid, 1, part, PIECEWISE)
    for part in (
        WindowMechanism(2, 1, 3, 2, 16, None, 1),
        WindowMechanism(2, 1, 3, 2, 16, None, 3),
        WindowMechanism(2, 1, 3, 2, 1, (0, 1, 2), 2),
    ):
        assert refused("second part", Hybrid, 1, ROUNDING, part)
    for rounding, piecewise, larger in (((9, 4), (5, 2), (5, 2)), ((5, 2), (3, 2), (5, 2)), ((3, 2), (5, 2), (5, 2))):
        parts = WindowMechanism(*rounding, 1, 1, 1), WindowMechanism(*piecewise, 3, 2, 16, None, 2)
        assert Hybrid(1, *parts).certificate() == larger
    for a, b, expected in ((3, 1, (3, 1)), (5, 2, (5, 2)), (3, 2, (2, 1))):
        mixed = Hybrid(1, ROUNDING, WindowMechanism(a, b, 3, 2, 16, None, 2))
        assert mixed.certificate() == expected
        assert mixed.permits(expected)
        assert not mixed.permits((expected[0] * 1000 - 1, expected[1] * 1000))


def test_a_cap_below_one_is_no_cap():
    table = TableMechanism(8, HALF, (0, 300), 0)
    for mechanism in (ROUNDING, Hybrid(1, ROUNDING, PIECEWISE), table):
        assert refused("cap's numerator is 1", mechanism.permits, (1, 2))
        assert refused("cap's denominator is 0", mechanism.permits, (0, 0))
    # Each part of a Hybrid has to fit the limit.
    bold, shy = WindowMechanism(9, 1, 1, 1, 1), WindowMechanism(9, 1, 3, 2, 16, None, 2)
    assert not Hybrid(1, bold, PIECEWISE).permits((2, 1))
    assert not Hybrid(1, ROUNDING, shy).permits((2, 1))
    assert Hybrid(1, bold, shy).permits((9, 1))


def rows_of(*rows):
    return [b"".join([weight.to_bytes(WIDTH, "big") for weight in row]) for row in rows]


HALF = rows_of((100, 156), (156, 100))


def test_the_numbers_of_a_table_up_to_their_limits_and_no_further():
    for bits in (8, 24):
        whole = 1 << bits
        assert TableMechanism(bits, rows_of((1, whole - 1), (whole - 1, 1)), (0, 300), 0).bits == bits
    for bits in (7, 25):
        assert refused("bits is %d" % bits, TableMechanism, bits, HALF, (0, 300), 0)
    for shift, reach in ((0, LARGEST_LEVEL), (20, 1)):
        assert TableMechanism(8, HALF, (0, LARGEST_LEVEL), shift).reach == reach
    for shift in (-1, 21):
        assert refused("shift is %d" % shift, TableMechanism, 8, HALF, (0, 300), shift)
    most = tuple(range(257))
    assert TableMechanism(8, HALF[:1] * 257, most, 0).levels == 256
    assert refused("levels less one is 257", TableMechanism, 8, HALF[:1] * 258, most + (257,), 0)
    assert refused("levels less one is 0", TableMechanism, 8, HALF[:1], (0,), 0)
    assert refused("has 1 rows", TableMechanism, 8, HALF[:1], (0, 300), 0)
    assert refused("has 3 rows", TableMechanism, 8, HALF[:1] * 3, (0, 300), 0)
    assert TableMechanism(8, HALF, (-LARGEST_LEVEL, 0), 0).values[0] == -LARGEST_LEVEL
    assert refused("level value 0 is", TableMechanism, 8, HALF, (-LARGEST_LEVEL - 1, 0), 0)
    assert refused("level value 1 is", TableMechanism, 8, HALF, (0, LARGEST_LEVEL + 1), 0)
    assert refused("expected more than 0", TableMechanism, 8, HALF, (0, 0), 0)
    assert refused("level value 0 is 1", TableMechanism, 8, HALF, (1, 300), 0)


def test_the_rows_of_a_table_are_of_one_length_and_sum_to_a_power_of_two():
    for row in ((100, 155), (100, 157)):
        assert refused("row 1 of the table sums to %d" % sum(row), TableMechanism, 8, rows_of((1, 255), row), (0, 9), 0)
    assert refused("row 0, column 1 is 0", TableMechanism, 8, rows_of((256, 0), (1, 255)), (0, 9), 0)
    assert refused("row 1, column 0 is 0", TableMechanism, 8, rows_of((255, 1), (0, 256)), (0, 9), 0)
    assert TableMechanism(8, rows_of((256,), (256,)), (0, 9), 0).symbols == 1
    for second in (b"", HALF[0][:-1], HALF[0] + b"1", rows_of((1, 1, 254))[0]):
        assert refused("row 1 of the table has %d bytes" % len(second), TableMechanism, 8, [HALF[0], second], (0, 9), 0)
    assert refused("row 0 of the table has 0 bytes", TableMechanism, 8, [b"", b""], (0, 9), 0)
    assert TableMechanism(8, HALF, (0, 9), 0, ((1, 2), 3)).decoded == ((1, 2), 3)
    for numerators in ((1,), (1, 2, 3)):
        assert refused("%d decode values" % len(numerators), TableMechanism, 8, HALF, (0, 9), 0, (numerators, 3))


def test_a_table_covers_its_reach_and_what_scales_to_it_in_small_integers():
    table = TableMechanism(8, HALF, (0, 1000), 0)
    largest = (SMALL - 1) // 1000
    assert [table.covers(theta) for theta in (0, 1, 1000, largest, largest + 1)] == [False, True, True, True, False]
    wide = TableMechanism(8, HALF, (0, LARGEST_LEVEL), 0)
    assert [wide.covers(theta) for theta in (1023, 1024, LARGEST_LEVEL)] == [True, False, True]
    one = TableMechanism(8, HALF, (0, 1), 0)
    assert [one.covers(theta) for theta in (1, 2, SMALL - 1, SMALL)] == [True, True, True, False]
    # If mu_K / 2^shift is below one unit, the table covers no range.
    assert not TableMechanism(8, HALF, (0, 3), 2).covers(1)
    assert TableMechanism(8, HALF, (0, 4), 2).covers(2)


def test_a_reading_is_scaled_then_rounded_between_its_neighbours():
    table = TableMechanism(8, rows_of((1, 255), (2, 254), (3, 253)), (-4, 40, 100), 1)
    assert table.reach == 50
    # x = 10 is 20 halves, which is 24 of the 44 halves from -4 to 40. The words below 24 round up.
    assert [table.level(10, 50, Word(word)) for word in (0, 23, 24, 43)] == [1, 1, 0, 0]
    assert [table.level(20, 50, Word(word)) for word in (0, 59)] == [1, 1]
    assert [table.level(50, 50, Word(word)) for word in (0, 59)] == [2, 2]
    # A reading in [0, 20] is first scaled by 50/20. Then 3 becomes 7.5, which word 9 of 20 rounds up, and word 10 does
    # not.
    assert [table.level(3, 20, Word(word)) for word in (9, 10)] == [1, 1]
    assert [table.level(9, 20, Word(word)) for word in (0, 9, 10, 19)] == [2, 1, 1, 1]
    for x in (-1, 21):
        assert refused("reading is %d" % x, table.level, x, 20, Word(0))
    for level in (-1, 3):
        assert refused("level is %d" % level, table.draw, level, Word(0))
    assert [table.draw(2, Word(word)) for word in (0, 2, 3, 255)] == [0, 0, 1, 1]
    assert refused("0 to theta = 0", table.level, 0, 0, Word(0))


def test_the_certificate_of_a_table_is_its_worst_column():
    table = TableMechanism(8, rows_of((64, 64, 128), (32, 96, 128), (48, 80, 128)), (0, 5, 9), 0)
    assert table.certificate() == (64, 32)
    assert (table.breach((2, 1)), table.breach((199, 100)), table.breach((149, 100))) == (None, 0, 0)
    assert table.permits((2, 1))
    assert not table.permits((199, 100))
    mild = TableMechanism(8, rows_of((100, 156), (120, 136)), (0, 9), 0)
    assert mild.certificate() == (120, 100)
    assert TableMechanism(8, HALF[:1] * 2, (0, 9), 0).permits((1, 1))
    last = TableMechanism(8, rows_of((128, 96, 32), (128, 64, 64)), (0, 9), 0)
    assert (last.certificate(), last.breach((3, 2)), last.breach((2, 1))) == ((64, 32), 2, None)


def fields(weights, **changes):
    made = {
        "bits": 8,
        "rows": [binascii.b2a_base64(row).decode().strip() for row in weights],
        "values": [0, 9],
        "shift": 0,
    }
    for name in changes:
        made[name] = changes[name]
    return made


def test_the_text_of_a_table_is_plain_base64_of_a_bounded_size():
    given = fields(HALF)
    assert parse_table("table", given).rows == HALF
    assert given["rows"] == [None, None], "a board has no room for both"
    assert refused("table.rows is not a list", parse_table, "table", fields([], rows="AAAA"))
    for text in ("", "AAA", "AAAA=", "AA AA", "A\u00e9AA", 5, None):
        assert refused("rows[1] is not plain base64", parse_table, "table", fields(HALF, rows=["AAAA", text]))
    # With as many bytes as possible, the text is accepted and its contents are refused.
    assert refused("row 0, column 0 is 0", parse_table, "table", fields([bytes(LARGEST_PACKED - 3), bytes(3)]))
    assert refused("more than 6600 characters", parse_table, "table", fields([bytes(LARGEST_PACKED), b"1"]))
    assert refused("list of 2 to 257", parse_table, "table", fields(HALF, values=[0]))


def test_a_real_source_draws_as_the_words_do():
    words = []
    entropy = Entropy(lambda n: bytes(range(7, 7 + n)))
    entropy.refill()
    for _ in range(4):
        words.append(PIECEWISE.draw(3, entropy))
    entropy = Entropy(lambda n: bytes(range(7, 7 + n)))
    entropy.refill()
    assert words == [PIECEWISE.draw(3, Word(entropy.below(PIECEWISE.total))) for _ in range(4)]
