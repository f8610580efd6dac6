"""Two programs as processes with a real broker: the command of a phone or gateway, and the boards' code on a PC."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from rig import DAY, hybrid, make_campaign

from support import micropython as mp
from support.factory import policy_of
from support.paho_client import leave
from support.private_broker import PrivateBroker
from support.waiting import wait_for
from undertone_device import __main__ as command
from undertone_device.host.status import parse_status
from undertone_device.setup.assembly import read_policy
from undertone_device.setup.config import read_config
from undertone_shared.errors import Invalid
from undertone_shared.off_board import intake, issue
from undertone_shared.scalar import ReportRule

POLICY = policy_of(boots_per_day=1000, write_seconds=1)


class Server:
    """Publishes campaigns with slots of a second, and keeps what devices report."""

    def __init__(self, port, prefix):
        self.prefix = prefix
        self.messages = []
        self.epoch = int(time.time())
        self._client = paho.Client(CallbackAPIVersion.VERSION2, "server")
        self._client.on_message = lambda client, data, message: self.messages.append((message.topic, message.payload))
        subscribed = threading.Event()
        self._client.on_subscribe = lambda *_: subscribed.set()
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        self._client.subscribe(f"{prefix}/+/+/+/report", 1)
        assert subscribed.wait(30)

    def publish(self, **changes):
        campaign = make_campaign(
            **{"slot_seconds": 1, "epoch": self.epoch, "last_slot": self.epoch + DAY, "cycle": 1, **changes}
        )
        message = issue.pack(campaign, int(time.time()))
        self._client.publish(f"{self.prefix}/load/config", message, qos=1, retain=True).wait_for_publish(10)

    def slots(self):
        return [intake.unpack(payload).slot for _, payload in self.messages]

    def wait(self, count, process=None):
        ended = lambda: process is not None and process.poll() is not None  # noqa: E731
        wait_for(lambda: len(self.messages) >= count or ended(), what=f"{count} reports")
        assert len(self.messages) >= count, (
            f"{len(self.messages)} reports from a device that said {process.communicate()}"
        )

    def sent_by(self, device):
        """The number of reports that have come whose topic contains this name."""
        return sum(device in topic for topic, _ in list(self.messages))

    def close(self):
        leave(self._client)


@pytest.fixture
def broker(mosquitto_binary, tmp_path, free_port):
    with PrivateBroker(mosquitto_binary, tmp_path, free_port()) as running:
        yield running


@pytest.fixture
def server(broker, topic_prefix):
    running = Server(broker.port, topic_prefix)
    yield running
    running.close()


@pytest.fixture
def device(broker, server, tmp_path):
    """A function that writes a device's configuration for ``broker``, with changes. ``path``: the written file."""
    (tmp_path / "policy.json").write_text(json.dumps(POLICY), encoding="utf-8")
    path = tmp_path / "device.json"
    config = {
        "name": "meter-1",
        "broker": {"host": "localhost", "port": broker.port},
        "prefix": server.prefix,
        "campaigns": ["load"],
        "policy": "policy.json",
        "state": "state",
        "source": {"kind": "constant", "value": 7},
        "publish": {"spread_percent": 10},
    }

    def configure(**changes):
        path.write_text(json.dumps({**config, **changes}), encoding="utf-8")
        return path

    configure()
    configure.path = path
    return configure


@pytest.fixture
def start():
    with contextlib.ExitStack() as processes:

        def run(path, *options, stdin=subprocess.DEVNULL, how="--config"):
            process = processes.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "undertone_device", "run", how, str(path), *options],
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    encoding="utf-8",
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, mp.SOURCES))},
                )
            )
            processes.callback(process.kill)
            return process

        yield run


def end(process, how=signal.SIGTERM):
    """Send the signal to the process; return its standard output and standard error."""
    process.send_signal(how)
    out, err = process.communicate(timeout=60)
    return out, err


