"""Optimal tables, with less variance than the hybrid mechanism: a linear programme, rounded to verifiable integers.

The variables are P(j|k) and m_j for cells j that decode to a fixed grid y_j, and for levels k at x_k, with m_j <=
P(j|k) <= e^ε m_j, Σ_j P(j|k) = 1 and Σ_j P(j|k) y_j = x_k. The programme minimises the worst variance, or the mean
variance over a density of levels with a cap on the worst. Then level k has rounded integers W_kj, which sum to 2^b (b =
`BITS`). A few units of each row are moved so that Σ_j W_kj y_j = 2^b x_k exactly, where y_j and x_k are the integers of
`_Grid`. The certificate is computed from these integers, not from the programme.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design.budget import Budget, best_fraction
from undertone_aggregator.design.continuous import worst_hybrid_variance
from undertone_aggregator.design.reach import REACH, largest_value
from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid
from undertone_shared.table import LARGEST_LEVEL, LARGEST_PACKED, WIDTH, TableMechanism

Vector = NDArray[np.float64]
Indices = NDArray[np.intp]

LEVELS = 24
CELLS = 65
BITS = 24
# Pairs (margin below the cap, least probability of a cell) that keep rounding from breaking the cap. The first pair
# that passes is used; pairs that cost more variance come later. If the first solution gives a cell less than the least
# probability, the cell is dropped.
_MARGINS = (
    *((1e-5, 2e-5), (1e-4, 2e-5), (1e-4, 1e-3), (1e-3, 2e-5), (1e-3, 1e-4)),
    *((3e-3, 2e-4), (1e-2, 2e-5), (1e-2, 4e-4)),
)
# The solver is exact to 1e-7 only. So a price counts as negative only below -_PRICE, and a cell of the table whose
# probability is below _UNUSED counts as unused.
_PRICE, _UNUSED = 1e-8, 1e-9
# The worst variance of a table may be above the least one by this share: more than the solver's tolerance of 1e-7.
_TIE = 1e-5
# Probabilities that differ by less than 10^-_DIGITS count as equal; solvers agree to some 10^-11. A constraint whose
# slack is below _BINDS counts as an equation. A corner is corrected _CORRECTIONS times.
_DIGITS, _BINDS, _CORRECTIONS = 9, 1e-9, 3
# Offsets of single cells from the even grid, in units of 2^-shift; with them `_repair` can make a row's mean exact.
_SHIFTS = (4096, 512, 64, 8, 1)


class NoTable(Exception):
    """No table can be made, for example because the linear programme has no solution or no rounding of it keeps the
    cap. The message says why.
    """


@dataclass(frozen=True)
class _Grid:
    """Decoded integers y_j and levels mu_k, in units of 2^-shift.

    Cells are multiples of ``step`` apart, except that each cell in ``shifted`` lies further by its number in _SHIFTS.
    ``narrow``: the indices of two cells that are not shifted and lie one step apart.
    """

    ys: tuple[int, ...]
    step: int
    values: tuple[int, ...]
    shift: int
    shifted: tuple[int, ...] = ()
    narrow: tuple[int, int] = (0, 1)

    def centred(self, integers: Sequence[int]) -> Vector:
        """Convert integers to the papers' units: 0 to theta becomes -1 to 1."""
        return np.array(integers) * (2 / self.values[-1]) - 1


