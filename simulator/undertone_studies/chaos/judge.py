"""Verdict on a soak: is every report explained, is θ right, has the log every expected line."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from statistics import median

from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.ingest.admission import OTHER_CAMPAIGN
from undertone_aggregator.store.store import Store
from undertone_shared.report import fingerprint_of
from undertone_simulator.demo.plan import PreparedDemo
from undertone_simulator.fast.simulation import Simulation
from undertone_simulator.wire.ledger import Sent
from undertone_simulator.wire.verify import Accounts, Judged, digest_key
from undertone_studies.chaos.schedule import Event
from undertone_studies.chaos.soak import FULL, OFFLINE, ONLINE, SoakProcesses

# Event -> regular expression that a line of the server's log must match at least once.
SAID = {
    "aggregator-kill": r"resuming campaign",
    "aggregator-term": r"resuming campaign",
    "offline-kill": r"resuming campaign",
    "offline-term": r"resuming campaign",
    "worker-kill": r"ended with code -9: starting it again",
    "broker-kill": r"connected again|cannot be reached",
    "broker-term": r"connected again|cannot be reached",
    "disk-full": re.escape(FULL),
}
# Fault after which a server must not start, or not run its campaign -> pattern of the sentence that says why.
REFUSED = {
    "edit": r"campaign\.epsilon .* -> .*Nothing was changed",
    "second-server": r"another server serves",
    "other-store": r"another server issued",
}
# Largest ratio, either way, of θ under faults to θ without. With at least MANY epochs it applies to the median θ; with
# fewer epochs, to the ends of the server's intervals for θ that are nearest to each other.
FACTOR = 2.0
MANY = 9


def failures(soak: SoakProcesses, events: Iterable[Event], accounts: Accounts, store: Store) -> Iterator[str]:
    """Yield a sentence for each failed condition."""
    names = [event.name for event in events]
    if not accounts.holds:
        counts = ", ".join(f"{n} {what}" for what, n in accounts.unexplained.items())
        yield f"unexplained reports: {counts}; {'; '.join(accounts.examples[:5])}"
    if not accounts.counted:
        yield "no report was counted"
    yield from soak.ended
    log = soak.log()
    for name, pattern in SAID.items():
        times = sum(bool(re.search(pattern, sentence)) for sentence in log)
        if name in names and not times:
            yield f"{name}: no line of the server's log matches {pattern!r}"
    for event, sentence in soak.refusals:
        if not re.search(REFUSED[event], sentence):
            yield f"{event}: the server said {sentence!r}, which does not match {REFUSED[event]!r}"
    if "flood" in names and not accounts.rejected_deliveries:
        yield "flood: the server rejected no report"
    yield from _thetas(soak.plan, Timeline(store.epochs()))


def refused_in_absence(sent: Sent, judged: Judged, timeline: Timeline, hostile: str) -> Iterator[str]:
    """Yield a sentence for each epoch that was decided while devices were offline and that refused their reports.

    The devices could not know such an epoch.
    """
    begun = [moment for moment, name, _ in sent.faults if name == OFFLINE]
    over = [moment for moment, name, _ in sent.faults if name == ONLINE]
    absences = list(zip(begun, [*over, *([math.inf] * (len(begun) - len(over)))], strict=True))
    following = {epoch.campaign.fingerprint: later for epoch, later in pairwise(timeline.epochs)}
    refused: Counter[Epoch] = Counter()
    for key in sent.sent:
        if key[0] != hostile and judged.get(digest_key(key)) == OTHER_CAMPAIGN:
            later = following.get(fingerprint_of(key[1]))
            if later is not None and any(first <= 1000 * later.issued_at <= last for first, last in absences):
                refused[later] += 1
    for epoch, n in refused.items():
        yield (
            f"the server issued the epoch that begins at Unix second {epoch.campaign.epoch} while devices were offline,"
            f" and refused {n} of their reports"
        )


def _thetas(plan: PreparedDemo, timeline: Timeline) -> Iterator[str]:
    chaos = thetas(timeline)
    if not chaos:
        yield "no report epoch began"
        return
    undisturbed = _undisturbed(plan)
    if len(chaos) >= MANY:
        least = most = median(thetas(undisturbed))
        low = high = median(chaos)
    else:
        (least, most), (low, high) = _interval(undisturbed), _interval(timeline)
    if not (low / FACTOR <= most and least <= high * FACTOR):
        yield (
            f"theta is {_span(low, high)} in the run with faults, and {_span(least, most)} in a simulation of this"
            f" fleet without faults: expected a ratio of at most {FACTOR:g}"
        )


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"between {low:g} and {high:g}"


def _interval(timeline: Timeline) -> tuple[int, int]:
    """Return the server's interval for θ in the report epoch with the median θ."""
    reporting = [epoch.threshold for epoch in timeline.epochs if epoch.campaign.rule.ranges and epoch.threshold]
    middle = sorted(reporting, key=lambda threshold: threshold.theta)[(len(reporting) - 1) // 2]
    return middle.low, middle.high


def thetas(timeline: Timeline) -> list[int]:
    """Return θ of each report epoch; if blocks of the day have different θ, the highest."""
    return [max(theta for _, _, theta in ranges) for epoch in timeline.epochs if (ranges := epoch.campaign.rule.ranges)]


def _undisturbed(plan: PreparedDemo) -> Timeline:
    """Return the timeline of the same fleet without faults."""
    return Simulation(plan.config.campaign, plan.readings, len(plan.names), 1, playback=plan.playback).run().timeline
