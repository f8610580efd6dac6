"""What a campaign's receiver computes from it, and a device never needs: the base class of `Campaign`.

A board does not carry this module.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_shared.scalar import Cohort, ReportRule, ScalarRule
    from undertone_shared.stream import StreamRule


class CampaignAnalysis:
    """What the receiver of a `Campaign` computes from it."""

    rule: "ScalarRule | StreamRule"
    offset: int
    unit: str

    @property
    def theta(self) -> "int | None":
        """The threshold in the unit of readings, including the offset; None in a threshold epoch.

        If blocks of the cycle have thresholds of their own, it is the highest of these.
        """
        return None if self.rule.theta is None else self.offset + self.rule.theta

    @property
    def ranges(self) -> "tuple[tuple[int, int, int], ...]":
        """(first slot, lower end of the range, threshold) of each block of the cycle, in the unit of readings."""
        return tuple([(first, self.offset + low, self.offset + theta) for first, low, theta in self.rule.ranges])

    @property
    def thetas(self) -> str:
        """Text with the threshold, or the least and the largest of several, and the unit.

        It is empty without a threshold.
        """
        every = [theta for _, _, theta in self.ranges]
        if len(set(every)) < 2:
            return "%d %s" % (every[0], self.unit) if every else ""
        return "%d to %d %s by time of day" % (min(every), max(every), self.unit)

    @property
    def cohort(self) -> "Cohort | None":
        """The rule of the threshold cohort; None in a stream campaign."""
        return self.rule.cohort

    @property
    def report(self) -> "ReportRule | None":
        """The rule of devices that do not report for the threshold; None in threshold epochs and streams."""
        return self.rule.report
