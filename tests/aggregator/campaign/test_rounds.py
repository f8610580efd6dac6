"""The rounds of whole campaigns, whose devices all report as soon as a slot ends, also with restarts of the server."""

import contextlib
import json
import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import server
from support.rounds import DEVICES, NOW, Outlet, report_slot
from undertone_aggregator.base.log import Journal
from undertone_aggregator.campaign import rounds as module
from undertone_aggregator.campaign import settling
from undertone_aggregator.campaign.collection import estimator_of
from undertone_aggregator.campaign.coordinator import Coordinator
from undertone_aggregator.campaign.epoch_source import EpochMeans
from undertone_aggregator.campaign.presence import REMEMBERED, Presence, presence_of
from undertone_aggregator.campaign.rounds import Rounds
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.counts.partial import Key, Partial
from undertone_aggregator.estimate.estimator import Estimator
from undertone_aggregator.estimate.publication import publication_of
from undertone_aggregator.store.inventory import ACTIVE, Device
from undertone_aggregator.store.store import Batch, open_store
from undertone_aggregator.threshold import Query, Threshold, constant_variance
from undertone_aggregator.threshold.limits import LARGEST_CHANGE, limit_change, limit_first, limit_most
from undertone_shared import report
from undertone_shared.campaign import header


class Nobody:
    def write(self, _: str) -> int:
        return 0

    def flush(self) -> None:
        pass


def play(
    folder: Path,
    slots: int,
    *,
    restart_every: int = 10**9,
    scale: float = 40.0,
    away: range = range(0),
    journal: Any = None,
    **options: object,
) -> Outlet:
    """Run a campaign for ``slots`` slots of one second. Every ``restart_every`` slots, a new coordinator takes over.

    ``away``: slots in which no device reports.
    """
    journal = journal or Journal(Nobody())  # type: ignore[arg-type]
    config = server.config(folder, cells=16, **options)
    outlet, chance = Outlet(), random.Random(11)
    with open_store(folder / "s.sqlite") as store:
        store.set_meta({"campaign": "meters"})
        for second in range(slots):
            if second % restart_every == 0:
                coordinator = Coordinator(config, server.SEED, store, outlet, journal)
            if second and second - 1 not in away:
                report_slot(store, NOW + second - 1, chance, scale)
            coordinator.tick(NOW + second)
    return outlet


def test_the_status_says_what_each_group_does(tmp_path: Path) -> None:
    config = server.config(tmp_path, cells=16)
    with open_store(tmp_path / "s.sqlite") as store:
        store.set_meta({"campaign": "meters"})
        coordinator = Coordinator(config, server.SEED, store, Outlet(), Journal(Nobody()))  # type: ignore[arg-type]
        for group, n in (("north", 12), ("south", 10), ("solo", 1)):
            store.set_devices(Device(f"{group}-{number}", group, ACTIVE, 0) for number in range(n))
        coordinator.tick(NOW)
        batch = Batch(
            lost=Counter({("north", NOW): 5, ("solo", NOW): 1}),
            conflicts=Counter(north=2),
            outcomes=Counter(conflict=2),
        )
        store.commit("0of1", batch)
        coordinator.status(NOW + 1)
        rows = json.loads(store.meta()["status"])["devices"]
    # The status leaves out solo, which has one household. It also leaves out south: all devices less north and south
    # would give the numbers of solo.
    assert set(rows) == {"all", "north"}
    assert [rows[group]["conflicting"] for group in ("all", "north")] == [2, 2]
    assert [rows[group]["lost"] for group in ("all", "north")] == [6, 5]


def test_the_status_says_when_the_devices_fall_silent(tmp_path: Path) -> None:
    """The status says when no device reports any more.

    It counts the devices that report now, also if the newest settled slot is an old one.
    """
    left, chance = 20, random.Random(3)
    said = {}
    with open_store(tmp_path / "s.sqlite") as store:
        store.set_meta({"campaign": "meters"})
        store.set_devices(Device(f"meter-{number}", "all", ACTIVE, 0) for number in range(DEVICES + 5))
        config = server.config(tmp_path, cells=16, report_slots=400)
        coordinator = Coordinator(config, server.SEED, store, Outlet(), Journal(Nobody()))  # type: ignore[arg-type]
        for second in range(2 * left):
            if 0 < second <= left:
                report_slot(store, NOW + second - 1, chance, 40.0)
            coordinator.tick(NOW + second)
            if second in (0, left, 2 * left - 1):
                coordinator.status(NOW + second)
                said[second] = json.loads(store.meta()["status"])
    # Three moments: the campaign has not begun; all devices but five report; no device has reported for many slots.
    rows = [each["devices"]["all"] for each in said.values()]
    assert [(row["reporting"], row["silent"]) for row in rows] == [(None, None), (DEVICES, 5), (0, DEVICES + 5)]
    ends = [None, NOW + left - config.campaign.settle_slots, NOW + 2 * left - 1 - config.campaign.settle_slots]
    assert [each["devices_until"] for each in said.values()] == ends
    assert {each["settle_slots"] for each in said.values()} == {config.campaign.settle_slots}


