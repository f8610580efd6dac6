"""What ``status`` says about a device, for each kind of campaign."""

import json
import math
import re

from rig import DAY, START, Device, hybrid, make_campaign, square_wave
from rig import SLOT as SLOT_SECONDS

from support import micropython as mp
from support.refusal import told
from undertone_device.core.units import epsilon_units
from undertone_device.host import household
from undertone_device.host.home_assistant import seen_of
from undertone_device.host.household import explain
from undertone_device.host.status import describe, parse_status
from undertone_shared.scalar import Cohort, ReportRule
from undertone_shared.stream import StreamRule


class Client:
    """Has the attributes of a client that a status needs."""

    def __init__(self, device):
        self.reporter = device.reporter
        self.online = True
        self.trouble = ""
        self.counts = {"connected": 1, "heard": 1, "sent": 0, "acked": 0, "sensor_failures": 0}


def said(device):
    state = parse_status(json.dumps(describe(Client(device), device.now)).encode())
    return "\n".join(explain(state))


def test_without_a_campaign_nothing_is_promised():
    text = said(Device())
    assert told(text, "nothing is reported")
    assert told(text, "cap 2/1", "epsilon = 0.6931", "event level")
    assert told(text, "ever", "nothing")


def running(slots, **policy):
    device = Device(now=START - SLOT_SECONDS, **policy)
    device.accept(make_campaign())
    device.reporter.close_slot(device.now)
    for _ in range(slots):
        device.slot()
        device.accept(make_campaign())
    return device


def test_a_reading_and_any_day():
    device = running(0)
    text = said(device)
    assert told(text, "report: odds change by at most 2/1", "epsilon = 0.6931", "event level")
    # All slots are reported, so any 24 hours touch 49 of them.
    assert told(text, "any 24 h", "49 reports", "epsilon = 33.96")
    assert told(text, "for whoever knows everything else", "ever")
    assert told(text, "one reading", "epsilon = 0.6931")
    assert told(text, "odds", "at most 2")
    assert told(text, f"slots of {SLOT_SECONDS} s")
    assert told(text, START)
    # With a cap of four a day, any 24 h touch at most five intervals.
    assert told(said(running(0, reports_per_period=4)), "any 24 h", "5 reports")


def test_the_limit_for_life_also_limits_any_day():
    text = said(running(0, lifetime=20 << 20))
    assert told(text, "any 24 h", "49 reports", "epsilon = 20.00, the limit for life", "at most 4.85e+08,")
    assert told(text, "falls silent at 20.00")
    assert not told(said(running(0, lifetime=34 << 20)), "any 24 h", "the limit for life")


def test_with_a_rest_of_a_day_any_day_costs_one_report():
    text = said(running(60, rest_seconds=86400, lifetime=100 << 20))
    assert told(text, "any 24 h", "1 report", "epsilon = 0.69")
    assert told(text, "24 hours", "at most 2", "policy")
    assert told(text, "falls silent at 100.00")
    assert not told(text, "as long as")
    assert told(said(running(0, rest_seconds=86400, rest_by="clock")), "as long as", "clock is right")


def test_what_was_spent_is_summed_by_month_and_ever():
    device = running(1 + 48 * 3)
    unit = epsilon_units(2, 1)
    state = describe(Client(device), device.now)
    assert state["ever"] == state["month"] == 144 * unit
    assert state["sequence"] == 144
    spent = f"epsilon = {144 * unit / 2**20:.2f}"
    assert told(said(device), "this month", spent)
    assert told(said(device), "ever", spent, "2026-11-10 23:30:00 UTC")
    device.pass_time(32 * 86400)
    state = describe(Client(device), device.now)
    assert (state["ever"], state["month"]) == (144 * unit, 0)
    # Three more reports: one of the slot that was open then, no longer in the month, and two of the next epoch.
    epoch = START + 40 * 86400
    device.pass_time(epoch - SLOT_SECONDS - device.now)
    device.accept(make_campaign(epoch=epoch, last_slot=START // SLOT_SECONDS + 100 * 48), device.now)
    for _ in range(3):
        assert device.slot() is not None
    state = describe(Client(device), device.now)
    assert (state["ever"], state["month"]) == (147 * unit, 2 * unit)


def test_a_lost_ledger_is_told():
    device = running(5)
    del device.storage.files["ledger"]
    device.boot()
    device.accept(make_campaign())
    text = said(device)
    assert told(text, "ever", "lost once", "not in this sum")
    assert told(text, "this month", "not counting", "lost before 2026-11-11")
    device = running(5, lifetime=100 << 20)
    del device.storage.files["ledger"]
    device.boot()
    device.accept(make_campaign())
    text = said(device)
    assert told(text, "ever", "epsilon = 100.00", "falls silent at 100.00", "lost once")


def test_every_word_that_pauses_a_device_is_explained():
    words = set()
    for name in ("reporter", "guard", "stream_state"):
        source = (mp.REPO / f"device/undertone_device/core/{name}.py").read_text(encoding="utf-8")
        words |= set(re.findall(r'(?:return|paused =|else) "(\w+)"', source))
    words.discard("scalar")
    assert words >= {"rest", "lifetime", "pause", "clock", "spent"}
    assert words <= set(household.WHY), words - set(household.WHY)


STREAM = {
    "kind": "stream",
    "law": "gaussian",
    "low": 0,
    "theta": 300,
    "levels": 64,
    "slew": 4,
    "shift": 4,
    "reuse": 12,
    "noise": [400000, 100000],
    "dimension": 1,
    "lag": 1,
    "reports": 48,
    "chains": 2,
    "restart": 0,
    "renewal": 48,
}


def test_a_stream_has_one_budget_and_no_certificate_per_reading():
    rule = StreamRule(STREAM)
    allowed = {"laws": ["gaussian"], "rho": 1 << 26, "period_seconds": 86400}
    device = Device(stream=allowed)
    device.accept(make_campaign(cohort=None, report=None, stream=rule))
    text = said(device)
    rho = rule.rho()[0] / rule.rho()[1]
    assert told(text, f"rho = {rho:.4g}", "zCDP", "48 slots")
    assert told(text, "delta = 2^-20", "user level")
    assert not told(text, "certificate")
    assert not told(text, "one reading")
    # The campaign has thirty days with one window each, which were all charged when the campaign was accepted.
    assert told(text, "streams", f"rho = {30 * rule.charge() / 2**20:.4g}"), text


def test_any_day_counts_what_other_campaigns_drew():
    """A cheap epoch follows an expensive one, and 24 hours touch reports of both."""
    device = running(48, cap=[8, 1])
    dear = describe(Client(device), device.now)
    cheap = ReportRule(0, 300, hybrid(1001, 1000))
    following = make_campaign(epoch=START + DAY, cohort=Cohort(square_wave(1001, 1000)), report=cheap)
    device.accept(following)
    for _ in range(4):
        device.slot()
    state = describe(Client(device), device.now)
    assert state["campaign"]["epoch"] == START + DAY
    drawn = state["ever"] / 2**20
    assert drawn > 47 * math.log(2)
    assert state["most_a_day"] * math.log(state["cap"][0] / state["cap"][1]) >= drawn
    assert seen_of(state)["day"] == seen_of(dear)["day"] >= drawn
    assert state["recent"] == state["ever"]
