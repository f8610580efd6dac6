"""What every mechanism must satisfy exactly: one list of checks for all of them, under CPython and MicroPython.

Rational numbers are pairs of integers and compared by cross-multiplication. Each check raises AssertionError.
"""

from undertone_shared.mechanism import Hybrid


class Outcome:
    """Stands for `Entropy`: every ``below`` returns the chosen word, and notes the bound that it was asked for."""

    def __init__(self, word=0):
        self.word = word
        self.bounds = []

    def below(self, n):
        self.bounds.append(n)
        assert 0 <= self.word < n
        return self.word


def parts(mechanism):
    """The mechanisms of windows or tables that draw the symbols."""
    return (mechanism.rounding, mechanism.piecewise) if isinstance(mechanism, Hybrid) else (mechanism,)


def drawn(part, level, word):
    """The symbol for this outcome, by the device's own code, which asks for one word below the row's total."""
    outcome = Outcome(word)
    symbol = part.draw(level, outcome)
    assert outcome.bounds == [part.row_total()]
    return symbol


def check_every_outcome(part, levels=None):
    """Over all outcomes below the row's total, each symbol comes as often as its weight, at every level."""
    outcome = Outcome()
    draw = part.draw
    for level in range(part.levels + 1) if levels is None else levels:
        counts = [0] * part.symbols
        for outcome.word in range(part.row_total()):
            counts[draw(level, outcome)] += 1
            if len(outcome.bounds) > 1000:
                assert set(outcome.bounds) == {part.row_total()}
                outcome.bounds.clear()
        assert counts == part.weights(level), "level %d" % level


def boundaries(part, level):
    """The outcomes, from 0 to the row's total, at which a new symbol may begin by the mechanism's definition."""
    if hasattr(part, "window"):
        inside = part.a * part.window
        outside = range(inside, part.total, part.b)
        return list(range(0, inside, part.a)) + list(outside) + [part.total]
    sums = [0]
    for weight in part.weights(level):
        sums.append(sums[-1] + weight)
    return sums


def check_boundaries(part, levels):
    """Both ends of each run of outcomes give the same symbol, and the lengths of the runs are the weights."""
    for level in levels:
        counts = [0] * part.symbols
        edges = boundaries(part, level)
        for i in range(len(edges) - 1):
            symbol = drawn(part, level, edges[i])
            assert drawn(part, level, edges[i + 1] - 1) == symbol, "level %d, outcome %d" % (level, edges[i])
            counts[symbol] += edges[i + 1] - edges[i]
        assert counts == part.weights(level), "level %d" % level


def check_rows(mechanism, levels):
    """The weights of all symbols are positive, but for zeros in a Hybrid, and each row's sum is its total."""
    first = getattr(mechanism, "first", 0)
    for level in levels:
        row = mechanism.weights(level)
        assert len(row) == mechanism.symbols
        assert row[:first] == [0] * first
        assert min(row[first:]) >= 1 or (isinstance(mechanism, Hybrid) and min(row) >= 0)
        assert sum(row) == mechanism.row_total()


def check_certificate(mechanism):
    """The certificate is the largest ratio in a column of any part.

    ``permits`` is exact just below and just above it.
    """
    worst = (1, 1)
    for part in parts(mechanism):
        rows = [part.weights(level) for level in range(part.levels + 1)]
        for j in range(getattr(part, "first", 0), part.symbols):
            column = [row[j] for row in rows]
            largest, smallest = max(column), min(column)
            if largest * worst[1] > worst[0] * smallest:
                worst = (largest, smallest)
    a, b = mechanism.certificate()
    assert a * worst[1] == worst[0] * b
    assert mechanism.permits((a, b))
    assert mechanism.permits((a * 1000 + 1, b * 1000))
    assert not mechanism.permits((a * 1000 - 1, b * 1000))