def test_a_threshold_epoch_lasts_until_the_rounds_and_one_report_epoch_could_be_over() -> None:
    plan = server.plan(rounds=[5, 7], settle_slots=2, lead_slots=3, report_slots=20)
    first = Rounds(plan, EpochMeans(server.SEED, lambda *_: None)).first(NOW).campaign  # type: ignore[arg-type,return-value]
    # Each round is followed by slots to settle, slots to announce the next epoch, and the one that is running.
    assert first.last_slot - first.first_slot + 1 == (5 + 2 + 3 + 1) + (7 + 2 + 3 + 1) + 20


@pytest.mark.slow_but("1")
@pytest.mark.parametrize("restart_every", [10**9, 1])
def test_a_campaign_goes_through_its_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restart_every: int
) -> None:
    estimators: list[Timeline] = []

    def counted(timeline: Timeline, models: dict[str, float]) -> Estimator:
        estimators.append(timeline)
        return estimator_of(timeline, models)

    monkeypatch.setattr(settling, "estimator_of", counted)
    outlet = play(tmp_path, 44, restart_every=restart_every)
    with open_store(tmp_path / "s.sqlite") as store:
        epochs = store.epochs()
    # An estimator serves all slots until the next epoch is issued or the server starts again.
    assert len(estimators) <= (len(epochs) if restart_every > 44 else 44)
    assert [epoch.phase for epoch in epochs[:3]] == ["threshold", "threshold", "report"]
    assert [epoch.campaign.first_slot - NOW for epoch in epochs[:3]] == [2, 2 + 5 + 2, 2 + 2 * (5 + 2)]
    first, second, third = (epoch.campaign for epoch in epochs[:3])
    assert first.schedule.cohort_stride == second.schedule.cohort_stride == 1
    assert first.cohort.mechanism.edges != second.cohort.mechanism.edges, "the second round zooms in"
    assert third.report is not None
    assert 60 <= third.report.theta <= 400, "the readings' mean is 40, one in a thousand lies above 280"
    assert epochs[2].threshold is not None
    assert all(epoch.campaign.last_slot == third.first_slot + 19 for epoch in epochs[2:])
    broadcast = outlet.campaigns()
    assert [campaign.fingerprint for campaign in broadcast] == list(
        dict.fromkeys(campaign.fingerprint for campaign in broadcast)
    ) or restart_every == 1
    assert {campaign.fingerprint for campaign in broadcast} == {epoch.campaign.fingerprint for epoch in epochs}


@pytest.mark.slow
def test_a_restart_decides_nothing_else(tmp_path: Path) -> None:
    bodies = []
    for name, every in (("a", 10**9), ("b", 1)):
        (tmp_path / name).mkdir()
        play(tmp_path / name, 30, restart_every=every)
        with open_store(tmp_path / name / "s.sqlite") as store:
            bodies.append([epoch.campaign.body for epoch in store.epochs()])
    assert bodies[0] == bodies[1]


def test_a_round_without_reports_goes_on(tmp_path: Path) -> None:
    config, outlet = server.config(tmp_path), Outlet()
    with open_store(tmp_path / "s.sqlite") as store:
        coordinator = Coordinator(config, server.SEED, store, outlet, Journal(Nobody()))  # type: ignore[arg-type]
        for second in range(30):
            coordinator.tick(NOW + second)
        assert store.epoch_count() == 1
        report_slot(store, NOW + 28, random.Random(1), 40.0)
        coordinator.tick(NOW + 31)
        assert store.epoch_count() == 2


