"""Each step of the bound on published numbers is summed cell by cell from its definition, in small sizes."""

import math
from collections.abc import Iterator
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from undertone_aggregator.design import published as module
from undertone_aggregator.design.published import Blanket, published, slot_losses
from undertone_shared.errors import Invalid
from undertone_shared.mechanism import WindowMechanism

GRID = np.linspace(0.0, 1.0, 51)


def span(n: int, chance: float) -> tuple[int, int]:
    """Return the least and the largest count that is at most `_WIDE` standard deviations plus `_WIDE` from the mean."""
    wide = module._WIDE * math.sqrt(n * chance * (1 - chance)) + module._WIDE
    return max(math.floor(n * chance - wide), 0), min(math.ceil(n * chance + wide), n)


def of_three(n: int, a: int, b: int, t: float) -> float:
    """The multinomial probability of (a, b, n - a - b) with chances t, t and 1 - 2t."""
    left, rest = n - a - b, 1 - 2 * t
    if left < 0 or (rest <= 0 and left):
        return 0.0
    logs = math.lgamma(n + 1) - math.lgamma(a + 1) - math.lgamma(b + 1) - math.lgamma(left + 1)
    return math.exp(logs + (a + b) * math.log(t) + (left * math.log(rest) if left else 0.0))


def ranges(low: int, high: int, width: int) -> list[range]:
    """Cells of ``width`` counts each. The last one ends at the end of the span."""
    return [range(start, min(start + width, high + 1)) for start in range(low, high + 1, width)]


def cells_of(n: int, extra: float, t: float, cells: int) -> Iterator[tuple[float, float, float, float, bool]]:
    """Yield P, Q, the least loss, the largest loss and a product for each cell of A and B.

    The product is the cell's probability times the number of its sides at which counts are left out.
    """
    low, high = span(n, t)
    parts = ranges(low, high, max(int(math.sqrt(n * t * (1 - t)) / cells), 1))
    law = {(a, b): of_three(n, a, b, t) for a in range(low, high + 1) for b in range(low, high + 1)}
    total, scale = sum(law.values()), n * (1 + extra * t)
    for i, of_a in enumerate(parts):
        for j, of_b in enumerate(parts):
            p = sum(law[a, b] * (n + extra * a) for a in of_a for b in of_b) / total / scale
            q = sum(law[a, b] * (n + extra * b) for a in of_a for b in of_b) / total / scale
            base = sum(law[a, b] for a in of_a for b in of_b) / total
            least = math.log((n + extra * of_a[0]) / (n + extra * of_b[-1]))
            largest = math.log((n + extra * of_a[-1]) / (n + extra * of_b[0]))
            ends = (low > 0) * ((i == 0) + (j == 0)) + (high < n) * ((i == len(parts) - 1) + (j == len(parts) - 1))
            yield p, q, least, largest, base * ends


def deltas_of(n: int, extra: float, t: float, cells: int) -> tuple[list[float], float]:
    """Return δ at each ε of `GRID`, and the probability left out.

    δ is the sum of P - e^ε Q over the cells above ε, and of P (1 - e^{ε - largest loss}) over the cells that ε divides.
    """
    sums, lost = [0.0] * len(GRID), 0.0
    for p, q, least, largest, ends in cells_of(n, extra, t, cells):
        lost += (1 + extra) * ends / module._FALL
        if p <= 1e-22:
            lost += (1 + extra) * p
            continue
        for i, epsilon in enumerate(GRID):
            if least > epsilon:
                sums[i] += p - math.exp(epsilon) * q
            elif largest > epsilon:
                sums[i] += p * (1 - math.exp(epsilon - largest))
    return [max(each, 0.0) for each in sums], lost


