"""Scalar reports, each with one reading, truncated and perturbed by one draw: parses their rules and draws reports.

In each slot a small share of the devices, the threshold cohort, may report for the threshold, with a square wave over
the whole range; all others report within [low, theta]. In a threshold epoch every device is in the cohort and there is
no report rule.
"""

from undertone_shared.checks import SMALL, check_integer, check_object, integers
from undertone_shared.errors import Invalid
from undertone_shared.mechanism import WindowMechanism
from undertone_shared.notation import parse_mechanism
from undertone_shared.report import COHORT, REPORT

try:
    from undertone_shared.off_board.rule_analysis import ReportAnalysis, ScalarAnalysis
except ImportError:  # MicroPython boards do not have the package off_board.
    ReportAnalysis = ScalarAnalysis = object  # type: ignore[assignment,misc]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from undertone_shared.entropy import Entropy
    from undertone_shared.notation import Mechanism
    from undertone_shared.schedule import Schedule

    class Range(Protocol):
        """The attributes of a campaign that ``draw`` reads."""

        offset: int
        bound: int
        cycle: int


_MOST_RANGES = 8
_READING = SMALL - 1


def truncate(reading: int, offset: int, low: int, high: int) -> int:
    """Return min(max(reading - offset, low), high) - low: an integer in [0, high - low].

    ``offset`` shifts the sensor's range to start at 0; ``low`` is 0 for the one-sided truncation of ToPL. A later
    rounding to levels is exactly unbiased for this result, not for what was cut off.
    """
    reading -= offset
    if reading < low:
        return 0
    if reading > high:
        return high - low
    return reading - low


class Cohort:
    """Rule of reports for the threshold: ``mechanism``, a square wave over the whole range. Raises Invalid."""

    def __init__(self, mechanism: "Mechanism"):
        if not isinstance(mechanism, WindowMechanism) or mechanism.edges is None:
            raise Invalid("cohort is not a square-wave, expected one with edges")
        self.mechanism = mechanism


class ReportRule(ReportAnalysis):
    """Rule of all other reports: truncation to [low, theta], then ``mechanism`` on x - low in [0, theta - low].

    ``later``: (first slot of the cycle, low, theta) of further blocks of the cycle, in order; ``low`` and ``theta``
    are those of the block that starts the cycle. ``ranges``: all blocks. Raises Invalid.
    """

    def __init__(self, low: int, theta: int, mechanism: "Mechanism", later: "tuple[tuple[int, int, int], ...]" = ()):
        if mechanism.edges is not None:
            raise Invalid("rule.mechanism is a square-wave, which has no unbiased decode")
        self.low = low
        self.theta = theta
        self.mechanism = mechanism
        self.ranges = ((0, low, theta),) + later
        check_integer("the number of rule.ranges", len(self.ranges), 1, _MOST_RANGES)
        before = -1
        for first, low, theta in self.ranges:
            check_integer("a first slot in rule.ranges", first, before + 1, _READING)
            check_integer("a low in rule.ranges", low, 0, _READING)
            check_integer("a theta in rule.ranges", theta, low + 1, _READING)
            if not mechanism.covers(theta - low):
                raise Invalid("rule.mechanism does not cover 0 to theta - low = %d" % (theta - low))
            before = first

    def range_of(self, slot: int, cycle: int) -> tuple[int, int]:
        """Return (low, theta) of the block of the cycle that contains ``slot``."""
        at = slot % cycle
        i = len(self.ranges) - 1
        while self.ranges[i][0] > at:
            i -= 1
        return self.ranges[i][1:]


class ScalarRule(ScalarAnalysis):
    """The rule of one campaign: ``cohort``, and ``report``, which is None in a threshold epoch."""

    kind = "scalar"
    # Number of coordinates of a reading.
    dimension = 1

    def __init__(self, cohort: Cohort, report: "ReportRule | None"):
        self.cohort = cohort
        self.report = report
        # (first slot, low, theta) of each block of the cycle, whose readings are truncated to [low, theta].
        self.ranges = () if report is None else report.ranges
        # Every mechanism that may draw, with the name of its part of the campaign.
        self.mechanisms: tuple[tuple[str, Mechanism], ...] = (("cohort", cohort.mechanism),)
        if report is not None:
            self.mechanisms += (("report", report.mechanism),)

    def draw(
        self, scale: "Range", slot: int, reading: object, member: bool, state: object, entropy: "Entropy"
    ) -> tuple[int, tuple[int, ...], int]:
        """Make (kind, values, chain index) of a report: truncate the reading, round it to a level, perturb it.

        ``member``: True for a report for the threshold. ``state``: unused. Raises EntropyError, Invalid.
        """
        if not isinstance(reading, int):
            # The sentence does not contain the reading, because a sentence may reach a log.
            raise Invalid("the reading is not an integer")
        report = self.report
        if member or report is None:
            kind, low, high = COHORT, 0, scale.bound
            mechanism: Mechanism = self.cohort.mechanism
        else:
            kind, mechanism = REPORT, report.mechanism
            low, high = report.range_of(slot, scale.cycle)
        x = truncate(reading, scale.offset, low, high)
        part = mechanism.choose(entropy)
        return kind, (part.draw(part.level(x, high - low, entropy), entropy),), 0


def parse_rule(fields: "dict[str, Any]", bound: int, cycle: int, schedule: "Schedule") -> ScalarRule:
    """Parse the rule and the cohort of a campaign's fields. Raises Invalid.

    Both are removed from ``fields``, because a board needs the memory.
    """
    cohort = Cohort(parse_mechanism("cohort", fields.pop("cohort")))
    part = check_object("rule", fields.pop("rule"), ("kind", "mechanism", "ranges"))
    ranges: list[Any] = part["ranges"]
    if not isinstance(ranges, list) or bool(ranges) != (part["mechanism"] is not None):
        raise Invalid("rule.ranges is %r, expected blocks if there is a mechanism, else none" % (ranges,))
    if not ranges:
        if schedule.cohort_stride != 1:
            raise Invalid("schedule.cohort_stride is %d, expected 1 in a threshold epoch" % schedule.cohort_stride)
        return ScalarRule(cohort, None)
    ranges = [integers("a block of rule.ranges", block, 3, 3) for block in ranges]
    if ranges[0][0] != 0 or ranges[-1][0] >= cycle or max([block[2] for block in ranges]) > bound:
        raise Invalid(
            "rule.ranges is %r, expected slots from 0 to below %d and theta up to the bound %d" % (ranges, cycle, bound)
        )
    mechanism = parse_mechanism("rule.mechanism", part.pop("mechanism"))
    return ScalarRule(cohort, ReportRule(ranges[0][1], ranges[0][2], mechanism, tuple(ranges[1:])))
