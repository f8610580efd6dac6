"""The two accounting identities between a fleet's ledger and the aggregator's store, and their check.

Deliveries: received = counted + duplicates + rejected by reason, and the histograms contain as many reports as were
counted. Distinct reports: sent = counted + rejected by reason + lost by a named fault. Everything else is unexplained:
a report that the broker acknowledged but the server never counted or rejected, a report that the server has but nobody
sent, a report that is still under way, a slot for which a device drew twice.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from undertone_aggregator.base.plural import many
from undertone_aggregator.counts.seen import COUNTED
from undertone_aggregator.ingest.admission import DUPLICATES
from undertone_aggregator.store.inventory import REVOKED
from undertone_aggregator.store.store import RECEIVED, Store
from undertone_shared.errors import Invalid
from undertone_shared.off_board.intake import unpack
from undertone_shared.report import COHORT, LENGTH, fingerprint_of
from undertone_simulator.wire.ledger import BROKER_WINDOW_SECONDS, Key, Sent

BROKER_KILLED = "broker_killed"
BROKER_STARTED = "broker_started"
_EXAMPLES = 10


@dataclass
class Accounts:
    """The numbers in both accounting identities, and sentences about unexplained reports, at most ten of a kind."""

    deliveries: dict[str, int] = field(default_factory=dict)
    in_histograms: int = 0
    sent: int = 0
    acknowledged: int = 0
    counted: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    unexplained: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    @property
    def received(self) -> int:
        """Number of deliveries, including redeliveries."""
        return self.deliveries.get(RECEIVED, 0)

    @property
    def duplicates(self) -> int:
        """Number of deliveries of reports that were counted before, or may have been."""
        return sum(self.deliveries.get(word, 0) for word in DUPLICATES)

    @property
    def rejected_deliveries(self) -> dict[str, int]:
        """Number of refused deliveries, by reason."""
        return {word: n for word, n in sorted(self.deliveries.items()) if word not in (RECEIVED, COUNTED, *DUPLICATES)}

    @property
    def holds(self) -> bool:
        """True if both identities hold with nothing unexplained."""
        return not self.unexplained

    def sentence(self) -> str:
        """Return the accounts as a sentence."""
        unexplained = many(self.unexplained.total(), "is", "are")
        return (
            f"accounts: {many(self.sent, 'report')} sent, {self.acknowledged} acknowledged, {self.counted} counted,"
            f" {many(self.duplicates, 'duplicate delivery', 'duplicate deliveries')}, {self.rejected.total()} rejected,"
            f" {self.lost.total()} lost by a named fault,"
            f" {'nothing is' if self.holds else unexplained} unexplained"
        )

    def summary(self) -> dict[str, Any]:
        """Return the accounts for the demo's JSON."""
        return {
            "sent": self.sent,
            "received": self.received,
            "acknowledged": self.acknowledged,
            "counted": self.counted,
            "duplicates": self.duplicates,
            "rejected": self.rejected_deliveries,
            "lost": dict(self.lost),
        }

    def as_json(self) -> dict[str, Any]:
        """Return all numbers, for `undertone verify --json`."""
        return {
            "deliveries": {
                "received": self.received,
                "counted": self.deliveries.get(COUNTED, 0),
                "duplicates": self.duplicates,
                "rejected": self.rejected_deliveries,
                "in_histograms": self.in_histograms,
            },
            "reports": {
                "sent": self.sent,
                "acknowledged": self.acknowledged,
                "counted": self.counted,
                "rejected": dict(self.rejected),
                "lost": dict(self.lost),
            },
            "faults": dict(self.faults),
            "unexplained": dict(self.unexplained),
            "examples": self.examples,
            "holds": self.holds,
        }

    def wonder(self, what: str, about: str) -> None:
        """Count a discrepancy of the kind ``what``. ``about`` says where it is; the first few are kept as examples."""
        self.unexplained[what] += 1
        if self.unexplained[what] <= _EXAMPLES:
            self.examples.append(f"{what}: {about}")


Judged = dict[Key, str]


def outcomes(store: Store) -> Judged:
    """Return the outcome of each distinct report: (device, first 8 bytes of its sha256) → outcome.

    Raises Invalid for a store that counted reports without an audit.
    """
    judged = {(device, bytes(digest)): outcome for device, digest, outcome in store.audit()}
    if not judged and store.outcomes()[RECEIVED]:
        raise Invalid(f"{store.name} has no audit of its reports: run the server with audit = true in [store]")
    return judged


def counted_reports(sent: Sent, judged: dict[Key, str]) -> set[Key]:
    """Return the reports of the ledgers that were counted."""
    return {key for key in sent.sent if judged.get(digest_key(key)) == COUNTED}


