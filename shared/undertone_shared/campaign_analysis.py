"""What a receiver asks of a campaign, and a device never does: the base of the class there.

A board does not carry this module.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_shared.scalar import Cohort, ReportRule, ScalarRule
    from undertone_shared.stream import StreamRule


class CampaignAnalysis:
    """What a receiver asks of a `Campaign`."""

    rule: "ScalarRule | StreamRule"

    @property
    def cohort(self) -> "Cohort | None":
        """Who reports for the threshold; None where nobody does."""
        return self.rule.cohort

    @property
    def report(self) -> "ReportRule | None":
        """How devices report that are not asked for the threshold; None in threshold epochs and streams."""
        return self.rule.report
