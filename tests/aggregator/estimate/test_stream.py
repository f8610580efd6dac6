"""Streams from devices' integers through admission to estimates: the stated errors hold, also if reports are lost."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support import server
from support.tables import tables_of
from undertone_aggregator.campaign.collection import cells_of, collection_of
from undertone_aggregator.campaign.epoch_source import EpochMeans
from undertone_aggregator.campaign.stream_rounds import StreamRounds, stream_rule
from undertone_aggregator.counts.chains import Chains
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.counts.moments import LAGS
from undertone_aggregator.counts.partial import EVERYBODY, Partial
from undertone_aggregator.counts.seen import Seen
from undertone_aggregator.estimate.estimates import Series, Z
from undertone_aggregator.estimate.estimator import estimates_of
from undertone_aggregator.estimate.series_filter import SeriesFilter
from undertone_aggregator.estimate.stream import Curve, StreamReconstruction
from undertone_aggregator.ingest.admission import Admission
from undertone_aggregator.settings.config import parse_config
from undertone_aggregator.store.store import Batch
from undertone_shared.errors import Invalid
from undertone_shared.report import REPORT, STREAM, pack
from undertone_shared.stream import StreamRule
from undertone_shared.topics import report_topic

SLOT = 1800
START = 1_800_000_000 // SLOT * SLOT
FIRST = START // SLOT
TOML = """
[campaign]
name = "load"
sensor = "energy"
unit = "Wh"
bound = 2000
epsilon = "4"
lead_slots = 1
report_slots = 240
collect = "stream"

[stream]
mechanism = "MECHANISM"
reports = 48
chains = 4
slew = 0.05
"""


def config(mechanism="gaussian", **changes):
    made = parse_config(TOML.replace("MECHANISM", mechanism).replace('"4"', "4"), Path())
    return replace(made, stream=replace(made.stream, **changes))


class Fleet:
    """Devices that compute with the integers of real devices, but draw their noise from numpy's generator."""

    def __init__(self, mechanism="gaussian", devices=200, seed=1, **changes):
        self.config = config(mechanism, **changes)
        self.epoch = StreamRounds(
            self.config.campaign, self.config.stream, EpochMeans(server.SEED, lambda *_: Partial())
        ).first(START - SLOT)
        assert self.epoch.campaign.first_slot == FIRST
        self.rule: StreamRule = self.epoch.campaign.rule
        self.rng = np.random.default_rng(seed)
        self.devices = devices
        self.state = [None] * devices
        self.readings = np.zeros(devices)

    def below(self, n):
        return int(self.rng.integers(n))

    def report(self, device, slot, reading):
        """Return (topic, payload), and keep the clipped reading for comparison."""
        rule = self.rule
        before = self.state[device]
        noise = ()
        if rule.law == "gaussian":
            scale = rule.noise[0] if before is None else rule.noise[1]
            noise = tuple(round(float(z) * scale**0.5) for z in self.rng.standard_normal(rule.dimension))
        point = rule.point((reading,) * rule.dimension, 0, self)
        if before is None:
            index, released = 1, rule.first(point, noise, self)
        else:
            index, last, x = before
            point = rule.clip(point, last)
            index, released = index + 1, rule.later(point, last, x, noise, self)
        self.state[device] = (index, point, released)
        self.readings[device] = (point[0] + rule.levels / 2) * rule.width / rule.levels
        name = f"meter-{device}"
        payload = pack(STREAM, self.epoch.campaign.fingerprint, slot, released, 1, index)
        return report_topic("u/v1", "load", name), payload


def admission(fleet, chains=None):
    rules = Admission("u/v1", "load", SLOT, Seen(), cells=cells_of, chains=chains)
    rules.timeline = Timeline([fleet.epoch])
    return rules


def truth(slot):
    return 900 + 300 * np.sin((slot - FIRST) / 6)


def play(fleet, slots, *, lost=0.0, rebooted=0.0):
    """Return the reports of a run that are not lost, and the mean clipped reading of every slot."""
    reports, means = [], []
    for slot in range(FIRST, FIRST + slots):
        for device in range(fleet.devices):
            if fleet.rng.random() < rebooted / slots:
                fleet.state[device] = None
            report = fleet.report(device, slot, round(truth(slot)))
            if fleet.rng.random() >= lost:
                reports.append(report)
        means.append(fleet.readings.mean())
    return reports, np.array(means)


def ingest(fleet, reports, now=START + 60 * SLOT):
    rules, batch = admission(fleet), Batch()
    for topic, payload in reports:
        rules.judge(topic, payload, False, now, batch)
    return batch


