"""A demonstration with turns over a real broker.

One device runs under MicroPython, and none reports twice in a window.
"""

import pytest

from undertone_shared.errors import Invalid
from undertone_shared.report import COHORT, pack
from undertone_simulator.demo import DemoOptions, run
from undertone_simulator.demo.cost import published_apart, reported_apart
from undertone_simulator.processes import find_micropython
from undertone_simulator.wire.ledger import read_ledgers


class Silent:
    def say(self, sentence, *, loud=False):
        pass

    def event(self, event):
        pass

    def progress(self, done, total, sent, acknowledged):
        pass


@pytest.mark.slow
@pytest.mark.long
def test_nobody_reports_twice_within_the_window(tmp_path, mosquitto_binary, monkeypatch):
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    result = run(DemoOptions(24, 11, "4", seed=3, round_slots=4, window="4s", broker="mosquitto"), tmp_path, Silent())
    accounts, turns = result.accounts, result.turns
    assert accounts.holds, accounts.examples
    assert accounts.sent == accounts.counted
    assert (turns.window, turns.stride) == (4, 5)
    # Every device that sent two reports kept the rest between them.
    names = ("fleet.ledger", "micropython.log", "demo.ledger")
    ledgers = [path for name in names if (path := tmp_path / name).exists()]
    slots_apart = reported_apart(read_ledgers(ledgers).sent)
    assert len(slots_apart) > 16
    assert min(slots_apart.values()) >= 5
    # The broker's log says when reports arrived. On a busy machine a report may arrive late, so the test demands no
    # least number of seconds between two reports. The result must have the number that is in the log.
    closest = published_apart(tmp_path / "mosquitto" / "mosquitto.log")
    assert closest.keys() >= slots_apart.keys()
    assert min(closest.values()) == turns.closest
    if find_micropython():
        assert len(read_ledgers([tmp_path / "micropython.log"]).sent) >= 2
    assert "the broker's own record" in " ".join(result.sentences())


def test_slots_between_two_reports_of_a_device():
    drawn = [("a", 20), ("b", 9), ("a", 7), ("a", 12), ("a", 12)]
    reports = [(device, pack(COHORT, bytes(8), slot, (1,), number + 1)) for number, (device, slot) in enumerate(drawn)]
    assert reported_apart(reports) == {"a": 5}


def test_the_brokers_log_is_read(tmp_path):
    (tmp_path / "log").write_text(
        "100: Received PUBLISH from a (d0, q1, r0, m1, 'undertone/v2/demo/3/a/report', ... (24 bytes))\n"
        "101: Received PUBLISH from a (d1, q1, r0, m1, 'undertone/v2/demo/3/a/report', ... (24 bytes))\n"
        "102: Received PUBLISH from b (d0, q1, r0, m9, 'undertone/v2/demo/4/b/report', ... (24 bytes))\n"
        "110: Received PUBLISH from s (d0, q1, r1, m9, 'undertone/v2/demo/config', ... (999 bytes))\n"
        "117: Received PUBLISH from a (d0, q1, r0, m2, 'undertone/v2/demo/3/a/report', ... (24 bytes))\n"
        "130: Received PUBLISH from a (d0, q1, r0, m3, 'undertone/v2/demo/3/a/report', ... (24 bytes))\n",
        encoding="utf-8",
    )
    assert published_apart(tmp_path / "log") == {"a": 13}


def test_what_does_not_go_together():
    with pytest.raises(Invalid, match=r"^window cannot be given where collect is stream$"):
        DemoOptions(window="16s", collect="stream")
    with pytest.raises(Invalid, match="window and kill_device_at exclude each other"):
        run(DemoOptions(window="16s", kill_device_at=1), None, Silent())
