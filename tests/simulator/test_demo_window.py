"""A demonstration of turns over a real broker, one device under MicroPython: nobody reports twice in the window."""

from itertools import pairwise

import pytest

from undertone_shared.errors import Invalid
from undertone_shared.off_board.intake import unpack
from undertone_simulator.demo import DemoOptions, run
from undertone_simulator.demo.cost import published_apart
from undertone_simulator.processes import example_device, find_micropython
from undertone_simulator.wire.ledger import read_ledgers


class Silent:
    def say(self, sentence, *, loud=False):
        pass

    def event(self, event):
        pass

    def progress(self, done, total, sent, acknowledged):
        pass


@pytest.mark.long
def test_nobody_reports_twice_within_the_window(tmp_path, mosquitto_binary, monkeypatch):
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    result = run(DemoOptions(24, 11, "4", seed=3, round_slots=4, window="4s", broker="mosquitto"), tmp_path, Silent())
    accounts, turns = result.accounts, result.turns
    assert accounts.holds, accounts.examples
    assert accounts.sent == accounts.counted
    assert (turns.window, turns.stride) == (4, 5)
    # Every device that sent two kept the rest, by the broker's own log.
    closest = published_apart(tmp_path / "broker" / "mosquitto.log")
    assert len(closest) > 16
    assert min(closest.values()) == turns.closest >= 4
    if find_micropython() and example_device():
        slots = [unpack(report).slot for _, report in read_ledgers([tmp_path / "micropython.log"]).sent]
        assert len(slots) >= 2
        assert all(later - earlier >= 5 for earlier, later in pairwise(slots))
    assert "the broker's own record" in " ".join(result.sentences())


def test_the_brokers_log_is_read(tmp_path):
    (tmp_path / "log").write_text(
        "100: Received PUBLISH from a (d0, q1, r0, m1, 'undertone/v2/demo/3/a/report', ... (24 bytes))\n"
        "101: Received PUBLISH from a (d1, q1, r0, m1, 'undertone/v2/demo/3/a/report', ... (24 bytes))\n"
        "102: Received PUBLISH from b (d0, q1, r0, m9, 'undertone/v2/demo/4/b/report', ... (24 bytes))\n"
        "110: Received PUBLISH from s (d0, q1, r1, m9, 'undertone/v2/demo/config', ... (999 bytes))\n"
        "117: Received PUBLISH from a (d0, q1, r0, m2, 'undertone/v2/demo/3/a/report', ... (24 bytes))\n"
        "130: Received PUBLISH from a (d0, q1, r0, m3, 'undertone/v2/demo/3/a/report', ... (24 bytes))\n"
    )
    assert published_apart(tmp_path / "log") == {"a": 13}


def test_what_does_not_go_together():
    for options in ({"collect": "stream"}, {"kill_device_at": 1}):
        with pytest.raises(Invalid, match="window is for reports"):
            run(DemoOptions(window="16s", **options), None, Silent())