@pytest.mark.slow
def test_the_campaign_is_issued_again_every_hour(tmp_path: Path) -> None:
    outlet = Outlet()
    with open_store(tmp_path / "s.sqlite") as store:
        coordinator = Coordinator(
            server.config(tmp_path),
            server.SEED,
            store,
            outlet,
            Journal(Nobody()),  # type: ignore[arg-type]
        )
        for second in range(0, 3 * 3600, 30):
            coordinator.tick(NOW + second)
    messages = [payload for topic, payload in outlet.messages if topic.endswith("/config")]
    assert len(messages) == 3
    assert len({message[12:] for message in messages}) == 1, "only the header changes"
    assert len({message[:12] for message in messages}) == 3


def test_a_paused_campaign_stays_broadcast_also_after_a_restart(tmp_path: Path) -> None:
    """A device that hears no broadcast for days makes no reports, and a pause promises that reports still count."""
    before, during = Outlet(), Outlet()
    with open_store(tmp_path / "s.sqlite") as store:
        config, journal = server.config(tmp_path), Journal(Nobody())  # type: ignore[arg-type]
        Coordinator(config, server.SEED, store, before, journal).tick(NOW)
        paused = Coordinator(config, server.SEED, store, during, journal)
        for second in range(60, 3 * 3600, 30):
            paused.pause(NOW + second)
        assert store.epoch_count() == 1
    assert {topic for topic, _ in during.messages} == {"undertone/v2/meters/config"}
    issued = [header(payload)[0] for _, payload in during.messages]
    assert issued == [NOW + 60, NOW + 60 + 3600, NOW + 60 + 7200]
    assert {payload[12:] for _, payload in during.messages} == {before.messages[0][1][12:]}


@pytest.mark.slow
def test_a_clock_that_is_set_back_silences_nothing(tmp_path: Path) -> None:
    """When the clock is set back, the server publishes again: the campaign, its status and the newest settled slot.

    A device draws nothing while its campaign begins in the future, so it needs a campaign for the corrected time.
    """
    outlet, back = Outlet(), 7200
    with open_store(tmp_path / "s.sqlite") as store:
        store.set_meta({"campaign": "meters"})
        coordinator = Coordinator(
            server.config(tmp_path, rounds=[5], settle_slots=2),
            server.SEED,
            store,
            outlet,
            Journal(Nobody()),  # type: ignore[arg-type]
        )
        coordinator.tick(NOW)
        for second in (*range(2, 30), *range(back, back + 30)):
            report_slot(store, NOW + second, random.Random(second), 40.0)
            coordinator.tick(NOW + second + 1)
        outlet.messages.clear()
        coordinator.tick(NOW + 20)
    issued = [header(payload)[0] for topic, payload in outlet.messages if topic.endswith("/config")]
    assert issued == [NOW + 20]
    slots = [json.loads(payload)["slot"] for topic, payload in outlet.messages if topic.endswith("/all/raw")]
    # Slots that were published while the clock was ahead stay settled, and the newest of them is published again.
    assert slots == [NOW + 29]
    assert any(topic.endswith("/status") for topic, _ in outlet.messages)


def test_a_campaign_starts_when_it_is_planned() -> None:
    rounds = Rounds(server.plan(start=NOW + 50), EpochMeans(server.SEED, lambda *_: None))  # type: ignore[arg-type,return-value]
    assert rounds.first(NOW).campaign.epoch == NOW + 50
    assert rounds.first(NOW + 100).campaign.epoch == NOW + 102


def test_theta_changes_by_a_factor_of_two_at_most() -> None:
    chosen = Threshold(900, 800, 1000, 0.0, 0.0, 0.0, np.ones(1), (0, 1), "ems")
    assert limit_change(chosen, 1000) is chosen
    assert limit_change(chosen, 100).theta == 100 * LARGEST_CHANGE
    assert limit_change(chosen, 5000).theta == 5000 // LARGEST_CHANGE
    assert "becomes 200, because one epoch changes it by a factor of at most 2" in limit_change(chosen, 100).notices[-1]


class Notes(Nobody):
    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)


@pytest.mark.slow
def test_theta_stays_while_the_fleet_is_away(tmp_path: Path) -> None:
    # Reports begin at slot 16, and the server considers a new θ every 8 slots. No device reports in slots 26 to 75, in
    # which the server considers θ six times.
    notes = Notes()
    play(tmp_path, 90, away=range(26, 76), journal=Journal(notes), report_slots=100)  # type: ignore[arg-type]
    with open_store(tmp_path / "s.sqlite") as store:
        epochs = [epoch for epoch in store.epochs() if epoch.phase == "report"]
    thetas = [epoch.campaign.report.theta for epoch in epochs if epoch.campaign.report]
    first = thetas[0]
    assert all(first / LARGEST_CHANGE < theta < first * LARGEST_CHANGE for theta in thetas), thetas
    issued = [epoch.issued_at - NOW for epoch in epochs]
    assert not [second for second in issued if 36 <= second < 76], "nothing is decided on slots without reports"
    assert "slots had 400 reports before, and have 0 now" in notes.text