def optimal_table(
    epsilon: Fraction | float | str,
    theta: int,
    *,
    levels: int = LEVELS,
    cells: int = CELLS,
    largest: float | None = None,
    density: Sequence[float] | None = None,
    worst: float = 1.25,
) -> TableMechanism:
    """Design the table for truncated readings in [0, theta] with certificate at most ``best_fraction(epsilon)``.

    ``density``: probability of each level (levels + 1 numbers). With it, the mean variance over these levels is
    minimised, and the worst variance is at most ``worst`` times the hybrid's. Without it, the worst variance is
    minimised. ``largest``: the largest decoded value, for readings in [-1, 1]; by default that of `REACH` with a
    density, and that of the piecewise mechanism without. Raises Invalid for bad input, and NoTable if no table can be
    made.
    """
    e = Budget.parse(epsilon).approximate[0]
    check_integer("theta", theta, 1, LARGEST_LEVEL)
    check_integer("levels", levels, 1, 32)
    check_integer("cells", cells, 12, 128)
    weights = None if density is None else _weights(density, levels)
    cap = best_fraction(epsilon)
    grid = _grid(theta, levels, cells, _largest(e, weights) if largest is None else largest)
    limit = worst * worst_hybrid_variance(e)
    ratio = cap[0] / cap[1]
    likely = _solve(ratio, grid, weights, limit, 0.0)[0].min(axis=0)
    reason = (
        f"no rounding of the table for epsilon {epsilon} has at most {LARGEST_PACKED} bytes and a certificate of"
        f" at most {cap[0]}/{cap[1]}"
    )
    for slack, least in _MARGINS:
        try:
            used = _used(grid, likely, least)
            table = _rounded(_solve(ratio * (1 - slack), used, weights, limit, least)[0], used)
        except NoTable as error:
            reason = str(error)
            continue
        if table is not None and table.permits(cap) and sum(map(len, table.rows)) <= LARGEST_PACKED:
            return table
    raise NoTable(reason)


@dataclass(frozen=True)
class Ideal:
    """The optimal table before rounding to integers: its mean variance over the density, and the cells that it uses."""

    variance: float
    cells: tuple[int, ...]


def ideal_table(
    epsilon: Fraction | float | str,
    density: Sequence[float],
    cells: int = CELLS,
    worst: float = 1.25,
    largest: float | None = None,
    near: Sequence[int] | None = None,
) -> Ideal:
    """Return the least mean variance over a density of levels, before rounding to integers, and the cells used.

    Readings are scaled to [-1, 1].

    The variance does not include the random rounding of readings to levels. ``largest`` as for `optimal_table`.
    ``near``: the cells of a similar problem's optimum. They make the search faster, and do not change the result.
    Raises Invalid for bad input, and NoTable if no table exists.
    """
    e = Budget.parse(epsilon).approximate[0]
    a, b = best_fraction(epsilon)
    weights = _weights(density, len(density) - 1)
    largest = _largest(e, weights) if largest is None else largest
    grid = _grid(LARGEST_LEVEL, len(density) - 1, check_integer("cells", cells, 12, 128), largest)
    y, x = grid.centred(grid.ys), grid.centred(grid.values)
    channel = _solve_by_cells(a / b, grid, weights, worst * worst_hybrid_variance(e), near or range(cells))
    return Ideal(float(weights @ (channel @ (y * y) - x * x)), tuple(_used_cells(channel).tolist()))


def _weights(density: Sequence[float], levels: int) -> Vector:
    weights = np.asarray(density, dtype=float)
    if weights.shape != (levels + 1,):
        raise Invalid(f"density has {weights.size} numbers, expected {levels + 1}")
    if not np.all(weights >= 0) or not 0 < weights.sum() < np.inf:
        raise Invalid(
            f"density has numbers from {weights.min():g} to {weights.max():g}, expected 0 or more, and one above 0"
        )
    return np.asarray(weights / weights.sum())


def _largest(epsilon: float, weights: Vector | None) -> float:
    """Return the largest decoded value, for readings in [-1, 1].

    With a density it is slightly above the least possible value (e^ε + 1)/(e^ε - 1), that of stochastic rounding. So
    one false report moves a mean hardly further than it must, for a few per cent more variance. Without a density it is
    (e^{ε/2} + 1)/(e^{ε/2} - 1), that of the piecewise mechanism, which the least worst variance needs.
    """
    return float(1.0 / np.tanh(epsilon / 4) if weights is None else largest_value(epsilon, REACH))


