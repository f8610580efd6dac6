"""Designed tables under every interpreter pass the proofs for all mechanisms, and devices refuse changed ones."""

from designed_tables import designed
from proofs import check_all

from undertone_shared.entropy import Entropy
from undertone_shared.errors import Invalid
from undertone_shared.notation import parse_mechanism
from undertone_shared.table import LARGEST_ROWS, TableMechanism

# The best_fraction of each epsilon, as a policy has it.
CAPS = {"1": (2721, 1001), "2": (2564, 347), "4": (3931, 72)}


def test_every_designed_table_passes_the_generic_proofs():
    for epsilon, theta, table in designed():
        assert table.permits(CAPS[epsilon])
        assert table.covers(theta)
        assert table.covers(1)
        assert not table.covers((1 << 30) // theta + 1)
        check_all(table, theta, {0, 1, table.levels // 2, table.levels})


def test_a_reading_is_rounded_without_bias_by_one_word():
    class Word:
        def __init__(self):
            self.asked = []

        def below(self, n):
            self.asked.append(n)
            return 0

    for _, theta, table in designed():
        for x in (0, 1, theta // 3, theta - 1, theta):
            word = Word()
            # Word 0 is below each positive chance, so it gives the upper level, unless the reading is the lower level.
            level = table.level(x, theta, word)
            assert len(word.asked) == 1
            low = level - (table.values[level] > x << table.shift)
            assert table.values[low] <= x << table.shift
            assert (
                word.asked[0] == table.values[min(low, table.levels - 1) + 1] - table.values[min(low, table.levels - 1)]
            )


class Words:
    """Stands for `Entropy`: returns words that a test has chosen, and notes the bounds that were asked for."""

    def __init__(self, *words):
        self.words = list(words)
        self.asked = []

    def below(self, n):
        self.asked.append(n)
        return self.words.pop(0)


def mean_value(table, x, theta):
    """(2^20 times the sum over the first words of the mean of ``value``, the number of first words).

    The first word scales the reading, and the second one rounds it. ``value`` is in units of its denominator.
    """
    probe = Words(0, 0)
    table.level(x, theta, probe)
    first = probe.asked[0]
    total = 0
    for word in range(first):
        probe = Words(word, 0)
        table.level(x, theta, probe)
        second = probe.asked[1]
        values = [table.value(table.level(x, theta, Words(word, other)), theta)[0] for other in range(second)]
        # This is exact if ``second`` is a power of two.
        total += (sum(values) << 20) // second
    return total, first


def test_a_reading_of_another_range_is_scaled_without_bias():
    # The gaps are 4 and 8, so the sums over their words are exact in multiples of 2^-20.
    rows = [bytes((0, 0, 100, 0, 0, 156)), bytes((0, 0, 128, 0, 0, 128)), bytes((0, 0, 156, 0, 0, 100))]
    table = TableMechanism(8, rows, (0, 4, 12), 0)
    assert table.reach == 12
    for theta in (1, 5, 7, 11, 13, 100):
        assert table.covers(theta)
        for x in range(theta + 1):
            total, words = mean_value(table, x, theta)
            # The value is mu theta / reach, so its mean is x.
            assert total == x * words * table.reach << 20, (theta, x)
    level = Words(0)
    assert table.level(12, 12, level) == 2
    assert len(level.asked) == 1


def test_a_range_that_cannot_be_scaled_is_refused():
    rows = [bytes((0, 0, 100, 0, 0, 156)), bytes((0, 0, 156, 0, 0, 100))]
    for values, shift, theta in (((0, 1), 1, 5), ((-4, 0), 0, 5), ((0, 1 << 20), 0, 1 << 10), ((0, 12), 0, 0)):
        table = TableMechanism(8, rows, values, shift)
        assert not table.covers(theta)
        try:
            table.level(0, theta, Words(0, 0))
        except Invalid:
            continue
        raise AssertionError("accepted")
    assert TableMechanism(8, rows, (0, 1 << 20), 0).covers(1 << 20)
    assert TableMechanism(8, rows, (0, 1 << 20), 0).covers((1 << 10) - 1)


def test_a_table_survives_the_wire():
    for _, _, table in designed():
        described = table.describe()
        assert sum(map(len, described["rows"])) <= LARGEST_ROWS
        again = parse_mechanism("mechanism", described)
        assert list(again.rows) == table.rows
        assert again.values == table.values
        assert again.certificate() == table.certificate()


def changed(rows, k, j, by):
    """The rows with one weight changed."""
    row = bytearray(rows[k])
    i = 3 * j
    weight = (row[i] << 16 | row[i + 1] << 8 | row[i + 2]) + by
    row[i : i + 3] = bytes((weight >> 16, weight >> 8 & 255, weight & 255))
    return rows[:k] + [bytes(row)] + rows[k + 1 :]


def refused(table, rows=None, values=None):
    """Why a table with these weights or levels is refused."""
    made = type(table)
    try:
        made(table.bits, rows or table.rows, table.values if values is None else values, table.shift)
    except Invalid as error:
        return str(error)
    raise AssertionError("accepted")


def test_one_weight_or_one_level_is_enough_to_be_refused():
    for _, _, table in designed():
        for by in (1, -1):
            assert "row 7 of the table sums to" in refused(table, changed(table.rows, 7, 3, by))
        values = table.values
        for k in (1, 12, 24):
            assert "expected more than" in refused(table, values=values[:k] + (values[k - 1],) + values[k + 1 :])
        assert refused(table, values=(1,) + values[1:]) == "level value 0 is 1, expected at most 0"


def test_a_weight_moved_within_a_row_breaks_the_certificate():
    for epsilon, _, table in designed():
        rows = [table.weights(k) for k in range(table.levels + 1)]
        worst = table.certificate()
        for column in range(table.symbols):
            weights = [row[column] for row in rows]
            if max(weights) * worst[1] == worst[0] * min(weights):
                break
        k = weights.index(max(weights))
        moved = max(weights) // 50 + 1
        others = [(weight, j) for j, weight in enumerate(rows[k]) if j != column]
        changing = changed(table.rows, k, column, moved)
        changing = changed(changing, k, max(others)[1], -moved)
        worse = type(table)(table.bits, changing, table.values, table.shift)
        assert not worse.permits(CAPS[epsilon])


class Counted:
    """Counts the words that are drawn from the entropy."""

    def __init__(self):
        self.entropy = Entropy()
        self.words = 0

    def below(self, n):
        self.words += 1
        return self.entropy.below(n)


def test_a_draw_takes_two_words_and_gives_a_symbol():
    counted = Counted()
    for _, theta, table in designed():
        seen = set()
        for i in range(200):
            counted.entropy.refill()
            counted.words = 0
            part = table.choose(counted)
            seen.add(part.draw(part.level(i * theta // 199, theta, counted), counted))
            assert counted.words == 2
        assert min(seen) >= 0
        assert max(seen) < table.symbols
        assert len(seen) > 3