@pytest.mark.slow_but("direct")
@pytest.mark.parametrize("mechanism", ["gaussian", "one-bit", "direct"])
def test_errors_are_as_stated_with_losses_reboots_and_reordering(mechanism):
    # 10 % of reports are lost, 5 % of devices reboot, and reports are reordered within a day. Squared errors divided by
    # their stated variances have the mean 1.
    ratios = []
    for seed in range(6):
        fleet = Fleet(mechanism, 60, seed)
        reports, means = play(fleet, 40, lost=0.1, rebooted=0.05)
        fleet.rng.shuffle(reports)
        batch = ingest(fleet, reports)
        assert batch.outcomes["counted"] == len(reports) == batch.partial.reports
        series = StreamReconstruction(Timeline([fleet.epoch])).curve(tables_of(batch.partial))
        assert series.slots.tolist() == list(range(FIRST, FIRST + 40))
        off = series.mean - means
        ratios.append(off @ np.linalg.solve(series.covariance(), off) / 40)
        assert np.abs(off).max() < 6 * series.standard_error.max()
    # A chi-square variable of 240 degrees of freedom, divided by 240, is outside 0.5 to 1.6 with a probability of 1e-8.
    assert 0.5 < np.mean(ratios) < 1.6


@pytest.mark.slow
def test_sums_over_slots_know_their_covariance():
    squared = {}
    for mechanism in ("gaussian", "direct"):
        ratios = []
        for seed in range(40):
            fleet = Fleet(mechanism, 3, 100 + seed)
            reports, means = play(fleet, 24)
            partial = ingest(fleet, reports).partial
            (estimate,) = [
                r
                for r in StreamReconstruction(Timeline([fleet.epoch])).ranges(tables_of(partial), EVERYBODY, 240)
                if r.slots == 24
            ]
            ratios.append(((estimate.truncated_mean - means.mean()) / estimate.truncated_se) ** 2)
            squared[mechanism] = estimate.truncated_se
        # A chi-square variable of 40 degrees of freedom, divided by 40, is outside 0.25 to 2.4 with a probability of
        # 2e-6.
        assert 0.25 < np.mean(ratios) < 2.4
    # For a mean over 24 slots, correlated noise has the larger error.
    assert squared["gaussian"] > squared["direct"]


def test_intervals_are_z_errors_to_either_side_of_slots_and_of_runs():
    fleet = Fleet(devices=5)
    reports, _ = play(fleet, 20)
    partial = ingest(fleet, reports).partial
    streams = StreamReconstruction(Timeline([fleet.epoch]))
    curve = streams.curve(tables_of(partial))
    slots = estimates_of(streams, partial)
    assert [estimate.slot for estimate in slots] == curve.slots.tolist()
    for estimate, error in zip(slots, curve.standard_error, strict=True):
        assert estimate.start == estimate.slot * SLOT
        assert estimate.truncated_se == pytest.approx(error)
        half = Z * estimate.standard_error
        assert (estimate.low, estimate.high) == (estimate.estimate - half, estimate.estimate + half)
    every = 9
    runs = streams.ranges(tables_of(partial), EVERYBODY, every)
    # The reports begin in the middle of the first run, and end in the middle of the last one.
    assert runs[0].first < FIRST
    assert runs[-1].last > FIRST + 19
    assert sum(run.slots for run in runs) == 20
    # For single slots here and there, the covariance is that of these slots alone.
    some = [slot for slot in curve.slots.tolist() if slot % 5 in (0, 1, 3)]
    (mean,) = streams.means(tables_of(partial), EVERYBODY, [*some, FIRST + 1000])
    chosen = np.isin(curve.slots, some)
    assert (mean.slots, mean.reports) == (len(some), 5 * len(some))
    assert mean.truncated_mean == pytest.approx(curve.mean[chosen].mean())
    both = curve.covariance()[np.ix_(chosen, chosen)]
    assert mean.truncated_se == pytest.approx(math.sqrt(both.sum()) / len(some))
    for run in runs:
        inside = (curve.slots >= run.first) & (curve.slots <= run.last)
        assert (run.first % every, run.last, run.start) == (0, run.first + every - 1, run.first * SLOT)
        assert (run.slots, run.reports) == (inside.sum(), 5 * inside.sum())
        assert run.truncated_mean == pytest.approx(curve.mean[inside].mean())
        covariance = curve.covariance()[np.ix_(inside, inside)]
        assert run.truncated_se == pytest.approx(math.sqrt(covariance.sum()) / inside.sum())
        assert (run.low, run.high) == pytest.approx(
            (run.estimate - Z * run.standard_error, run.estimate + Z * run.standard_error)
        )


def test_noise_is_carried_from_the_slot_before_on_the_same_chain():
    # There are two chains. Slot 13 is missing. In the chain of slot 15, the report before is that of slot 11, four
    # slots earlier.
    slots = np.array([10, 11, 12, 14, 15])
    band = np.zeros((5, LAGS + 1))
    band[:, 0] = [4.0, 5.0, 8.0, 10.0, 16.0]
    band[2, 2], band[3, 2], band[4, 4], band[4, 3], band[1, 1] = 1.0, 2.0, 3.0, 99.0, 99.0
    curve = Curve(slots, np.ones(5, dtype=np.int64), np.zeros(5), band)
    assert curve.carried(2).tolist() == [0, 0, 1 / 4, 2 / 8, 3 / 5]