@pytest.mark.slow
@pytest.mark.waits
@pytest.mark.parametrize("restart_every", [10**9, 1])
def test_no_theta_is_decided_while_the_devices_that_keep_reports_are_away(tmp_path: Path, restart_every: int) -> None:
    """Absent devices keep reports under the old epoch until they are back.

    A θ that was chosen before their return would lack these reports.
    """
    config, outlet, chance, notes = (
        server.config(tmp_path, cells=16, report_slots=400),
        Outlet(),
        random.Random(5),
        Notes(),
    )
    left, back = 37, 60

    def tick(second: int) -> None:
        nonlocal coordinator
        if second % restart_every == 0:
            coordinator = Coordinator(config, server.SEED, store, outlet, Journal(notes))  # type: ignore[arg-type]
        coordinator.tick(NOW + second)

    with open_store(tmp_path / "s.sqlite") as store:
        store.set_meta({"campaign": "meters"})
        coordinator = Coordinator(config, server.SEED, store, outlet, Journal(notes))  # type: ignore[arg-type]
        for second in range(left + 1):
            if second:
                # Later readings are four times as large, so that each decision would change θ.
                report_slot(store, NOW + second - 1, chance, 40.0 if second < 24 else 160.0)
            tick(second)
        followed = Timeline(store.epochs())
        for second in range(left + 1, back):
            tick(second)
        assert store.epoch_count() == len(followed), "decided in the devices' absence"
        # The devices are back. All reports that they kept are counted before θ is chosen.
        for slot in range(NOW + left, NOW + back):
            report_slot(store, slot, chance, 160.0)
        for second in range(back, back + 12):
            report_slot(store, NOW + second - 1, chance, 160.0)
            tick(second)
        later = store.epochs()[len(followed) :]
    newest = followed.last
    assert newest is not None
    assert later
    assert later[0].campaign.first_slot >= NOW + back
    said = notes.text.count("begins no new epoch for now")
    assert said == 1 if restart_every > back else said > 1