@pytest.mark.parametrize(
    ("n", "extra", "t", "cells"),
    [
        (1, 2.0, 0.3, 4),
        (2, 0.7, 0.5, 4),
        (9, 1.7, 0.3, 1),
        # With narrow spans, the first of these cases leaves out a single count below the span, the second one also a
        # single count above it.
        (12, 1.7, 0.3, 1),
        (7, 0.9, 0.5, 1),
        (40, 6.4, 0.1, 1),
        (60, 0.9, 0.5, 2),
        (60, 0.3, 0.45, 32),
        (120, 1.3, 0.2, 2),
        # Some cells are divided by several steps of ε.
        (100, 5.0, 0.4, 1),
    ],
)
@pytest.mark.parametrize("wide", [1.0, 9.0])
def test_delta_is_summed_over_cells_of_a_and_b(
    n: int, extra: float, t: float, cells: int, wide: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test also tries narrow spans, which leave out some counts at their ends."""
    monkeypatch.setattr(module, "_WIDE", wide)
    assert module._span(n, t) == span(n, t)
    exact, lost = deltas_of(n, extra, t, cells)
    deltas, left_out = module._deltas(n, extra, t, GRID, cells)
    assert deltas == pytest.approx(exact, rel=1e-9, abs=1e-15)
    assert left_out == pytest.approx(lost, rel=1e-9, abs=1e-300)
    # The result is the same however many rows are held in memory at a time.
    monkeypatch.setattr(module, "_BLOCK", 1)
    again, still = module._deltas(n, extra, t, GRID, cells)
    assert again == pytest.approx(deltas, rel=1e-12, abs=1e-18)
    assert still == pytest.approx(left_out, rel=1e-12)


@pytest.mark.parametrize(("reports", "gamma"), [(1, 0.4), (2, 0.4), (30, 0.15), (30, 0.7), (400, 0.1), (5000, 0.37)])
@pytest.mark.parametrize("bucket", [0.25 / 32, 0.25, 0.01])
@pytest.mark.parametrize("wide", [1.0, 9.0])
def test_blankets_are_counted_in_buckets_with_their_lower_ends(
    reports: int, gamma: float, bucket: float, wide: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of blankets is T = 1 + Bin(n - 1, γ), within the span.

    The chance of fewer counts as 10^4 times that of the span's first number.
    """
    monkeypatch.setattr(module, "_WIDE", wide)
    n = reports - 1
    low, high = span(n, gamma)
    law = [
        math.exp(
            math.lgamma(n + 1)
            - math.lgamma(k + 1)
            - math.lgamma(n - k + 1)
            + k * math.log(gamma)
            + (n - k) * math.log1p(-gamma)
        )
        for k in range(low, high + 1)
    ]
    total = sum(law)
    (none, below), *buckets = module._blanket_counts(reports, gamma, bucket)
    assert none == 0
    assert below == pytest.approx(law[0] / total / module._FALL if low > 0 else 0.0, rel=1e-9)
    parts = ranges(low, high, max(int(bucket * (n * gamma + 1)), 1))
    assert [first for first, _ in buckets] == [part[0] + 1 for part in parts]
    expected = [sum(law[k - low] for k in part) / total for part in parts]
    assert [chance for _, chance in buckets] == pytest.approx(expected, rel=1e-9, abs=1e-300)


def joined(blanket: Blanket, reports: int, cells: int, monkeypatch: pytest.MonkeyPatch) -> tuple[float, int, Any]:
    """The arguments (step, first, δ) from which the distribution of a slot's losses is made."""
    with monkeypatch.context() as patched:
        patched.setattr(module, "Losses", SimpleNamespace(joined=lambda *of: of))
        made: Any = slot_losses.__wrapped__(blanket, reports, cells)
    return made


@pytest.mark.parametrize("ratio", [Fraction(11, 10), Fraction(3), Fraction(20)])
@pytest.mark.parametrize("reports", [1, 2, 10, 3000, 10**6])
@pytest.mark.parametrize(("cells", "wide"), [(2, 9.0), (10, 9.0), (10, 2.0)])
def test_a_slots_losses_are_a_mixture_over_the_blankets_on_a_grid_of_losses(
    ratio: Fraction, reports: int, cells: int, wide: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The grid of losses has ``cells`` steps in the spread: the standard deviation of the loss, at most ln ``ratio``.

    It reaches at least 1.2 times ``wide`` times this spread, or ln ``ratio``, the largest loss, if that is less. A
    small ``wide`` is tested, too: it leaves out some counts, whose probability counts as lost.
    """
    monkeypatch.setattr(module, "_WIDE", wide)
    blanket = Blanket(2 / (ratio + 1) + Fraction(1, 100) * (1 - 2 / (ratio + 1)), ratio)
    gamma, extra, t = float(blanket.gamma), float(ratio - 1), float(blanket.extreme)
    grids = []

    def deltas(blankets: int, *rest: Any) -> tuple[Any, float]:
        assert rest[:2] == (extra, t)
        assert rest[3] == cells
        grids.append(rest[2])
        return np.exp(-np.abs(rest[2])) / blankets, 1e-3 / blankets

    monkeypatch.setattr(module, "_deltas", deltas)
    step, first, found = joined(blanket, reports, cells, monkeypatch)
    top = math.log(ratio)
    spread = min(extra * math.sqrt(2 * t / (1 + (reports - 1) * gamma)), top)
    assert step == pytest.approx(spread / cells, rel=1e-12)
    reach = math.ceil(min(1.2 * wide * spread + step, top) / step - 1e-9) + 1
    assert (first, len(found)) == (-reach, 2 * reach + 1)
    assert all(grid.tolist() == [i * step for i in range(-reach, reach + 1)] for grid in grids)
    (_, below), *buckets = module._blanket_counts(reports, gamma, 0.25 / cells)
    assert len(grids) == len(buckets)
    hidden = sum(chance / blankets for blankets, chance in buckets)
    expected = hidden * np.exp(-np.abs(grids[0])) + 1e-3 * hidden + below
    assert found == pytest.approx(np.minimum(expected, 1.0), rel=1e-9)


def test_a_grid_has_4000_steps_to_either_side_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_deltas", lambda blankets, extra, t, grid, cells: (np.zeros(len(grid)), 0.0))
    blanket = Blanket(Fraction(3, 5), Fraction(3))
    for cells, reach in ((400, 4000), (300, 3241)):
        _, first, found = joined(blanket, 10**6, cells, monkeypatch)
        assert abs(-first - reach) <= 2 * (reach < 4000)
        assert len(found) == 2 * -first + 1


def test_shares_and_limits_have_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "slot_losses", None)
    mechanism = WindowMechanism(3, 1, 1, 1, 1)
    for options, name in (
        ({"delta": 0.0}, "delta is 0.0"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"fakes": -0.01}, "fakes is -0.01"),
        ({"fakes": 1.0}, "fakes is 1.0"),
    ):
        with pytest.raises(Invalid, match=name):
            published(mechanism, 10, 1, **options)  # type: ignore[arg-type]
    for reports, releases, sentence in (
        (10**8 + 1, 1, "reports is 100000001, expected an integer from 1 to 100000000"),
        (10, (1 << 20) + 1, "slots is 1048577, expected an integer from 1 to 1048576"),
    ):
        with pytest.raises(Invalid, match=sentence):
            published(mechanism, reports, releases)


def test_honest_reports_are_a_share_rounded_down_and_one_at_least() -> None:
    mechanism = WindowMechanism(3, 1, 1, 1, 1)
    for reports, fakes, honest in ((10, 0.0, 10), (10, 0.1, 9), (10, 0.15, 8), (1, 0.5, 1), (3, 0.999, 1), (7, 0.3, 4)):
        made = published(mechanism, reports, 1, fakes=fakes, cells=2)
        assert (made.reports, made.releases, made.delta) == (honest, 1, module.DELTA)


def test_it_is_computed_finely_unless_told_and_composed_over_the_releases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`FINE` is 32 cells in a standard deviation, `COARSE` is 10."""
    asked = []

    def losses(blanket: Blanket, reports: int, cells: int) -> Any:
        asked.append((reports, cells))
        return SimpleNamespace(
            composed=lambda releases: SimpleNamespace(epsilon=lambda delta: 1000.0 * releases + delta)
        )

    monkeypatch.setattr(module, "slot_losses", losses)
    mechanism = WindowMechanism(3, 1, 1, 1, 1)
    assert published(mechanism, 100, 48).epsilon == 48_000 + 1e-6
    assert published(mechanism, 10**8, 1 << 20, delta=0.5, fakes=0.5, cells=3).epsilon == 1000.0 * (1 << 20) + 0.5
    assert module.about(mechanism, 299, 7).reports == 200
    assert asked == [(100, 32), (50_000_000, 3), (200, 10)]
    assert published(mechanism, 100, 1, delta=1e-300).delta == 1e-300


def test_few_sizes_are_computed_and_none_above_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(module, "published", lambda mechanism, reports, releases, *, cells: asked.append(reports))
    mechanism = WindowMechanism(3, 1, 1, 1, 1)
    for reports in range(1, 2100):
        module.about(mechanism, reports, 48)
    assert sorted(set(asked)) == [
        1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000,
    ]  # fmt: skip
    for reports, rounded in zip(range(1, 2100), asked, strict=True):
        assert rounded <= reports < 2 * rounded


@pytest.mark.parametrize("t", [0.5, 0.2, 0.01])
def test_many_blankets_neither_overflow_nor_vanish(t: float) -> None:
    """Factorials of numbers such as 20,000 are far beyond any float.

    At ε = 0, δ is in proportion to the mean of max(A - B, 0).
    """
    n, extra = 10**6 if t < 0.1 else 2 * 10**4, 0.5
    deltas, left_out = module._deltas(n, extra, t, np.array([0.0]), 8)
    # A - B is nearly normal, so E max(A - B, 0) = sd/√(2π) with sd² = 2tn.
    expected = extra * math.sqrt(2 * t * n / (2 * math.pi)) / (n * (1 + extra * t))
    assert deltas[0] == pytest.approx(expected, rel=0.06)
    assert 0 <= left_out < 1e-12