def digest_key(key: Key) -> Key:
    """Return (device, digest of the report), the key in the audit."""
    return key[0], hashlib.sha256(key[1]).digest()[:8]


def reconcile(
    sent: Sent,
    store: Store,
    *,
    landed: Judged | None = None,
    broker_window: float = BROKER_WINDOW_SECONDS,
    hostile: Collection[str] = (),
) -> Accounts:
    """Check both identities, from all ledgers of the fleet and the store of the aggregator. Raises Invalid.

    `broker_window`: in this many seconds before a broker was killed, it may have lost messages that it acknowledged.
    Acknowledgements that were on the network are read later, so those until the broker's recorded restart may be from
    the killed broker, too. ``hostile``: devices whose draws and turns are not checked. ``landed``: the audit of landed
    files instead of the store's own, if Spark counts: `undertone_operate.examine.recount.landed_audit`.
    """
    judged = outcomes(store) if landed is None else dict(landed)
    counters = store.outcomes()
    result = Accounts(
        deliveries=dict(counters),
        in_histograms=store.partial().reports,
        sent=len(sent.sent),
        acknowledged=len(sent.acked),
        faults=sent.fault_counts(),
    )
    outages = list(_outages(sent, broker_window))
    revoked = {name for name, device in store.devices().items() if device.state == REVOKED}
    for key in sent.sent:
        outcome = judged.pop(digest_key(key), None)
        if outcome == COUNTED:
            result.counted += 1
        elif outcome is not None:
            result.rejected[outcome] += 1
        elif key in sent.acked:
            if any(first <= sent.acked[key] <= last for first, last in outages):
                result.lost[BROKER_KILLED] += 1
            else:
                result.wonder("acknowledged, but neither counted nor rejected", _name(key))
        elif key in sent.lost:
            result.lost[sent.lost[key]] += 1
        elif key[0] in revoked:
            # The broker disconnected the device while this report was under way.
            result.lost[REVOKED] += 1
        else:
            result.wonder("still under way", _name(key))
    for (device, digest), outcome in judged.items():
        result.wonder(
            "counted or rejected, but not sent", f"{device or 'an unknown device'}, digest {digest.hex()}, {outcome}"
        )
    _check_draws(sent, result, hostile)
    _check_schedule(sent, store, result, hostile)
    if result.in_histograms != counters[COUNTED]:
        result.wonder("histograms", f"they hold {result.in_histograms} reports, {counters[COUNTED]} were counted")
    if not judged and result.counted != counters[COUNTED]:
        result.wonder("counted twice", f"{counters[COUNTED]} deliveries for {result.counted} distinct reports")
    return result


def _outages(sent: Sent, window: float) -> Iterator[tuple[float, float]]:
    """Yield (first, last) millisecond in which an acknowledgement may come from a broker that was killed."""
    starts = sorted(moment for moment, name, _ in sent.faults if name == BROKER_STARTED)
    for kill, name, _ in sent.faults:
        if name == BROKER_KILLED:
            yield kill - 1000 * window, next((moment for moment in starts if moment >= kill), kill)


def _check_schedule(sent: Sent, store: Store, result: Accounts, hostile: Collection[str]) -> None:
    """Check that each report of a campaign in the store is from its device's turn, and has the right kind."""
    campaigns = {epoch.campaign.fingerprint: epoch.campaign for epoch in store.epochs()}
    for device, data in sent.sent:
        if device in hostile or len(data) < LENGTH:
            continue
        campaign = campaigns.get(fingerprint_of(data))
        if campaign is None:
            # A report of an unknown campaign is skipped here: the store counts it under the outcome other_campaign.
            continue
        report = unpack(data)
        place = campaign.schedule.place(device)
        if not campaign.schedule.is_turn(place, report.slot):
            result.wonder("out of turn", _name((device, data)))
        elif campaign.rule.kind == "scalar" and (report.kind == COHORT) != campaign.schedule.is_member(
            place, report.slot
        ):
            result.wonder("of the wrong kind", _name((device, data)))


def _check_draws(sent: Sent, result: Accounts, hostile: Collection[str]) -> None:
    """Check that no device reports one slot with two different draws."""
    drawn: dict[tuple[str, int], bytes] = {}
    for device, report in sent.sent:
        if device in hostile:
            continue
        try:
            slot = unpack(report).slot
        except Invalid:
            continue
        if drawn.setdefault((device, slot), report) != report:
            result.wonder("drawn twice", f"{device}, slot {slot}")


def _name(key: Key) -> str:
    return f"{key[0]}, report {key[1].hex()}"