def _grid(theta: int, levels: int, cells: int, largest: float) -> _Grid:
    shift = 0
    while theta << (shift + 1) <= LARGEST_LEVEL and shift < 20:
        shift += 1
    top = theta << shift
    values = tuple(round(k * top / levels) for k in range(levels + 1))
    step = round(largest * top / (cells - 1))
    base = round(top / 2 - step * (cells - 1) / 2)
    return _Grid(tuple(base + step * j for j in range(cells)), step, values, shift)


def _used(grid: _Grid, least: Vector, enough: float) -> _Grid:
    """Return the grid of cells that the first solution uses with probability above ``enough``.

    The likeliest of these cells are shifted off the even grid by `_SHIFTS`.
    """
    # Numbers that differ only by rounding count as equal here.
    least = np.round(least, _DIGITS)
    used = [j for j in range(len(least)) if least[j] > enough]
    neighbours = [(j, j + 1) for j in used if j + 1 in used]
    if not neighbours or len(used) < len(_SHIFTS) + 2:
        raise NoTable(
            f"the linear programme uses {len(used)} cells, expected at least {len(_SHIFTS) + 2}, two of them side by"
            " side, to repair its rounding"
        )
    narrow = max(neighbours, key=lambda pair: float(min(least[pair[0]], least[pair[1]])))
    likely = sorted((j for j in used if j not in narrow), key=lambda j: -float(least[j]))
    shifted = tuple(likely[: len(_SHIFTS)])
    ys = list(grid.ys)
    for j, shift in zip(shifted, _SHIFTS, strict=True):
        ys[j] += shift
    return _Grid(
        tuple(ys[j] for j in used),
        grid.step,
        grid.values,
        grid.shift,
        tuple(used.index(j) for j in shifted),
        (used.index(narrow[0]), used.index(narrow[1])),
    )


def _solve_by_cells(ratio: float, grid: _Grid, density: Vector, limit: float, near: Sequence[int]) -> Vector:
    """Return a table of least mean variance, as `_solve` does with floor 0, in less time.

    An optimum uses few cells; the others have m_j = 0. The programme starts with the cells ``near`` and their
    neighbours. Its dual variables give the price of a unit of m_j for each cell j. A negative price means that the cell
    would lower the mean variance. In each step the cells whose prices are negative, and lower than those of their
    neighbours, are added. When no price is negative, no further cell would lower the variance.
    """
    y, x = grid.centred(grid.ys), grid.centred(grid.values)
    cells = _with_neighbours(np.asarray(near), len(y))
    while True:
        part = replace(grid, ys=tuple(grid.ys[j] for j in cells))
        try:
            channel, (total, mean, worst) = _solve(ratio, part, density, limit, 0.0)
        except NoTable:
            if len(cells) == len(y):
                raise
            cells = np.arange(len(y))
            continue
        cost = np.outer(density - worst, y * y) - total[:, None] - np.outer(mean, y)
        price = np.minimum(cost, ratio * cost).sum(axis=0)
        price[cells] = 0.0
        around = np.pad(price, 1)
        lowest = np.flatnonzero((price < -_PRICE) & (price <= around[:-2]) & (price <= around[2:]))
        if not len(lowest):
            whole = np.zeros((len(x), len(y)))
            whole[:, cells] = channel
            return whole
        cells = np.union1d(cells, _with_neighbours(lowest, len(y)))


def _used_cells(channel: Vector) -> Indices:
    return np.flatnonzero(channel.min(axis=0) > _UNUSED)


def _with_neighbours(cells: Indices, count: int) -> Indices:
    """Return the cells and their neighbours among ``count`` cells, in order."""
    return np.unique(np.clip(cells[:, None] + np.array([-1, 0, 1]), 0, count - 1))


