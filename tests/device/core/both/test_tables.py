"""A designed table through a reboot: it is kept in a file, checked again when it is loaded, and then used as before."""

import json
import sys

from rig import Device, hybrid, make_campaign, square_wave

from undertone_shared.campaign import Campaign
from undertone_shared.entropy import Entropy
from undertone_shared.off_board import intake
from undertone_shared.scalar import Cohort, ReportRule

# The 32-bit interpreter gets only the files of this folder, so this test does not run there.
RUNS_ON = ("cpython", "micropython")
sys.path.append(__file__.rsplit("/", 4)[0] + "/shared/both")
CAP = [2721, 1001]


def with_a_table():
    from designed_tables import designed

    epsilon, theta, table = next(iter(designed()))
    assert epsilon == "1"
    return table, make_campaign(cohort=Cohort(square_wave()), report=ReportRule(0, theta, table))


def device_with_it():
    table, campaign = with_a_table()
    device = Device(cap=CAP)
    device.accept(campaign)
    return device, table, campaign


def symbols(mechanism, theta):
    """The symbols for readings up to θ, drawn with the same random bytes each time."""
    entropy = Entropy(Repeated())
    drawn = []
    for i in range(100):
        entropy.refill()
        part = mechanism.choose(entropy)
        drawn.append(part.draw(part.level(i * theta // 99, theta, entropy), entropy))
    return drawn


class Repeated:
    """Random bytes that pass the health test and are the same in each run."""

    def __init__(self):
        self.state = 1

    def __call__(self, n):
        given = bytearray(n)
        for i in range(n):
            self.state = self.state * 1103515245 + 12345 & 0x3FFFFFFF
            given[i] = self.state >> 20 & 255
        return bytes(given)


def stored(storage, campaign):
    name = "campaign-" + campaign.fingerprint.hex()
    return name, storage.files[name]


def test_a_reboot_keeps_the_table_and_draws_from_it_as_before():
    device, table, campaign = device_with_it()
    theta = device.reporter.campaign.report.theta
    before = symbols(device.reporter.campaign.report.mechanism, theta)
    device.boot()
    again = device.reporter.campaign.report
    assert again.theta == theta
    assert [bytes(row) for row in again.mechanism.rows] == [bytes(row) for row in table.rows]
    assert again.mechanism.values == table.values
    assert again.mechanism.certificate() == table.certificate()
    assert symbols(again.mechanism, theta) == before
    assert len(set(before)) > 3
    device.accept(campaign)
    device.reporter.close_slot(device.now)
    device.slot()
    report = intake.unpack(device.slot())
    assert report.fingerprint == campaign.fingerprint
    assert report.values[0] < table.symbols


def test_a_table_that_changed_on_file_is_not_loaded():
    device, _, campaign = device_with_it()
    name, body = stored(device.storage, campaign)
    row = json.loads(body)["rule"]["mechanism"]["rows"][3].encode()
    for changed in (row[:4] + (b"B" if row[4:5] == b"A" else b"A") + row[5:], row[:-4]):
        device.storage.files[name] = body.replace(row, changed)
        assert device.storage.files[name] != body
        device.boot()
        assert device.reporter.campaign is None
    device.storage.files[name] = body
    device.boot()
    assert device.reporter.campaign is not None


def test_another_campaign_in_the_tables_place_is_not_loaded():
    device, _, campaign = device_with_it()
    name, _ = stored(device.storage, campaign)
    other = make_campaign(report=ReportRule(0, 300, hybrid()))
    assert Campaign(other.body).fingerprint != campaign.fingerprint
    device.storage.files[name] = other.body
    device.boot()
    assert device.reporter.campaign is None


def test_a_table_beyond_a_policy_that_became_stricter_is_not_loaded():
    device, table, _ = device_with_it()
    num, den = table.certificate()
    for cap, kept in (([num, den], True), ([num - 1, den], False)):
        stricter = Device(device.storage, cap=cap)
        assert (stricter.reporter.campaign is not None) == kept
