"""The stream demonstration end to end: a broker, the aggregator, MQTT clients, one of them under MicroPython."""

import json

import pytest
from typer.testing import CliRunner

from undertone.app import app
from undertone_shared.errors import Invalid
from undertone_simulator.demo.stage import example_device, find_micropython
from undertone_simulator.demo.stream import StreamOptions, run_stream


class Silent:
    def say(self, sentence, *, loud=False):
        pass

    def event(self, event):
        pass

    def progress(self, done, total, sent, acknowledged):
        pass


@pytest.mark.parametrize("mechanism", ["gaussian", pytest.param("one-bit", marks=pytest.mark.slow)])
def test_streams_over_mqtt_with_a_device_killed_on_the_way(mechanism, tmp_path, mosquitto_binary):
    options = StreamOptions(devices=8, slots=8, mechanism=mechanism, kill_device_at=2)
    result = run_stream(options, tmp_path, Silent())
    assert result.accounts.holds
    assert result.accounts.counted == result.accounts.sent > 8 * 8 - 8
    # The sixth standard error is exceeded with probability 2e-9 a slot.
    assert result.worst < 6
    assert len(result.slots) >= 8
    assert "user-level" in result.guarantee
    if find_micropython() and example_device():
        assert result.micropython >= 7
    for flags, kind in (([], "stream"), (["--smoothed"], "smoothed")):
        asked = CliRunner().invoke(app, ["query", str(tmp_path / "store.sqlite"), "--json", *flags])
        assert asked.exit_code == 0, asked.output
        found = json.loads(asked.stdout)
        assert found["delta"] == 1e-5
        assert {one["kind"] for one in found["slots"]} == {kind}
    runs = CliRunner().invoke(app, ["query", str(tmp_path / "store.sqlite"), "--every", "4"])
    assert "user-level" in runs.stdout
    # The killed device came back with a new chain.
    reports = [one.reports for one in result.slots]
    assert min(reports) == 7
    assert reports[-1] == 8


@pytest.mark.parametrize("changes", [{"devices": 1}, {"slots": 0}, {"epsilon": "9"}, {"kill_device_at": 48}])
def test_bad_options_are_refused(changes):
    with pytest.raises(Invalid):
        StreamOptions(**changes)


def test_options_of_the_other_demonstration_are_refused():
    result = CliRunner().invoke(app, ["demo", "--stream", "--bound", "7"])
    assert isinstance(result.exception, Invalid)