def _solve(
    ratio: float, grid: _Grid, density: Vector | None, limit: float, floor: float
) -> tuple[Vector, tuple[Vector, Vector, Vector]]:
    """Solve the programme for P(j|k), shape [levels + 1, cells]; also return the dual variables of each level's
    constraints.

    ``limit``: the largest worst variance with a ``density``; ``floor``: the least m_j. The dual variables are those of
    the sum, of the mean and of the worst variance, each [levels + 1]. Variables of the programme are the excesses
    P(j|k) - m_j >= 0 row by row, then m, then the worst variance t.

    Without ``density``, many tables are optimal up to `_TIE`. The one that minimises Σ_k (1 + k / rows) Var_k is
    returned, so that the table is the same on every processor.
    """
    # SciPy's modules are slow to import. Many modules import this one, and few call this function.
    from scipy.optimize import linprog

    y, x = grid.centred(grid.ys), grid.centred(grid.values)
    rows, cells = len(x), len(y)
    size = rows * cells
    upper, exact = _constraints(ratio, grid)
    cost = np.zeros(size + cells + 1)
    if density is None:
        cost[-1] = 1
        most = None
    else:
        cost[:size] = np.outer(density, y * y).ravel()
        cost[size:-1] = density.sum() * y * y
        most = limit
    at_most, equal = np.concatenate([np.zeros(size), x * x]), np.concatenate([np.ones(rows), x])
    least = np.concatenate([np.zeros(size), np.full(cells, floor), [0.0]])

    def solved(cost: Vector, most: float | None) -> Any:
        bounds = [*((float(low), None) for low in least[:-1]), (0.0, most)]
        result = linprog(cost, A_ub=upper, b_ub=at_most, A_eq=exact, b_eq=equal, bounds=bounds, method="highs")
        if not result.success:
            raise NoTable(f"the linear programme has no solution: {result.message}")
        return result

    result = solved(cost, most)
    if density is None:
        # Many tables have the least worst variance, and which of them a solver finds depends on the processor.
        tie = 1.0 + np.arange(rows) / rows
        cost = np.concatenate([np.outer(tie, y * y).ravel(), tie.sum() * y * y, [0.0]])
        most = round(result.fun * (1.0 + _TIE), 9)
        result = solved(cost, most)
        if floor > 0.0:
            largest = np.full(len(cost), np.inf)
            largest[-1] = most
            result.x = _corner(result.x, (upper, at_most), (exact, equal), (least, largest))
    total, mean = np.split(result.eqlin.marginals, 2)
    channel = np.asarray(result.x[:size].reshape(rows, cells) + result.x[size:-1])
    return channel, (total, mean, result.ineqlin.marginals[size:])


def _corner(x: Vector, upper: tuple[Any, Vector], exact: tuple[Any, Vector], bounds: tuple[Vector, Vector]) -> Vector:
    """Return the corner of a programme, which a solver has found as ``x``, with all its digits correct.

    ``upper`` and ``exact``: matrix and right side of the inequalities and equations; ``bounds``: least and largest
    value of each variable. The corner is the solution of the equations of all constraints that hold with equality at
    ``x``. The residual of the solution is computed with more digits than the solution itself, and is used to correct
    it.
    """
    least, largest = bounds
    binding = np.flatnonzero(upper[1] - upper[0] @ x < _BINDS)
    rows = np.vstack([upper[0].tocsr()[binding].toarray(), exact[0].toarray()])
    right = np.concatenate([upper[1][binding], exact[1]])
    corner = np.where(x - least < _BINDS, least, np.where(largest - x < _BINDS, largest, x))
    free = (corner != least) & (corner != largest)
    q, r = np.linalg.qr(rows[:, free])
    for _ in range(_CORRECTIONS):
        residual = right - rows.astype(np.longdouble) @ corner.astype(np.longdouble)
        corner[free] += np.linalg.solve(r, q.T @ residual.astype(float))
    return corner