def test_runs_reports_and_stops_cleanly(device, server, start, capsys):
    server.publish()
    process = start(device.path, "--json")
    server.wait(2, process)
    out, err = end(process)
    assert (process.returncode, err) == (0, "")
    assert all("event" in json.loads(line) for line in out.splitlines())

    assert command.main(["status", "--config", str(device.path)]) == 0
    text = capsys.readouterr().out
    assert "load, which measures the sum of energy" in text
    assert "report: odds change by at most 2/1, epsilon = 0.6931 per reading (event level)" in text
    assert "any 24 h    at most 86401 reports: epsilon = 59888.61" in text
    assert "offline" in text
    assert command.main(["status", "--json", "--config", str(device.path)]) == 0
    state = json.loads(capsys.readouterr().out)
    # Reports that the broker has acknowledged reach the test's client a little later.
    server.wait(state["counts"]["acked"])
    slots = server.slots()
    # If the machine is too busy for a second, the device skips a slot.
    assert slots == sorted(set(slots))
    assert all(topic.endswith("/meter-1/report") for topic, _ in server.messages)
    assert state["counts"]["acked"] == len(slots)
    assert state["outbox"] == 0
    # The state has neither a reading nor a symbol. What it has is public, or about the device itself.
    assert set(state["campaign"]) >= {"theta", "epoch", "fingerprint"}
    assert not {"value", "sample", "symbol", "reading"} & set(json.dumps(state).replace('"', " ").split())


@pytest.mark.waits
def test_a_killed_device_goes_on_without_drawing_a_slot_twice(device, server, start):
    server.publish()
    process = start(device.path)
    server.wait(2, process)
    end(process, signal.SIGKILL)
    process = start(device.path)
    server.wait(4, process)
    end(process)
    distinct = set(server.messages)
    slots = sorted(intake.unpack(payload).slot for _, payload in distinct)
    assert len(slots) == len(set(slots)), "one slot, one draw"


def test_a_campaign_above_the_policy_is_refused_over_the_broker(device, server, start, capsys):
    server.publish(report=ReportRule(0, 300, hybrid(3, 1)))
    process = start(device.path)
    state_file = device.path.parent / "state/status.json"
    wait_for(
        lambda: state_file.exists() and json.loads(state_file.read_text(encoding="utf-8"))["refusals"], what="a refusal"
    )
    server.publish()
    server.wait(1, process)
    end(process)
    assert command.main(["status", "--config", str(device.path)]) == 0
    assert "refused     epsilon 1" in capsys.readouterr().out


def test_samples_from_standard_input(device, server, start):
    server.publish()
    device(source={"kind": "stdin"})
    process = start(device.path, stdin=subprocess.PIPE)
    process.stdin.write("3\nfour\n5\n")
    process.stdin.flush()
    server.wait(1, process)
    _, err = end(process)
    assert (process.returncode, err) == (0, "")


def test_the_boards_code_on_a_pc(device, server, micropython):
    server.publish()
    script = mp.REPO / "device/examples/unix_device.py"
    result = micropython(script, str(device.path), "3", "1,2,3", cwd=device.path.parent)
    assert result.returncode == 0, result.stderr
    words = [line.split() for line in result.stdout.splitlines()]
    assert words[0] == ["start", "meter-1"]
    sent = [line[2] for line in words if line[0] == "sent"]
    acked = [line[2] for line in words if line[0] == "acked"]
    assert sent == acked
    # There are more than three if the last acknowledgement came in the next slot.
    assert words[-1][:4] == ["end", str(len(acked)), str(len(acked)), "0"]
    assert len(acked) >= 3
    server.wait(len(acked))
    assert [payload.hex() for _, payload in server.messages] == acked


# --- usage