@pytest.mark.slow
def test_a_fleet_that_shrinks_for_good_gets_its_theta() -> None:
    """The number of devices that report is compared with the usual number.

    The usual number follows a fleet that shrinks, but an outage does not change it, however long it lasts.
    """
    counts = dict.fromkeys(range(1000), 100) | dict.fromkeys(range(1000, 60_000), 0)

    def read(first: int, last: int, kind: int) -> Partial:
        keys = (slot for slot in range(first, last + 1) if counts.get(slot) and kind == report.REPORT)
        return Partial({Key("meters", bytes(8), kind, "all", slot): np.array([counts[slot]]) for slot in keys})

    assert presence_of(read, 0, 999, 1) == Presence(100, 100)
    assert presence_of(read, 0, 59_999, 1) == Presence(0, 100)
    assert presence_of(read, 0, 59_999, 1).away
    # The fleet counts as away if one of the three newest slots has no reports, and not if nine of ten devices report in
    # each of them.
    counts[999] = 0
    assert presence_of(read, 0, 999, 1).away
    counts |= dict.fromkeys(range(997, 1000), 90)
    assert not presence_of(read, 0, 999, 1).away
    # Half of the fleet comes back after the outage, and brings the 96 reports that each device has kept.
    waits = []
    for settled in range(60_000, 60_200):
        counts |= dict.fromkeys(range(59_905, settled + 1), 50)
        waits.append(presence_of(read, 0, settled, 1).away)
    assert abs(waits.index(False) - (REMEMBERED * 3 // 4 - 96)) <= 3
    # At a campaign's beginning, there is no usual number to compare with.
    assert presence_of(read, 998, 999, 1) == Presence(90, 0)


def test_turns_are_no_absence() -> None:
    """Twelve devices take turns of 48 slots, so most slots have no report by design."""
    turns = [slot for slot in range(4800) if slot % 4 == 0]

    def read(first: int, last: int, kind: int) -> Partial:
        keys = (slot for slot in turns if first <= slot <= last and kind == report.REPORT)
        return Partial({Key("meters", bytes(8), kind, "all", slot): np.array([1]) for slot in keys})

    assert not any(presence_of(read, 0, settled, 48).away for settled in range(4000, 4100))
    turns = [slot for slot in turns if slot < 4000]
    assert presence_of(read, 0, 4010, 48).away


@pytest.mark.slow
@pytest.mark.waits
@pytest.mark.parametrize("settle_slots", [1, 3])
def test_a_server_that_is_killed_again_and_again_still_publishes(tmp_path: Path, settle_slots: int) -> None:
    """After each start, the server waits for the reports that brokers and devices hold.

    If it is killed while it waits, the next start continues the same wait.
    """
    outlet = play(tmp_path, 60, restart_every=2, settle_slots=settle_slots, report_slots=100)
    slots = [json.loads(payload)["slot"] - NOW for topic, payload in outlet.messages if topic.endswith("/all/raw")]
    # Each server lives for two seconds.
    assert len(set(slots)) >= 5
    assert max(slots) >= 60 - 1 - settle_slots - 2 * (settle_slots + 1)


def test_a_long_absence_begins_the_wait_anew(tmp_path: Path) -> None:
    config, outlet, chance = (
        server.config(tmp_path, cells=16, settle_slots=10, report_slots=400),
        Outlet(),
        random.Random(3),
    )
    with open_store(tmp_path / "s.sqlite") as store:
        store.set_meta({"campaign": "meters"})
        for first, last in ((0, 19), (19, 27), (200, 211)):
            coordinator = Coordinator(config, server.SEED, store, outlet, Journal(Nobody()))  # type: ignore[arg-type]
            for second in range(first, last):
                if second:
                    report_slot(store, NOW + second - 1, chance, 40.0)
                settled = publication_of(store, 1).settled
                coordinator.tick(NOW + second)
                if first == 200 and second < 210:
                    assert publication_of(store, 1).settled == settled, "reports of the absence are still under way"
        assert publication_of(store, 1).settled == NOW + 199


@pytest.mark.slow
def test_the_report_phase_refines_theta_with_its_own_histograms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """θ is chosen anew from the histograms of all settled slots and of no other, which costs no privacy."""
    play(tmp_path, 40, report_slots=100, blocks=1)
    asked: list[list[Any]] = []

    class Asked(Exception):
        pass

    def choose(*_: Any, reports: list[Any], **options: Any) -> Threshold:
        asked.append(reports)
        raise Asked

    monkeypatch.setattr(module, "theta_from_reports", choose)
    plan = server.config(tmp_path, cells=16, report_slots=100, blocks=1).campaign
    with open_store(tmp_path / "s.sqlite") as store:
        epochs = store.epochs()
        rounds = Rounds(plan, EpochMeans(server.SEED, lambda first, last, kind: store.partial(first, last, kind=kind)))
        with pytest.raises(Asked):
            rounds.next(Timeline(epochs), NOW + 40)
        settled = NOW + 40 - plan.settle_slots - 1
        sent = store.partial(0, settled, kind=report.REPORT)
    (reports,) = asked
    assert len(reports) == sum(epoch.campaign.report is not None for epoch in epochs) > 0
    assert sum(int(np.sum(counts.counts)) for counts in reports) == sent.reports > 1000


def exponential(scale: float, bound: int) -> np.ndarray:
    edges = np.arange(bound + 2)
    density = np.diff(1.0 - np.exp(-edges / scale))
    return np.asarray(density / density.sum())


def test_the_first_theta_obeys_a_limit() -> None:
    query, variance = Query.fleet(10_000), constant_variance(1.0)
    honest = exponential(100.0, 10_000)
    chosen = Threshold(600, 550, 650, 0.0, 0.0, 0.0, honest, range(10_002), "robust")
    assert limit_first(chosen, query, variance) is chosen
    # One reading in a hundred is from a fake device, which reports as an honest device with the largest possible
    # reading would. So no test can tell them apart.
    faked = 0.99 * honest
    faked[-1] += 0.01
    lured = Threshold(9000, 8000, 10_000, 0.0, 0.0, 0.0, faked, range(10_002), "robust")
    held = limit_first(lured, query, variance)
    assert 500 <= held.theta <= 1400
    assert "if the largest 1% of readings were false" in held.notices[-1]


def test_the_operators_limit_holds() -> None:
    chosen = Threshold(700, 650, 750, 0.0, 0.0, 0.0, np.ones(1), (0, 1), "robust")
    assert limit_most(chosen, None) is limit_most(chosen, 700) is chosen
    held = limit_most(chosen, 300)
    assert held.theta == 300
    assert "becomes 300, its limit" in held.notices[-1]


def published(outlet: Outlet, series: str) -> list[dict[str, Any]]:
    return [json.loads(payload) for topic, payload in outlet.messages if topic.endswith(f"/aggregate/{series}")]


@pytest.mark.slow
def test_only_numbers_over_enough_reports_are_published(tmp_path: Path) -> None:
    # The status is published once a minute, so the first case, which expects numbers in it, lasts for 64 seconds.
    for least, some, slots in ((DEVICES // 2, True, 64), (DEVICES + 1, False, 28)):
        (tmp_path / str(least)).mkdir()
        outlet = play(tmp_path / str(least), slots, min_reports=least, report_slots=100)
        messages = [message for message in published(outlet, "all/raw") if message["kind"] == "report"]
        assert bool(messages) == some
        assert all(message["reports"] >= least for message in messages)
        told = published(outlet, "status")[-1]["published"]
        assert (told is not None) == some
        assert [message["published"]["reports"] >= least for message in messages] == [True] * len(messages)
        assert all("ε = 4 per reading" in message["guarantee"] for message in messages)
        if some:
            # A device makes 4 releases a cycle at ε = 4 each, hidden among at least 300 devices.
            assert told["releases"] == 4
            assert 300 <= told["reports"] <= DEVICES
            assert told["epsilon"] < 16


@pytest.mark.slow
def test_a_late_report_changes_no_topic_also_after_a_restart(tmp_path: Path) -> None:
    """If a topic changed with one late report, the difference of the two messages would reveal the report's symbol."""
    config, chance = server.config(tmp_path, cells=16, rounds=[5], settle_slots=2), random.Random(4)
    # series -> slot -> the messages that were published for it
    said: dict[str, dict[int, set[bytes]]] = {}
    with open_store(tmp_path / "s.sqlite") as store:
        store.set_meta({"campaign": "meters"})
        for second in range(60):
            if second % 10 == 0:
                outlet = Outlet()
                coordinator = Coordinator(config, server.SEED, store, outlet, Journal(Nobody()))  # type: ignore[arg-type]
            if second:
                report_slot(store, NOW + second - 1, chance, 40.0)
            coordinator.tick(NOW + second)
            for late in range(max(second - 20, 1), second - 4, 3):
                report_slot(store, NOW + late, chance, 900.0)
        for topic, payload in outlet.messages:
            if topic.endswith("/all/raw"):
                row = json.loads(payload)
                said.setdefault(topic, {}).setdefault(row["slot"], set()).add(payload)
                counts = store.partial(row["slot"], row["slot"], late=False)
                assert row["reports"] + row["cohort"] == counts.reports == DEVICES
                assert store.partial(row["slot"], row["slot"]).reports > DEVICES
    assert len(said) == 1


def test_slots_that_fell_due_while_nobody_served_wait_for_their_reports(tmp_path: Path) -> None:
    config, chance, outlet = server.config(tmp_path, cells=16, rounds=[50], settle_slots=3), random.Random(4), Outlet()
    with open_store(tmp_path / "s.sqlite") as store:
        store.set_meta({"campaign": "meters"})
        Coordinator(config, server.SEED, store, outlet, Journal(Nobody())).tick(NOW)  # type: ignore[arg-type]
        report_slot(store, NOW + 5, chance, 40.0)
        again = Coordinator(config, server.SEED, store, outlet, Journal(Nobody()))  # type: ignore[arg-type]
        again.tick(NOW + 30)
        assert publication_of(store, 10).settled == -1
        report_slot(store, NOW + 10, chance, 40.0)
        again.tick(NOW + 33)
        # The newest settled slot is that of the newest report, however far the clock has moved.
        assert publication_of(store, 10).settled == NOW + 10
        # The table of sums has the two slots with reports and no other.
        with contextlib.closing(sqlite3.connect(tmp_path / "s.sqlite")) as database:
            assert {slot for (slot,) in database.execute("SELECT slot FROM sums")} == {NOW + 5, NOW + 10}
        report_slot(store, NOW + 10, chance, 40.0)
        assert store.late_reports() == DEVICES
