"""The shipped reporter core with one change: it can report dishonestly."""

from typing import TYPE_CHECKING

from undertone_device.core.reporter import Reporter
from undertone_shared.off_board.intake import unpack
from undertone_shared.report import COHORT, STREAM, pack
from undertone_shared.stream import StreamRule

if TYPE_CHECKING:
    from undertone_device.core.protocols import Sample
    from undertone_shared.campaign import Campaign
    from undertone_shared.notation import Mechanism


def largest_lie(mechanism: "Mechanism") -> int:
    """Return the largest symbol that the server admits."""
    return max(symbol for symbol in range(mechanism.symbols) if mechanism.occurs(symbol))


class Liar(Reporter):
    """A reporter that, while ``lying``, sends the largest symbol in every report; for streams, the top of the range.

    Its reports are valid and are counted.
    """

    lying = False

    def _draw(self, campaign: "Campaign", slot: int, reading: "Sample") -> bytes:
        honest = super()._draw(campaign, slot, reading)
        if not self.lying:
            return honest
        report = unpack(honest)
        if report.kind == STREAM:
            assert isinstance(campaign.rule, StreamRule)
            top = campaign.rule.levels // 2
            return pack(STREAM, report.fingerprint, slot, (top,) * len(report.values), report.sequence, report.chain)
        mechanism = dict(campaign.rule.mechanisms)["cohort" if report.kind == COHORT else "report"]
        return pack(report.kind, report.fingerprint, slot, (largest_lie(mechanism),), report.sequence)