def moments(mechanism, level, theta):
    """(total, scale, Σ W y scale, Σ W (y scale)²), summed over the symbols, where y are the decoded values."""
    row = mechanism.weights(level)
    symbols = [j for j in range(mechanism.symbols) if row[j]]
    decoded = [mechanism.decode(j, theta) for j in symbols]
    scale = 1
    for _, denominator in decoded:
        if scale % denominator:
            scale *= denominator
    first = second = 0
    for j, (numerator, denominator) in zip(symbols, decoded):  # noqa: B905  (MicroPython's zip knows no strict)
        y = numerator * (scale // denominator)
        first += row[j] * y
        second += row[j] * y * y
    return mechanism.row_total(), scale, first, second


def check_moments(mechanism, theta, levels):
    """The decode is exactly unbiased at every level, and ``variance`` equals the sum over symbols."""
    for level in levels:
        total, scale, first, second = moments(mechanism, level, theta)
        value, unit = mechanism.value(level, theta)
        assert first * unit == value * total * scale, "mean at level %d" % level
        variance, denominator = mechanism.variance(level, theta)
        assert (second * total - first * first) * denominator == variance * (total * scale) ** 2, (
            "variance at level %d" % level
        )


def check_rounding(part, theta, readings=None):
    """One word rounds a reading to one of two neighbouring levels. Over all words, the rounding is exactly unbiased."""
    for x in range(theta + 1) if readings is None else readings:
        outcome = Outcome()
        part.level(x, theta, outcome)
        assert len(outcome.bounds) == 1
        n = outcome.bounds[0]
        total = 0
        levels = []
        for outcome.word in range(n):
            level = part.level(x, theta, outcome)
            levels.append(level)
            value, unit = part.value(level, theta)
            total += value
        assert set(outcome.bounds) == {n}
        assert min(levels) >= 0 and max(levels) <= part.levels and max(levels) - min(levels) <= 1
        assert total == x * n * unit, "reading %d" % x


def check_bins(part):
    """A reading's bin follows from the edges without a random word. The first and the last bin are open."""
    edges = part.edges
    for x in range(edges[0] - 3, edges[-1] + 3):
        outcome = Outcome()
        level = part.level(x, 0, outcome)
        assert not outcome.bounds
        assert 0 <= level <= part.levels
        assert level == 0 or edges[level] <= x
        assert level == part.levels or x < edges[level + 1]


def check_hybrid(mechanism, levels):
    """The outcomes of the coin, and the weights as a mixture of the parts, which includes the rounding to levels."""
    outcome = Outcome()
    heads = 0
    for outcome.word in range(65536):
        part = mechanism.choose(outcome)
        assert part is mechanism.piecewise or part is mechanism.rounding
        heads += part is mechanism.piecewise
    assert heads == mechanism.coin
    assert len(outcome.bounds) == 65536
    assert set(outcome.bounds) == {65536}
    rounding, piecewise = parts(mechanism)
    for level in levels:
        low, high = rounding.weights(0), rounding.weights(1)
        k = mechanism.levels
        small = [(65536 - heads) * ((k - level) * low[j] + level * high[j]) for j in range(2)]
        large = [heads * weight for weight in piecewise.weights(level)[2:]]
        row = mechanism.weights(level)
        total = mechanism.row_total()
        assert [w * 65536 * k * rounding.total for w in row[:2]] == [w * total for w in small]
        assert [w * 65536 * piecewise.total for w in row[2:]] == [w * total for w in large]


def check_small(mechanism, theta):
    """Do all checks by enumeration."""
    levels = range(mechanism.levels + 1)
    for part in parts(mechanism):
        assert part.row_total() <= 20000
        check_every_outcome(part)
    check_all(mechanism, theta, levels)
    for part in parts(mechanism):
        if part.edges is not None:
            check_bins(part)
        else:
            check_rounding(part, theta)


def check_all(mechanism, theta, levels):
    """Do all checks except the enumeration of outcomes. Rows and moments are checked at ``levels``."""
    for part in parts(mechanism):
        check_boundaries(part, levels if part is mechanism else {level for level in levels if level <= part.levels})
    check_rows(mechanism, levels)
    check_certificate(mechanism)
    if isinstance(mechanism, Hybrid):
        check_hybrid(mechanism, levels)
    else:
        outcome = Outcome()
        assert mechanism.choose(outcome) is mechanism
        assert not outcome.bounds
    if mechanism.edges is None:
        check_moments(mechanism, theta, levels)
