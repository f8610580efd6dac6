"""The streams of the ToPS papers' experiments: real ones from the data folder, and labelled stand-ins.

Fare and Kosarak are not available: values drawn independently from a distribution with Table 1's quantiles, mean and
maximum stand in for them. The protocol: the first m = 65,536 values choose θ; the next r = 2^20 are published, mirrored
to that length if the stream is shorter; the queries are 200 random ranges of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undertone_shared.errors import Invalid
from undertone_studies.panel import Curve
from undertone_studies.registry import StudyOptions

Integers = NDArray[np.int64]

M = 1 << 16
R = 1 << 20
QUERIES = np.sort(np.random.default_rng(20211115).integers(0, R, (200, 2)), axis=1)
# Columns of Table 1: size, public bound, quantiles .85, .95, .995, maximum, mean.
TABLE1 = {
    "DNS": (1_141_961, 2_000, 63, 85, 135, 617, 37.9),
    "Fare": (8_704_495, 30_000, 440, 1_036, 2_037, 26_770, 279.9),
    "Kosarak": (990_002, 41_270, 10, 28, 133, 2_498, 8.1),
    "POS": (515_597, 1_657, 13, 21, 39, 165, 7.5),
}
STAND_INS = ("Fare", "Kosarak")
LONGEST = M + R
WINDOW = 4096


@dataclass(frozen=True)
class TopsStream:
    """Values in their order, in natural units, with the public bound."""

    name: str
    bound: int
    values: Integers

    @cached_property
    def head(self) -> Integers:
        """The first values of the stream, from which θ is chosen."""
        return np.minimum(self.values[:M], self.bound)

    @cached_property
    def body(self) -> Integers:
        """The published values, mirrored to length R if the stream is shorter."""
        rest = np.minimum(self.values[M:], self.bound)
        return np.resize(np.concatenate([rest, rest[::-1]]), R) if len(rest) < R else rest[:R]

    def histogram(self) -> Integers:
        """Return the histogram of the head, [bound + 1]."""
        return np.bincount(self.head, minlength=self.bound + 1)

    def percentile(self, share: float) -> int:
        """Return a percentile of the head."""
        return int(np.sort(self.head)[int(np.ceil(share * len(self.head))) - 1])


def range_sums(values: NDArray[np.generic]) -> NDArray[np.float64]:
    """Return the answers to the 200 queries."""
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    return np.asarray(sums[QUERIES[:, 1]] - sums[QUERIES[:, 0]])


def streams(options: StudyOptions) -> list[TopsStream]:
    """Return POS, DNS and EDRP, if the data folder is given, and the stand-ins; or those of ``options.only``.

    Raises Invalid for an unknown name.
    """
    makers: dict[str, Callable[[], TopsStream]] = {}
    if options.data is not None:
        data = options.data
        makers = {"POS": lambda: _pos(data), "DNS": lambda: _dns(data), "EDRP": lambda: _edrp(data)}
    for name in STAND_INS:
        makers[f"{name} (stand-in)"] = lambda name=name: stand_in(name, options.seed)  # type: ignore[misc]
    wanted = options.only or tuple(makers)
    for name in wanted:
        if name not in makers:
            missing = "" if options.data is not None else "; the real ones need --data"
            raise Invalid(f"there is no stream {name!r} here, expected one of {', '.join(makers)}{missing}")
    return [makers[name]() for name in wanted]


def one_stream(options: StudyOptions, preferred: str) -> TopsStream:
    """Return the stream of that name if its data are available, else the first available stream."""
    available = streams(options)
    return next((stream for stream in available if stream.name == preferred), available[0])


def stand_in(name: str, seed: int) -> TopsStream:
    """Draw independent values with the quantiles, mean and maximum of Table 1.

    The logarithm of the quantile at u is linear in -ln(1 - u) between the table's points. Below the first point the
    quantile is a e^{bu}; a joins both pieces, and b is chosen for the right mean.
    """
    size, bound, q85, q95, q995, largest, mean = TABLE1[name]
    u = np.random.default_rng([seed, size]).random(min(size, LONGEST))
    points = -np.log(1 - np.array([0.85, 0.95, 0.995, 1 - 1 / size]))
    upper = np.exp(np.interp(-np.log(1 - u), points, np.log([q85, q95, q995, largest])))
    below = u < 0.85
    low, high = -20.0, 60.0
    while high - low > 1e-9:
        b = (low + high) / 2
        values = np.where(below, q85 * np.exp(b * (u - 0.85)), upper)
        low, high = (b, high) if values.mean() > mean else (low, b)
    return TopsStream(f"{name} (stand-in)", bound, np.maximum(np.rint(values), 0).astype(np.int64))


def _pos(data: Path) -> TopsStream:
    return TopsStream("POS", 1657, _array(data / "pos_length.npz", "v"))


def _dns(data: Path) -> TopsStream:
    return TopsStream("DNS", 2000, _array(data / "dns_google_1k.npz", None))


def _edrp(data: Path) -> TopsStream:
    """Read EDRP's half-hourly Wh, slot by slot; B is just above what a 100 A fuse passes in half an hour at 230 V."""
    wh = _array(data / "edrp_scotland_622x4416_halfhour_wh.npz", "wh")
    return TopsStream("EDRP", 12_000, wh.T.reshape(-1)[:LONGEST].copy())


def _array(path: Path, name: str | None) -> Integers:
    with np.load(path, allow_pickle=False) as file:
        return np.asarray(file[name or file.files[0]]).astype(np.int64)


def windows(values: np.ndarray) -> Curve:
    """Return (number of the first value, mean) of each whole window of `WINDOW` values."""
    whole = values[: len(values) // WINDOW * WINDOW].reshape(-1, WINDOW).mean(axis=1)
    return (np.arange(len(whole)) * WINDOW).tolist(), whole.tolist()
