"""A household types ``pause``, ``resume`` and ``reset-campaign``."""

import json

import pytest
from rig import DAY, SLOT, START, Device, make_campaign

from undertone_device.__main__ import main
from undertone_device.core import pauses
from undertone_device.core.ledger import BUILT
from undertone_device.setup import clock
from undertone_device.setup.storage import FileStorage
from undertone_shared.errors import Refused


@pytest.fixture
def home(tmp_path, monkeypatch):
    policy = {
        "version": 1,
        "sensor": "energy",
        "measures": ["sum"],
        "cap": [2, 1],
        "slot_seconds": SLOT,
        "theta": [1, 1000],
        "duration_seconds": 400 * DAY,
        "insecure": True,
        "rest_seconds": DAY,
    }
    (tmp_path / "policy.json").write_text(json.dumps(policy), encoding="utf-8")
    config = {"name": "m", "broker": {"host": "x"}, "campaigns": ["load"], "policy": "policy.json", "state": "state"}
    (tmp_path / "device.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "state").mkdir()
    times = [START + 100]
    monkeypatch.setattr(clock, "unix_time", lambda: times[0])

    def say(*words):
        return main([*words, "--config", str(tmp_path / "device.json")])

    say.storage = FileStorage(str(tmp_path / "state"))
    say.times = times
    return say


def test_a_pause_begins_after_a_rest_at_a_slots_edge(home, capsys):
    assert home("pause") == 0
    assert pauses.read(home.storage, 0) == (START + DAY + SLOT, pauses.ENDLESS)
    said = "until undertone-device resume ends it: nothing is reported, and others can see the silence"
    assert said in capsys.readouterr().out
    # The pause has not begun yet, and `resume` cancels it.
    assert home("resume") == 0
    assert pauses.read(home.storage, 0) == (0, 0)
    assert capsys.readouterr().out == "no pause: the device may report\n"


def test_a_pause_at_once_lasts_a_rest_and_a_day_at_least(home):
    assert home("pause", "--now", "--hours", "1") == 0
    assert pauses.read(home.storage, 0) == (START + 100, START + DAY + SLOT)
    home.times[0] += 3600
    home("resume")
    assert pauses.read(home.storage, 0) == (START + 100, START + DAY + SLOT)
    home.times[0] += 5 * DAY
    home("pause", "--now")
    home.times[0] += 3 * DAY
    home("resume")
    start, until = pauses.read(home.storage, 0)
    assert start == START + 3700 + 5 * DAY
    assert until == -(-home.times[0] // SLOT) * SLOT


def test_a_pause_at_once_without_an_end_lasts_a_day_whenever_it_is_ended(home, tmp_path):
    policy = json.loads((tmp_path / "policy.json").read_text(encoding="utf-8"))
    del policy["rest_seconds"]
    (tmp_path / "policy.json").write_text(json.dumps(policy), encoding="utf-8")
    home("pause", "--now")
    home.times[0] += 60
    home("resume")
    start, until = pauses.read(home.storage, 0)
    # The pause begins at once and lasts a day, so that nobody can use it to leave out a single slot whose reading they
    # know.
    assert start == START + 100
    assert until >= start + DAY


def test_a_second_pause_takes_nothing_from_the_first(home):
    """The rest before a pause may be longer than the time that is left of the present pause."""
    home("pause", "--now", "--hours", "30")
    first = pauses.read(home.storage, 0)
    home.times[0] += 29 * 3600
    home("pause", "--hours", "48")
    start, until = pauses.read(home.storage, 0)
    assert start == first[0]
    assert until >= home.times[0] + DAY + 48 * 3600


def test_a_second_pause_does_not_move_the_begun_one(home):
    home("pause", "--now", "--hours", "100")
    first = pauses.read(home.storage, 0)
    home.times[0] += 7200
    home("pause", "--hours", "1")
    assert pauses.read(home.storage, 0) == first


def test_hours_are_whole_and_few(home, capsys):
    for bad in ("0", "1.5", "-3", "x"):
        assert home("pause", "--hours", bad) == 2
        assert "expected whole hours from 1 to 100000" in capsys.readouterr().err


def test_no_reading_decides_which_slots_are_left_out():
    for now in range(START, START + 2 * SLOT, 300):
        for rest in (0, DAY):
            start, _ = pauses.begin(now, SLOT, rest, False, 0)
            # The open slot, and all slots during a rest, are reported as if nobody had asked for a pause.
            assert start >= now + rest
            assert start % SLOT == 0


def test_a_pause_that_begins_this_second_has_begun():
    for rest in (0, DAY):
        pause = pauses.begin(START, SLOT, rest, False, 0)
        start = pause[0]
        assert pauses.end(pause, start - 1, SLOT, rest) == (0, 0)
        assert pauses.end(pause, start, SLOT, rest) == (start, start + max(rest, SLOT))


def wrong_once(device):
    """Set the device's clock to the year 2106 and boot it. Return the right time, and a campaign of the wrong time."""
    right = device.now
    device.now = 0xFFFFFFFF // SLOT * SLOT - 20 * SLOT
    forged = make_campaign(name="forged", epoch=device.now + SLOT, last_slot=device.now // SLOT + 10, cycle=1)
    device.boot()
    return right, forged


def test_what_a_wrong_clock_took_is_given_back_by_hand_and_nothing_that_was_spent(home, tmp_path, capsys):
    storage = home.storage
    device = Device(storage=storage, now=START - SLOT)
    device.accept(make_campaign(last_slot=START // SLOT + 20))
    device.reporter.close_slot(device.now)
    for _ in range(12):
        device.slot()
    right, forged = wrong_once(device)
    device.accept(forged)
    device.reporter.close_slot(device.now)
    for _ in range(8):
        device.slot()
        device.accept(forged)
    ledger = device.reporter.ledger
    assert ledger.spent_until > 0xF0000000
    before = (ledger.ever, ledger.sequence, ledger.boots, ledger.uptime)
    drawn = ledger.sequence
    del ledger
    device.now = right
    device.boot()
    following = make_campaign(epoch=START + DAY, last_slot=START // SLOT + 300)
    with pytest.raises(Refused):
        device.accept(following)
    # While the device runs, no other process may change its state.
    home.times[0] = right
    del device.reporter
    (tmp_path / "policy.json").write_text(
        (tmp_path / "policy.json").read_text(encoding="utf-8").replace('"rest_seconds": 86400', '"rest_seconds": 0'),
        encoding="utf-8",
    )
    device.storage = storage = home.storage = None
    assert home("reset-campaign") == 0, capsys.readouterr().err
    device.storage = FileStorage(str(tmp_path / "state"))
    device.boot()
    ledger = device.reporter.ledger
    assert (ledger.ever, ledger.sequence, ledger.boots, ledger.uptime) == before
    assert ledger.spent_until == right
    assert device.used() == drawn > 12, "the draws of 2106 count as drawn now"
    device.accept(following)
    device.pass_time(DAY - (device.now - START))
    device.accept(following)
    device.reporter.close_slot(device.now)
    device.slot()
    assert device.slot() is not None


def test_a_reset_needs_a_clock_and_a_ledger(home, capsys):
    home.times[0] = BUILT - 1
    assert home("reset-campaign") == 2
    assert "expected at least" in capsys.readouterr().err
    home.times[0] = START
    assert home("reset-campaign") == 2
    assert "expected one that a device has written" in capsys.readouterr().err


def test_a_running_devices_campaigns_are_not_reset(home, capsys, tmp_path):
    device = Device(storage=home.storage, now=START - SLOT)
    device.accept(make_campaign())
    assert home("reset-campaign") == 2
    assert "in use by another process" in capsys.readouterr().err
