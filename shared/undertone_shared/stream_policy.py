"""The device owner's limits for streams. A board imports this module only if its policy has such limits."""

from undertone_shared.checks import SMALL, check_integer, check_object, integers
from undertone_shared.errors import Invalid, Refused
from undertone_shared.report import LARGEST_DIMENSION
from undertone_shared.stream import LARGEST_RHO, LAWS, RHO_UNIT, StreamRule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from undertone_shared.campaign import Campaign

_CENTURY = 36525 * 86400
LARGEST_LIFETIME = 1 << 62


class StreamPolicy:
    """The owner's limits for streams, at user level: for all reports in a period of ``period_seconds`` together.

    ``rho``: the cap on ρ in multiples of 2^-20. ``laws``: allowed kinds of noise. ``dimension``: coordinates of a
    reading. ``per_report``: the cap is for a single report and not for a period, so that a stream of l reports may cost
    l times as much; l must then be at most the number of slots of a window. ``lifetime``: the largest total charge of
    all streams, in the same unit, 0 for no limit. Instead of ``rho``: ``epsilon`` = [p, q] and ``delta_bits`` = k; the
    cap is then computed by `rho_below`, so that it gives (p/q, 2^-k)-DP (Bun, Steinke, TCC 2016). Raises Invalid for a
    wrong field.
    """

    def __init__(self, fields: "dict[str, Any]"):
        budget = ("epsilon", "delta_bits") if isinstance(fields, dict) and "epsilon" in fields else ("rho",)
        check_object("stream", fields, budget + ("period_seconds",), ("laws", "dimension", "per_report", "lifetime"))
        if "epsilon" in fields:
            self.rho = rho_below(fields["epsilon"], fields["delta_bits"])
        else:
            self.rho = check_integer("stream.rho", fields["rho"], 1, LARGEST_RHO)
        self.lifetime = check_integer("stream.lifetime", fields.get("lifetime", 0), 0, LARGEST_LIFETIME)
        self.period_seconds = check_integer("stream.period_seconds", fields["period_seconds"], 1, _CENTURY)
        laws = fields.get("laws", list(LAWS))
        if not isinstance(laws, list) or not laws or [law for law in laws if law not in LAWS]:
            raise Invalid("stream.laws is %r, expected a list of some of %s" % (laws, ", ".join(LAWS)))
        self.laws = tuple(laws)
        self.dimension = check_integer("stream.dimension", fields.get("dimension", 1), 1, LARGEST_DIMENSION)
        self.per_report = fields.get("per_report", False)
        if not isinstance(self.per_report, bool):
            raise Invalid("stream.per_report is %r, expected true or false" % (self.per_report,))

    def check(self, campaign: "Campaign", rule: StreamRule) -> None:
        """Check a stream by itself, without earlier charges. Raises Refused if it is more than the owner allows."""
        if rule.law not in self.laws or rule.dimension != self.dimension:
            raise Refused(
                "stream",
                "the stream is %s of dimension %d, expected %s of dimension %d"
                % (rule.law, rule.dimension, " or ".join(self.laws), self.dimension),
            )
        if self.per_report:
            slots = min(campaign.last_slot - campaign.first_slot + 1, rule.renewal or rule.reports)
            if rule.reports > slots:
                raise Refused(
                    "rho", "rule.reports is %d, expected at most the %d slots of a window" % (rule.reports, slots)
                )
            self._check(rule.report_charge(), self.rho, "a report of the stream costs")
        self.check_total(self.charge(campaign, rule), rule)

    def charge(self, campaign: "Campaign", rule: StreamRule) -> int:
        """Return the most ρ that the stream costs in a period of the policy, in multiples of 2^-20."""
        return rule.charge() * rule.windows(self.period_seconds, campaign.slot_seconds, campaign.epoch)

    def check_lifetime(self, total: int) -> None:
        """Check the ``total`` charge of all streams. Raises Refused if it is above the lifetime limit."""
        if self.lifetime and total > self.lifetime:
            raise Refused(
                "rho", "all streams cost rho = %d/2^20, expected at most %d/2^20 in a life" % (total, self.lifetime)
            )

    def cap(self, rule: StreamRule) -> int:
        """Return the largest total charge that is allowed in a period in which this stream reports."""
        return min(self.rho * rule.reports if self.per_report else self.rho, LARGEST_RHO)

    def check_total(self, total: int, rule: StreamRule) -> None:
        """Check a period's ``total``. Raises Refused if it is above the cap."""
        self._check(total, self.cap(rule), "all streams of a period cost")

    def _check(self, total: int, cap: int, what: str) -> None:
        if total > cap:
            raise Refused("rho", "%s rho = %d/2^20, expected at most %d/2^20" % (what, total, cap))


def rho_below(epsilon: object, bits: int) -> int:
    """Return the largest multiple of 2^-20 with ρ + 2√(ρ k 25/36) <= p/q, as the number of these units.

    25/36 is slightly more than ln 2, so that integers suffice. Raises Invalid.
    """
    p, q = integers("stream.epsilon", epsilon, 2, 2)
    check_integer("stream.epsilon's denominator", q, 1, SMALL)
    check_integer("stream.epsilon's numerator", p, 1, 64 * q)
    k = check_integer("stream.delta_bits", bits, 1, 1000)
    low, high = 0, LARGEST_RHO
    while low < high:
        rho = (low + high + 1) // 2
        rest = p * RHO_UNIT - q * rho
        if rest >= 0 and 36 * rest * rest >= 100 * k * rho * q * q * RHO_UNIT:
            low = rho
        else:
            high = rho - 1
    return check_integer("the rho of stream.epsilon and delta_bits", low, 1, LARGEST_RHO)
