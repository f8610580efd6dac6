"""What ``status`` says of a device, for each kind of campaign."""

import json

from rig import SLOT as SLOT_SECONDS
from rig import START, Device, make_campaign

from undertone_device.__main__ import explain
from undertone_device.status import describe, parse_status
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


def test_a_reading_and_a_day():
    device = Device()
    device.accept(make_campaign())
    text = said(device)
    assert "report: 2/1, epsilon = 0.6931 per reading (event level)" in text
    assert "a day of 48 readings adds up to epsilon = 33.27 for the household (user level, one day)" in text
    assert f"slots of {SLOT_SECONDS} s" in text
    assert str(START) in text


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
