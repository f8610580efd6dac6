"""What ``status`` says of a device, for each kind of campaign."""

import json
import math
import re

from rig import DAY, START, Device, hybrid, make_campaign, square_wave
from rig import SLOT as SLOT_SECONDS

from support import micropython as mp
from undertone_device.core.units import epsilon_units
from undertone_device.host import household
from undertone_device.host.home_assistant import seen_of
from undertone_device.host.household import explain
from undertone_device.host.status import describe, parse_status
from undertone_shared.scalar import Cohort, ReportRule
from undertone_shared.stream import StreamRule


class Client:
    """As much of a client as a status is made of."""

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
    assert "nothing is reported" in text
    assert "owner's cap 2/1, epsilon = 0.6931 per reading (event level)" in text
    assert "ever        nothing yet" in text


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
    assert "report: 2/1, epsilon = 0.6931 per reading (event level)" in text
    # Every slot: any 24 hours touch 49 of them.
    assert "any 24 h    at most 49 reports: epsilon = 33.96" in text
    assert (
        "to somebody who already knows the rest of the record, all that the device ever sends shifts the odds" in text
    )
    assert "one reading epsilon = 0.6931: to whoever sees that reading's report alone" in text
    assert "the odds between two values of it shift by at most 2\n" in text
    assert f"slots of {SLOT_SECONDS} s" in text
    assert str(START) in text
    # Four a day: five can touch a day, four of them wholly.
    assert "at most 5 reports" in said(running(0, reports_per_period=4))


def test_with_a_rest_of_a_day_any_day_costs_one_report():
    text = said(running(60, rest_seconds=86400, lifetime=100 << 20))
    assert "any 24 h    at most 1 report: epsilon = 0.69; " in text
    assert "shifts the odds of what happened in those 24 hours by at most 2, whatever campaigns its policy" in text
    assert "of 100.00 allowed; then the device falls silent" in text
    assert "trusts whoever sets" not in text
    assert "trusts whoever sets the device's clock" in said(running(0, rest_seconds=86400, rest_by="clock"))


def test_what_was_spent_is_summed_by_month_and_ever():
    device = running(1 + 48 * 3)
    unit = epsilon_units(2, 1)
    state = describe(Client(device), device.now)
    assert state["ever"] == state["month"] == 144 * unit
    assert state["sequence"] == 144
    assert f"this month  at most epsilon = {144 * unit / 2**20:.2f} in the last thirty days" in said(device)
    assert f"ever        epsilon = {144 * unit / 2**20:.2f} since 2026-11-10 23:30:00 UTC" in said(device)
    device.pass_time(32 * 86400)
    state = describe(Client(device), device.now)
    assert (state["ever"], state["month"]) == (144 * unit, 0)
    # A month later the ring's places are used again.
    device.pass_time(86400)
    device.accept(make_campaign(epoch=START + 40 * 86400, last_slot=START // SLOT_SECONDS + 100 * 48), device.now)


def test_a_lost_ledger_is_told():
    device = running(5)
    del device.storage.files["ledger"]
    device.boot()
    device.accept(make_campaign())
    text = said(device)
    assert "the record was lost 1 times, and what it held is not in this sum" in text
    assert "days of this device's clock, not counting what was lost before 2026-11-11" in text
    device = running(5, lifetime=100 << 20)
    del device.storage.files["ledger"]
    device.boot()
    device.accept(make_campaign())
    text = said(device)
    assert "ever        epsilon = 100.00 since" in text
    assert "what it held is counted as all that was allowed, of 100.00 allowed" in text


def test_every_word_that_pauses_a_device_is_explained():
    words = set()
    for name in ("reporter", "guard", "stream_state"):
        source = (mp.REPO / f"device/undertone_device/core/{name}.py").read_text()
        words |= set(re.findall(r'(?:return|paused =|else) "(\w+)"', source))
    words.discard("scalar")
    assert words >= {"rest", "lifetime", "pause", "clock", "spent"}
    assert words <= set(household._WHY), words - set(household._WHY)


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
    assert f"rho = {rho:.4g} (zCDP) for each window of 48 slots" in text
    assert "at delta = 2^-20 for the stream (user level)" in text
    assert "certificate" not in text
    assert "one reading" not in text
    # Thirty days of a window each, all charged when it was accepted.
    charged = f"streams     rho = {30 * rule.charge() / 2**20:.4g} charged ever"
    assert charged in text, charged


def test_any_day_counts_what_other_campaigns_drew():
    """A cheap epoch after a dear one: 24 hours touch reports of both."""
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