def refusal(capsys, *arguments):
    assert command.main(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_bad_files_are_one_sentence(tmp_path, capsys):
    path = tmp_path / "device.json"
    assert refusal(capsys, "run", "--config", str(path)) == f"error: {path}: No such file or directory\n"
    path.write_text("{", encoding="utf-8")
    assert "not JSON" in refusal(capsys, "run", "--config", str(path))
    config = {"name": "m", "broker": {"host": "h"}, "campaigns": ["load"], "policy": "policy.json", "state": "state"}
    path.write_text(json.dumps(config), encoding="utf-8")
    assert "policy.json" in refusal(capsys, "run", "--config", str(path))
    assert "status.json does not exist" in refusal(capsys, "status", "--config", str(path))
    (tmp_path / "policy.json").write_text(json.dumps({**POLICY, "cap": [1, 2]}), encoding="utf-8")
    assert "cap" in refusal(capsys, "run", "--config", str(path))
    (tmp_path / "policy.json").write_text(json.dumps({**POLICY, "insecure": False}), encoding="utf-8")
    assert "signers" in refusal(capsys, "run", "--config", str(path))
    (tmp_path / "policy.json").write_text(
        json.dumps({**POLICY, "insecure": False, "signers": ["00" * 32]}), encoding="utf-8"
    )
    assert "source" in refusal(capsys, "run", "--config", str(path))
    path.write_text(json.dumps({**config, "source": {"kind": "constant", "value": 1}}), encoding="utf-8")
    assert "tls" in refusal(capsys, "run", "--config", str(path))
    (tmp_path / "policy.json").write_text(json.dumps(POLICY), encoding="utf-8")
    (tmp_path / "state").write_text("", encoding="utf-8")
    assert "state" in refusal(capsys, "run", "--config", str(path))


def test_the_sample_files_are_valid():
    config = read_config(str(mp.REPO / "device/examples/device.json"))
    policy = read_policy(config)
    assert config.broker.port == 8883
    assert policy.cap == (2721, 1001)


def test_usage_errors_are_one_sentence_and_exit_with_2(capsys):
    for arguments in ([], ["fly"], ["run"]):
        assert command.main(arguments) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"x" * 20000])
def test_a_broken_status_file(data):
    with pytest.raises(Invalid, match="status"):
        parse_status(data)


# --- many devices in one process


def test_one_process_runs_all_devices_each_with_its_own_ledger_and_policy(device, server, start, tmp_path, capsys):
    server.publish()
    base = json.loads(device.path.read_text(encoding="utf-8"))
    for name in ("meter-1", "meter-2"):
        folder = tmp_path / "all" / name
        folder.mkdir(parents=True)
        (folder / "policy.json").write_text(json.dumps(POLICY), encoding="utf-8")
        (folder / "device.json").write_text(json.dumps({**base, "name": name}), encoding="utf-8")
    process = start(tmp_path / "all", how="--all")
    wait_for(lambda: all(server.sent_by(f"/meter-{n}/") >= 3 for n in (1, 2)), 90, "reports of both")
    out, err = end(process)
    assert (process.returncode, err) == (0, "")
    assert {line.split(":")[0] for line in out.splitlines()} == {"meter-1", "meter-2"}
    for name in ("meter-1", "meter-2"):
        assert command.main(["status", "--json", "--config", str(tmp_path / "all" / name / "device.json")]) == 0
        state = json.loads(capsys.readouterr().out)
        assert state["device"] == name
        acked = state["counts"]["acked"]
        own = f"/{name}/"
        wait_for(lambda own=own, acked=acked: server.sent_by(own) >= acked, 30, "what the broker has acknowledged")
        assert acked == server.sent_by(own) > 0


def test_devices_that_share_a_name_or_a_state_folder_are_refused(device, tmp_path, capsys):
    base = json.loads(device.path.read_text(encoding="utf-8"))
    for number, changes in enumerate(({}, {"state": "other"})):
        folder = tmp_path / "all" / str(number)
        folder.mkdir(parents=True)
        (folder / "device.json").write_text(json.dumps({**base, **changes}), encoding="utf-8")
    assert "name is 'meter-1' in 2 configurations" in refusal(capsys, "run", "--all", str(tmp_path / "all"))
    (tmp_path / "empty").mkdir()
    assert "have no device.json" in refusal(capsys, "run", "--all", str(tmp_path / "empty"))


@pytest.mark.parametrize("typed", ["undertone-device", "undertone device"])
@pytest.mark.parametrize("name", command.EXAMPLES)
def test_an_example_of_the_help_is_a_correct_command_line(name, typed, capsys):
    with pytest.raises(SystemExit):
        command.main([name, "--help"], typed)
    shown = capsys.readouterr().out
    for example in command.EXAMPLES[name]:
        assert f"{typed} {example}\n" in shown
        assert command._parser(typed).parse_args(example.split()).command == name
