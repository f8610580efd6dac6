"""The accounts of reports, with a store that the test makes by hand."""

import hashlib
from collections import Counter

import pytest

from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.counts.partial import Key, Partial
from undertone_aggregator.design import hybrid, square_wave
from undertone_aggregator.store.inventory import REVOKED, Device
from undertone_aggregator.store.store import Batch, open_store
from undertone_shared.errors import Invalid
from undertone_shared.off_board.issue import build
from undertone_shared.report import COHORT, REPORT, pack
from undertone_shared.scalar import Cohort, ReportRule
from undertone_shared.schedule import Schedule
from undertone_simulator.wire.ledger import Sent
from undertone_simulator.wire.verify import reconcile

FINGERPRINT = b"abcdefgh"


def report(slot, symbol=3):
    return pack(COHORT, FINGERPRINT, slot, (symbol,), 1)


def judged(store, *deliveries):
    """Commit (device, report, outcome) as the server does."""
    batch = Batch(partial=Partial(), outcomes=Counter(outcome for _, _, outcome in deliveries))
    for device, data, outcome in deliveries:
        batch.audit.append((device, hashlib.sha256(data).digest()[:8], outcome))
        if outcome == "counted":
            batch.partial.add(Key("c", FINGERPRINT, COHORT, "all", 5), 3, 8)
    store.commit("0of1", batch)


def sent(*keys, acked=(), lost=(), faults=()):
    return Sent(
        sent=dict.fromkeys(keys, 1000),
        acked=dict.fromkeys(acked, 1500),
        lost=dict(lost),
        faults=list(faults),
    )


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "store.sqlite") as opened:
        yield opened


def test_both_identities(store):
    a, b, c, d = ("a", report(1)), ("b", report(1)), ("c", report(1)), ("d", report(1))
    judged(store, (*a, "counted"), (*a, "duplicate"), (*b, "late"), (*b, "late"), (*c, "counted"))
    accounts = reconcile(sent(a, b, c, d, acked=[a, b], lost=[(d, "killed")]), store)
    assert accounts.holds
    assert accounts.received == 5
    assert accounts.duplicates == 1
    assert accounts.rejected_deliveries == {"late": 2}
    assert (accounts.sent, accounts.acknowledged, accounts.counted) == (4, 2, 2)
    assert accounts.rejected == {"late": 1}
    assert accounts.lost == {"killed": 1}
    assert accounts.sent == accounts.counted + accounts.rejected.total() + accounts.lost.total()
    assert accounts.as_json()["holds"] is True
    assert list(accounts.summary()) == (
        ["sent", "received", "acknowledged", "counted", "duplicates", "rejected", "lost"]
    )


def test_what_a_revoked_device_had_under_way_is_lost_by_a_named_fault(store):
    a, b = ("a", report(1)), ("b", report(1))
    judged(store, (*a, "counted"))
    accounts = reconcile(sent(a, b, acked=[a]), store)
    assert accounts.unexplained == {"still under way": 1}
    store.set_devices([Device("b", "all", REVOKED, 5)])
    accounts = reconcile(sent(a, b, acked=[a]), store)
    assert (accounts.holds, accounts.lost) == (True, {"revoked": 1})
    # The server must have counted or rejected each report that the broker acknowledged, whoever sent it.
    assert reconcile(sent(a, b, acked=[a, b]), store).unexplained == {
        "acknowledged, but neither counted nor rejected": 1
    }


@pytest.mark.parametrize(
    ("key_of", "ledger", "what"),
    [
        ("b", {"acked": True}, "acknowledged, but neither counted nor rejected"),
        ("b", {"acked": True, "lost": True}, "acknowledged, but neither counted nor rejected"),
        ("b", {}, "still under way"),
    ],
)
def test_what_nobody_judged_is_unexplained(store, key_of, ledger, what):
    a, b = ("a", report(1)), (key_of, report(2))
    judged(store, (*a, "counted"))
    told = sent(a, b, acked=[b] if ledger.get("acked") else [], lost=[(b, "killed")] if ledger.get("lost") else [])
    accounts = reconcile(told, store)
    assert accounts.unexplained == {what: 1}
    assert not accounts.holds
    assert b[1].hex() in accounts.examples[0]


def test_what_a_killed_broker_forgot_is_lost_by_name_within_its_window(store):
    a, b = ("a", report(1)), ("b", report(1))
    judged(store, (*a, "counted"))
    kill = (2000, "broker_killed", "-")
    assert reconcile(sent(a, b, acked=[b], faults=[kill]), store).lost == {"broker_killed": 1}
    # The device read the acknowledgement at 1500 ms. The loss is explained only if the kill was noted before that, and
    # the next broker started after that. Only the first case is such.
    for kill_at, start_at, holds in ((1400, 1600, True), (1400, 1450, False), (1400, None, False), (1400, 1300, False)):
        faults = [(kill_at, "broker_killed", "-")] + ([(start_at, "broker_started", "-")] if start_at else [])
        assert reconcile(sent(a, b, acked=[b], faults=faults), store).holds == holds, (kill_at, start_at)
    # The report was acknowledged at 1500 ms, and the broker was killed at 2000 ms.
    assert not reconcile(sent(a, b, acked=[b], faults=[kill]), store, broker_window=0.4).holds


def test_a_report_that_nobody_sent_is_unexplained(store):
    a = ("a", report(1))
    judged(store, (*a, "counted"), ("spy", report(2), "shard"))
    accounts = reconcile(sent(a), store)
    assert accounts.unexplained == {"counted or rejected, but not sent": 1}
    assert "spy" in accounts.examples[0]


def test_an_interval_drawn_twice_is_unexplained(store):
    a, b = ("a", report(1, 3)), ("a", report(1, 4))
    judged(store, (*a, "counted"), (*b, "conflict"))
    assert reconcile(sent(a, b), store).unexplained == {"drawn twice": 1}


def test_histograms_must_hold_what_was_counted(store):
    a = ("a", report(1))
    judged(store, (*a, "counted"))
    store.commit("0of1", Batch(outcomes=Counter(counted=1)))
    accounts = reconcile(sent(a), store)
    assert set(accounts.unexplained) == {"histograms", "counted twice"}


def test_a_store_without_audit_is_refused(store):
    store.commit("0of1", Batch(outcomes=Counter(counted=1)))
    with pytest.raises(Invalid, match="audit = true"):
        reconcile(sent(), store)


def test_a_report_out_of_turn_or_of_the_wrong_kind_is_unexplained(store):
    campaign = build(
        name="c", sensor="load", unit="Wh", measure="sum", offset=0, bound=1000, slot_seconds=1800, cycle=48, epoch=0,
        last_slot=999, default=0, cohort=Cohort(square_wave(1, (0, 10, 100, 1001))),
        report=ReportRule(0, 300, hybrid(1)), schedule=Schedule(bytes(16), 49, 19),
    )  # fmt: skip
    store.add_epoch(Epoch(campaign, 5))
    place = campaign.schedule.place("a")
    turn = next(slot for slot in range(1000) if campaign.schedule.is_turn(place, slot))
    member = campaign.schedule.is_member(place, turn)
    for slot, kind, what in (
        (turn, COHORT if member else REPORT, None),
        (turn + 1, REPORT, "out of turn"),
        (turn, REPORT if member else COHORT, "of the wrong kind"),
    ):
        key = ("a", pack(kind, campaign.fingerprint, slot, (3,), 1))
        accounts = reconcile(sent(key, lost=[(key, "killed")]), store)
        assert accounts.unexplained == ({} if what is None else {what: 1})
