"""The stream demonstration from end to end: a broker, the server, and MQTT clients, one of them under MicroPython."""

import json

import pytest
from typer.testing import CliRunner

from undertone.app import app
from undertone_shared.errors import Invalid
from undertone_shared.off_board.intake import unpack
from undertone_simulator.demo import DemoOptions, run
from undertone_simulator.demo.picture import draw
from undertone_simulator.processes import find_micropython
from undertone_simulator.wire.ledger import read_ledgers


class Silent:
    def say(self, sentence, *, loud=False):
        pass

    def event(self, event):
        pass

    def progress(self, done, total, sent, acknowledged):
        pass


def missed(folder):
    """The largest number of reports that this machine was too slow to draw: 0 unless it stalls.

    After a draw that was skipped, the device also loses its next slot, which it sees only in part.
    """
    words = [line.split() for line in (folder / "fleet.log").read_text(encoding="utf-8").splitlines()]
    (skipped,) = [int(word[1]) for word in words if word[0] == "skipped"]
    if find_micropython() is None:
        return 2 * skipped
    slots = [unpack(report).slot for _, report in read_ledgers([folder / "micropython.log"]).sent]
    return 2 * skipped + (max(slots) - min(slots) + 1 - len(set(slots)) if slots else 0)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("mechanism", "dimension"),
    [
        ("gaussian", 1),
        ("gaussian", 2),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("gaussian", 3), ("one-bit", 1))),
    ],
)
def test_streams_over_mqtt_with_a_device_killed_on_the_way(mechanism, dimension, tmp_path, mosquitto_binary):
    options = DemoOptions(
        8, 8, "8", kill_device_at=2, collect="stream", mechanism=mechanism, dimension=dimension, kill_server_at=5
    )
    result = run(options, tmp_path, Silent())
    assert {slot.coordinate for slot in result.slots} == set(range(1, dimension + 1))
    draw(result, tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes()[:4] == b"\x89PNG"
    assert result.accounts.holds
    late = missed(tmp_path)
    assert result.accounts.counted == result.accounts.sent > 8 * 8 - 8 - late
    # In each slot, six standard errors are exceeded with a probability of 2e-9.
    assert result.worst < 6
    assert len(result.slots) >= 8 * dimension
    assert "user-level" in result.guarantee
    # Only for readings of one coordinate does a round find θ. The guarantee covers the round's report, too.
    assert result.found is (dimension == 1)
    assert ("for the one report that finds theta" in result.guarantee) is result.found
    if find_micropython():
        assert result.micropython >= 7 - late
    for flags in ([], ["--filtered"]):
        asked = CliRunner().invoke(app, ["query", str(tmp_path / "stores/demo.sqlite"), "--json", *flags])
        assert asked.exit_code == 0, asked.output
        answer = json.loads(asked.stdout)
        assert answer["delta"] == 1e-5
        assert {slot["filtered"] for slot in answer["slots"]} == ({False, True} if flags else {False})
    runs = CliRunner().invoke(app, ["query", str(tmp_path / "stores/demo.sqlite"), "--every", "4"])
    assert "user-level" in runs.stdout
    # The device that was killed came back.
    reports = [slot.reports for slot in result.slots]
    assert 7 - late <= min(reports) <= 7
    assert 8 - late <= reports[-1] <= 8


def test_there_is_no_other_collection():
    result = CliRunner().invoke(app, ["demo", "--collect", "streams"])
    assert isinstance(result.exception, Invalid)
    assert str(result.exception) == "--collect is 'streams', expected one of reports, stream"
