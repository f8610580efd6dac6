"""What a campaign's receiver computes from its rule, and a device never needs: base classes of the rules.

A board does not carry this module.
"""

from undertone_shared.gaussian import root
from undertone_shared.report import COHORT, REPORT, STREAM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class ReportAnalysis:
    """What the receiver computes from a `ReportRule`."""

    low: int
    theta: int

    @property
    def width(self) -> int:
        """theta - low: the range that the mechanism covers."""
        return self.theta - self.low


class ScalarAnalysis:
    """What the receiver computes from a `ScalarRule`."""

    kind: str
    ranges: "tuple[tuple[int, int, int], ...]"
    cohort: "Any"
    report: "Any"

    @property
    def theta(self) -> "int | None":
        """The threshold θ, or the highest if blocks of the cycle have their own; None in a threshold epoch."""
        return max([theta for _, _, theta in self.ranges]) if self.ranges else None

    def describe(self) -> "dict[str, Any]":
        """Return the JSON value that ``parse_rule`` reads."""
        report = self.report
        return {
            "kind": self.kind,
            "mechanism": None if report is None else report.mechanism.describe(),
            "ranges": [list(block) for block in self.ranges],
        }

    def admits(self, kind: int, values: "tuple[int, ...]", chain: int, member: bool) -> "str | None":
        """Return None for a report that an honest device may have drawn, else ``wrong_kind`` or ``symbol``."""
        belongs = member or self.report is None
        if kind != (COHORT if belongs else REPORT):
            return "wrong_kind"
        mechanism = self.cohort.mechanism if belongs or self.report is None else self.report.mechanism
        return None if mechanism.occurs(values[0]) else "symbol"


class StreamAnalysis:
    """What the receiver computes from a `StreamRule`."""

    fields: "Sequence[str]"
    law: str
    levels: int
    shift: int
    reuse: int
    noise: tuple[int, int]
    dimension: int
    reports: int

    def describe(self) -> "dict[str, Any]":
        """Return the JSON value from which ``parse_rule`` makes the same rule."""
        values = {name: getattr(self, name) for name in self.fields}
        values["noise"] = list(self.noise)
        return values

    def admits(self, kind: int, values: "tuple[int, ...]", chain: int, member: bool) -> "str | None":
        """Return None for a report that an honest device may have drawn, else ``wrong_kind``, ``malformed`` or
        ``symbol``.
        """
        if kind != STREAM:
            return "wrong_kind"
        if len(values) != self.dimension:
            return "malformed"
        return None if chain <= self.reports and max([abs(x) for x in values]) <= self.largest_release() else "symbol"

    def largest_release(self) -> int:
        """Return the largest release of an honest device, which limits how far one dishonest device can move the mean.

        One-bit: a bound that no release exceeds. Gaussian: half the range plus 12 standard deviations, which noise
        exceeds with probability below 1e-32.
        """
        a = 1 << self.shift
        first, later = self.noise
        if self.law == "one-bit":
            return int(max(first, (later + a) // (a - self.reuse))) + 1
        return self.levels // 2 + 12 * (root(max(first, later // (a * a - self.reuse * self.reuse))) + 1)