@lru_cache(maxsize=4)
def _constraints(ratio: float, grid: _Grid) -> tuple[Any, Any]:
    """Return the sparse matrices of the programme's inequalities and equations; columns as for `_solve`.

    Each pair (j, k) needs one inequality, P(j|k) - m_j <= (ratio - 1) m_j, instead of two. The matrices are cached,
    because decisions about θ solve many programmes on the same grid.
    """
    from scipy.sparse import coo_array

    y, x = grid.centred(grid.ys), grid.centred(grid.values)
    rows, cells = len(x), len(y)
    size = rows * cells
    pair, level = np.arange(size), np.arange(rows)
    level_of, cell_of = np.divmod(pair, cells)

    def sums(first: int, of: Vector) -> list[tuple[Any, Any, Any]]:
        """Return (rows, columns, numbers): the matrix entries of Σ_j P(j|k) of_j. Level k has the row ``first`` + k."""
        return [(first + level_of, of_variable, of[cell_of]) for of_variable in (pair, size + cell_of)]

    def matrix(count: int, parts: list[tuple[Any, Any, Any]]) -> Any:
        row, column, numbers = (np.concatenate(each) for each in zip(*parts, strict=True))
        return coo_array((numbers, (row, column)), shape=(count, size + cells + 1)).tocsc()

    upper = [(pair, pair, np.ones(size)), (pair, size + cell_of, np.full(size, 1.0 - ratio)), *sums(size, y * y)]
    upper.append((size + level, np.full(rows, size + cells), -np.ones(rows)))
    return matrix(size + rows, upper), matrix(2 * rows, [*sums(0, np.ones(cells)), *sums(rows, y)])


def _rounded(channel: Vector, grid: _Grid) -> TableMechanism | None:
    """Round to 2^BITS outcomes per row with exact row sums and means. Return None if a weight falls below 1."""
    total = 1 << BITS
    rows = []
    for row, value in zip(channel, grid.values, strict=True):
        weights = [round(p * total) for p in row]
        weights[int(np.argmax(row))] += total - sum(weights)
        _repair(weights, grid, value * total)
        if min(weights) < 1:
            return None
        rows.append(b"".join(weight.to_bytes(WIDTH, "big") for weight in weights))
    return TableMechanism(BITS, rows, grid.values, grid.shift, (grid.ys, 1 << grid.shift))


def _repair(weights: list[int], grid: _Grid, wanted: int) -> None:
    """Move units of weight between the cells of a row until Σ_j W_j y_j is ``wanted``; the row's sum stays the same.

    Units first move to or from the cells that are shifted off the even grid (see `_Grid`), until the sum differs from
    ``wanted`` by a multiple of the grid's step. Then they move between pairs of the other cells. The widest pair comes
    first, so that few units move.
    """
    ys = grid.ys
    low = grid.narrow[0]
    fine = _nearest(wanted - _moment(weights, ys), grid.step)[1]
    for j, shift in zip(grid.shifted, _SHIFTS, strict=True):
        units, fine = _nearest(fine, shift)
        _move(weights, low, j, units)
    plain = [j for j in range(len(ys)) if j not in grid.shifted]
    plain.sort(key=lambda j: weights[j])
    # Width of a pair of cells -> the pair. Of pairs of equal width the last one is kept: it has the largest weights.
    wide = {ys[j] - ys[i]: (i, j) for i in plain for j in plain if i < j} | {grid.step: grid.narrow}
    rest = wanted - _moment(weights, ys)
    for width in sorted(wide, reverse=True):
        units, rest = _nearest(rest, width)
        _move(weights, *wide[width], units)


def _moment(weights: Sequence[int], ys: Sequence[int]) -> int:
    return sum(w * y for w, y in zip(weights, ys, strict=True))


def _nearest(rest: int, width: int) -> tuple[int, int]:
    """Return (units, remainder) with rest = units · width + remainder and |remainder| <= width / 2."""
    units = (2 * rest + width) // (2 * width)
    return units, rest - units * width


def _move(weights: list[int], source: int, target: int, units: int) -> None:
    weights[source] -= units
    weights[target] += units