def test_order_restart_and_duplicates_change_nothing():
    fleet = Fleet(devices=8)
    reports, _ = play(fleet, 12, rebooted=0.5)
    whole = ingest(fleet, reports).partial
    shuffled = list(reports)
    fleet.rng.shuffle(shuffled)
    assert ingest(fleet, shuffled + reports[:30]).partial == whole
    # The server runs twice, and the second run reads the chains back from the records of the first.
    first, second = Batch(), Batch()
    rules = admission(fleet)
    for topic, payload in shuffled[:50]:
        rules.judge(topic, payload, False, START + 60 * SLOT, first)
    chains = Chains()
    chains.load([(False, bytes(first.chains))])
    seen, rules = rules.seen, admission(fleet, chains)
    rules.seen = seen
    for topic, payload in shuffled[50:]:
        rules.judge(topic, payload, False, START + 60 * SLOT, second)
    assert first.partial.merge(second.partial) == whole


@pytest.mark.slow
def test_filtering_lowers_the_error_and_says_so():
    better, stated = [], []
    for seed in range(4):
        fleet = Fleet("direct", 100, 50 + seed)
        reports, means = play(fleet, 48)
        partial = ingest(fleet, reports).partial
        streams = StreamReconstruction(Timeline([fleet.epoch]))
        raw = estimates_of(streams, partial)
        smooth = SeriesFilter(SLOT, 48, chains=streams.chains).smoothed(raw)
        assert [estimate.slot for estimate in raw] == [estimate.slot for estimate in smooth]
        errors = [np.array([e.truncated_mean for e in estimates]) - means for estimates in (raw, smooth)]
        better.append(np.square(errors[1]).mean() / np.square(errors[0]).mean())
        stated.append(np.square(errors[1] / np.array([e.truncated_se for e in smooth])).mean())
    assert np.mean(better) < 0.7
    assert 0.2 < np.mean(stated) < 3


def test_vectors_come_out_coordinate_by_coordinate():
    fleet = Fleet(devices=4)
    fields = fleet.rule.describe()
    fields["dimension"] = 2
    fleet.rule = StreamRule(fields)
    fleet.epoch.campaign.rule = fleet.rule
    reports, _ = play(fleet, 3)
    batch = ingest(fleet, reports)
    assert batch.outcomes["counted"] == 12
    series = {
        estimate.series for estimate in estimates_of(StreamReconstruction(Timeline([fleet.epoch])), batch.partial)
    }
    assert series == {Series("all", 1), Series("all", 2)}


def test_what_is_not_a_report_of_the_stream_is_refused_for_a_reason():
    fleet = Fleet(devices=1)
    topic, payload = fleet.report(0, FIRST, 900)
    mark = fleet.epoch.campaign.fingerprint
    far = fleet.rule.largest_release()
    offers = [
        (pack(REPORT, mark, FIRST, (3,), 1), "wrong_kind"),
        (pack(STREAM, mark, FIRST, (3, 4), 1, 1), "malformed"),
        (pack(STREAM, mark, FIRST, (3,), 1, 49), "symbol"),
        (pack(STREAM, mark, FIRST, (far + 1,), 1, 1), "symbol"),
        (pack(STREAM, b"nonenone", FIRST, (3,), 1, 1), "other_campaign"),
        (pack(STREAM, mark, FIRST + 239, (3,), 1, 1), "future"),
        (payload, "counted"),
        (payload, "duplicate"),
        (payload[:14] + b"\0\0\0\1\0\1" + payload[20:], "conflict"),
    ]
    rules = admission(fleet)
    for data, reason in offers:
        assert rules.judge(topic, data, False, START + 2 * SLOT, Batch()) == reason, reason


def test_plans_are_checked_and_described():
    rule = stream_rule(config().campaign, config().stream)
    collection = collection_of("stream")
    cost = collection.guarantee(Fleet(devices=1).epoch.campaign, config().budget)
    text = cost.sentence
    assert "user-level" in text
    assert "(4, 1e-05)" in text
    assert f"{rule.charge() / 2**20:.5f}" in text
    assert cost.certificate is None
    one_bit = collection.guarantee(Fleet("one-bit", 1).epoch.campaign, config().budget)
    assert one_bit.certificate is not None
    assert 1 < one_bit.certificate < 2
    assert StreamRounds(config().campaign, config().stream, EpochMeans(server.SEED, lambda *_: Partial())).warnings()
    for line in ("slew = 0.5", "slew = 0", "delta = 1", "delta = 0", "reports = 0", 'mechanism = "x"', "theta = true"):
        name = line.split()[0]
        kept = [
            row for row in TOML.replace("MECHANISM", "gaussian").replace('"4"', "4").splitlines() if name not in row
        ]
        with pytest.raises(Invalid, match=r"stream\."):
            parse_config("\n".join([*kept, line]), Path())
