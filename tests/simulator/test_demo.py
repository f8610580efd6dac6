"""One demonstration with few devices and slots. Every process is real, and the server and a device are killed."""

import importlib
import io
import json
import math
from collections import Counter

import pytest
from rich.console import Console

from support.ci import unavailable
from undertone.__main__ import main
from undertone.commands.demo import table_of
from undertone_shared.errors import Invalid
from undertone_shared.off_board.intake import unpack
from undertone_shared.report import COHORT, REPORT
from undertone_simulator.demo import DemoOptions, run
from undertone_simulator.demo.cost import meaning
from undertone_simulator.demo.picture import draw
from undertone_simulator.processes import Processes, find_micropython
from undertone_simulator.wire.ledger import read_ledgers

# The package has a function with the name of the module, so the module is imported by its path.
run_module = importlib.import_module("undertone_simulator.demo.run")
DEVICES = 12
SLOTS = 8
KEYS = {"theta", "epsilon", "certificate", "guarantee", "slots", "ways", "accounting"}
SLOT_KEYS = {"slot", "reports", "estimate", "standard_error", "low", "high"} | {
    *("truncated_mean", "truncated_se", "truth_truncated", "truth_raw", "filtered", "filtered_error")
}
ACCOUNTING_KEYS = {"sent", "received", "acknowledged", "counted", "duplicates", "rejected", "lost"}


class Silent:
    """A display that keeps what it is told and shows nothing."""

    def __init__(self):
        self.said = []
        self.events = []
        self.done = 0

    def say(self, sentence, *, loud=False):
        self.said.append((sentence, loud))

    def event(self, event):
        self.events.append(event)

    def progress(self, done, total, sent, acknowledged):
        self.done = done / total


@pytest.fixture(
    scope="module", params=[pytest.param("mosquitto", marks=pytest.mark.slow), None], ids=["mosquitto", "direct"]
)
def demo(tmp_path_factory, mosquitto_binary, request):
    folder = tmp_path_factory.mktemp("demo")
    display = Silent()
    options = DemoOptions(
        DEVICES, SLOTS, "4", seed=3, kill_server_at=2, kill_device_at=1, round_slots=2, broker=request.param
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
        return run(options, folder, display), folder, display


def late(folder):
    """The largest number of reports that this machine was too slow to draw: 0 unless it stalls."""
    words = [line.split() for line in (folder / "fleet.log").read_text(encoding="utf-8").splitlines()]
    # After a draw that was skipped, the device also loses its next slot, which it sees only in part.
    return 2 * sum(int(word[1]) for word in words if word[0] == "skipped")


# This test is not marked long. Otherwise it would be run by another worker, which would run the demonstrations again.
@pytest.mark.slow
@pytest.mark.waits
def test_every_report_is_counted_exactly_once(demo):
    result, folder, _ = demo
    accounts = result.accounts
    assert accounts.holds, accounts.examples
    assert accounts.sent == accounts.counted > DEVICES * (6 + SLOTS - 2) - late(folder)
    assert not accounts.rejected
    assert not accounts.lost
    assert accounts.faults == {"aggregator_killed": 1, "killed": 1}


def test_estimates_lie_within_eight_standard_errors_of_the_truth(demo):
    # Eight means of twelve reports each have longer tails than a normal distribution. Of 1.5 million simulated slots,
    # one in 190,000 was beyond 6 and none beyond 7; beyond 6.5 were seven times fewer than beyond 6. So less than 1e-8
    # are beyond 8.
    result, _, _ = demo
    assert len(result.slots) == SLOTS
    assert result.worst < 8
    # 8 × the square of `standardised` was beyond 45 once in 27,000 runs, and beyond 52 seven times less often. So it is
    # beyond 80 with a chance below 1e-7.
    assert result.standardised < math.sqrt(80 / SLOTS)
    assert all(slot.low < slot.estimate < slot.high for slot in result.slots)
    assert all(slot.truth_truncated <= slot.truth_raw for slot in result.slots)
    assert [slot.column for slot in result.slots] == list(range(3 * 48, 3 * 48 + SLOTS))


def test_the_certificate_is_below_e_to_the_epsilon(demo):
    result, _, _ = demo
    assert result.epsilon == 4
    assert 54.5 < result.certificate < math.exp(4)


def test_the_micropython_device_is_admitted_like_any_other(demo):
    result, folder, display = demo
    name = f"demo-{DEVICES:03d}"
    if find_micropython() is None:
        assert any(loud and "MicroPython" in sentence for sentence, loud in display.said)
        unavailable("no MicroPython here")
    assert f"device {name} runs under real MicroPython, in a process of its own" in [
        sentence for sentence, _ in display.said
    ]
    reports = [unpack(report) for device, report in read_ledgers([folder / "micropython.log"]).sent]
    kinds = Counter(report.kind for report in reports)
    assert kinds[COHORT] >= 6
    # The device skips a slot if this machine is too slow for it.
    slots = [report.slot for report in reports]
    first = min(report.slot for report in reports if report.kind == REPORT)
    skipped = set(range(first, max(slots) + 1)) - set(slots)
    assert kinds[REPORT] >= SLOTS - 3 - len(skipped)
    assert result.accounts.holds


def test_a_device_that_backs_off_may_come_back_before_it_is_ended():
    log = "state online\nacked 7 00\nstate [Errno 111] ECONNREFUSED"
    looks = []

    def words():
        looks.append(log if len(looks) < 3 else log + "\nstate online\nsent 8 00")
        return looks[-1]

    run_module.wait_until_online(words)
    assert len(looks) == 4
    # Here, one device does not come back, and another one was never away.
    run_module.wait_until_online(lambda: log, 0.3)
    run_module.wait_until_online(lambda: "sent 8 00\nacked 8 00")


def test_progress_and_the_aggregators_words(demo):
    _, _, display = demo
    assert display.done > 0.8
    kinds = Counter(event["event"] for event in display.events)
    assert kinds["epoch"] == 4
    assert kinds["slot"] >= 2, "a line for each kind of number, and then one a minute"
    assert sum("killed" in sentence for sentence, loud in display.said if loud) == 1


def test_json_has_exactly_the_documented_keys(demo):
    result, _, _ = demo
    data = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert set(data) == KEYS
    assert {frozenset(slot) for slot in data["slots"]} == {frozenset(SLOT_KEYS)}
    assert set(data["accounting"]) == ACCOUNTING_KEYS
    assert data["theta"] == result.theta
    assert data["certificate"] <= math.exp(data["epsilon"])
    assert "event-level" in data["guarantee"]


@pytest.mark.slow_but("direct")
@pytest.mark.waits
def test_table_sentences_and_picture(demo, tmp_path):
    result, _, _ = demo
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table_of(*result.table()))
    console.print(table_of(*result.side_by_side()))
    shown = console.export_text()
    assert str(result.slots[0].slot) in shown
    assert "day 4 00:00" in shown
    assert "…" not in shown
    text = " ".join(result.sentences())
    assert f"θ = {result.theta} Wh" in text
    assert "ε = 4 per reading (event level), 192 per played day of 48 readings" in text
    assert "nothing is unexplained" in text
    # There are eight slots. The text has the certificate of a designed table, and the error with its prediction.
    assert "an optimal table of 25 levels" in text
    assert "than the Hybrid's (variance × 0." in text
    assert "proven in integers" in text
    assert f"(their ratio is {result.standardised:.2f}, and in about 95 % of runs it is 1 ± 0.49)" in text
    # The text names the steps as the papers do, and compares the papers' way with the one that was played.
    assert [word for word in ("Square Wave:", "EM:", "θ =", "reports:", "reconstruction:") if word not in text] == []
    assert [(way.name, way.filtered, way.played) for way in result.ways] == [
        ("papers' way", False, False),
        ("default", False, True),
        ("default", True, True),
    ]
    assert "papers' way   hybrid       raw  simulated" in shown
    draw(result, tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes()[:4] == b"\x89PNG"


def test_undertone_verify_agrees(demo, monkeypatch, capsys):
    _, folder, _ = demo
    arguments = [word for path in Processes(folder).ledgers() for word in ("--ledger", str(path))]
    command = ["undertone", "verify", *arguments, "--store", str(folder / "stores/demo.sqlite")]
    monkeypatch.setattr("sys.argv", [*command, "--json"])
    assert main() == 0
    told = json.loads(capsys.readouterr().out)
    assert told["holds"] is True
    assert told["reports"]["sent"] == told["reports"]["counted"]
    # Without the ledger of the MicroPython device, the origin of its reports is unexplained.
    command = ["undertone", "verify", "--ledger", str(folder / "fleet.ledger"), "--store", command[-1]]
    monkeypatch.setattr("sys.argv", command)
    expected = 1 if find_micropython() else 0
    assert main() == expected


def test_the_plain_sentence():
    text = meaning(1.0, 48)
    assert "the report of one reading shifts the odds between any two of its values" in text
    assert "factor of at most e^1 = 2.72" in text
    assert "e^48" in text


@pytest.mark.parametrize(
    "wrong",
    [
        {"devices": 1},
        {"slots": 0},
        {"epsilon": "9"},
        {"epsilon": "x"},
        {"seed": -1},
        {"kill_device_at": 48},
        {"broker": "rabbitmq"},
    ],
)
def test_bad_options_are_refused_in_one_sentence(wrong):
    with pytest.raises(Invalid, match="expected") as caught:
        DemoOptions(**wrong)
    assert "\n" not in str(caught.value)
