"""Whatever one sensor, file or server does, the process does not end, because it also serves other sensors."""

import json
import os
import signal
import stat
import struct
import subprocess
import sys
import time

import pytest
from rig import DAY, make_campaign

from support.factory import policy_of
from support.waiting import wait_for
from undertone_device.core import pauses
from undertone_device.host import status
from undertone_device.host.gateway import HostedDevice
from undertone_device.host.sources.source import Plausible, SensorSource
from undertone_device.setup.config import read_config
from undertone_device.setup.storage import FileStorage
from undertone_shared.campaign import MAGIC, SIGNATURE_BYTES
from undertone_shared.errors import Invalid
from undertone_shared.off_board import issue

POLICY = policy_of(measures=["last"])


@pytest.fixture
def home(tmp_path, free_port):
    """Makes the folder of a device whose broker cannot be reached."""

    def make(source, name="m", **policy):
        folder = tmp_path / name
        folder.mkdir()
        config = {"name": name, "broker": {"host": "127.0.0.1", "port": free_port()}, "campaigns": ["load"]}
        config |= {"policy": "policy.json", "state": "state", "source": source}
        (folder / "policy.json").write_text(json.dumps(POLICY | policy), encoding="utf-8")
        (folder / "device.json").write_text(json.dumps(config), encoding="utf-8")
        return folder

    return make


def opened(folder):
    device = HostedDevice(read_config(str(folder / "device.json")), print, lambda *_: None)
    now = int(time.time())
    campaign = make_campaign(slot_seconds=1, epoch=now, last_slot=now + DAY, cycle=1, measure="last")
    device._client.reporter.accept(issue.pack(campaign, now), now)
    device.step(0)
    return device


def test_a_line_beyond_30_bits_is_no_sample_and_hides_no_other(home):
    folder = home({"kind": "fifo", "path": "pulses"})
    os.mkfifo(folder / "pulses")
    device = opened(folder)
    writer = os.open(folder / "pulses", os.O_RDWR)
    for line in (b"9" * 60, b"-2000000000", b"1073741824"):
        os.write(writer, line + b"\n")
        device.step(0)
        assert "expected -1073741823 to 1073741823" in device._state(0)["source"], line
    os.write(writer, b"1073741823\n")
    device.step(0)
    assert device._state(0)["source"] == ""
    os.close(writer)
    device.finish()


@pytest.mark.parametrize("polled", [True, False])
def test_whatever_a_library_raises_is_no_sample(polled):
    class Strange(SensorSource):
        def sample(self, now):
            raise RuntimeError("of its own")

        def arrived(self):
            raise RuntimeError("of its own")

    Strange.polled = polled
    source = Plausible(Strange())
    if polled:
        with pytest.raises(OSError, match="failed with RuntimeError"):
            source.read(0)
    else:
        assert source.arrived() == []
    assert source.trouble == "no sample: the source failed with RuntimeError"


def test_a_source_that_does_not_answer_keeps_no_other_device_waiting(home):
    """Opening a FIFO for reading waits until somebody opens it for writing."""
    folder = home({"kind": "file", "path": "meter"}, slot_seconds=DAY)
    os.mkfifo(folder / "meter")
    device = HostedDevice(read_config(str(folder / "device.json")), print, lambda *_: None)
    now = int(time.time())
    reporter = device._client.reporter
    observed = []
    reporter.observe = lambda sample, when: observed.append(sample)
    epoch = now // DAY * DAY
    last = epoch // DAY + 2
    campaign = make_campaign(slot_seconds=DAY, epoch=epoch, last_slot=last, cycle=1, measure="last")
    reporter.accept(issue.pack(campaign, now), now)
    for _ in range(3):
        device.step(0)
    assert observed == []
    (folder / "meter").write_text("5\n", encoding="utf-8")
    wait_for(lambda: device.step(20) or observed)
    assert observed == [5]
    device.finish()


def test_a_damaged_pause_pauses_and_is_told(home):
    folder = home({"kind": "constant", "value": 5})
    device = opened(folder)
    for torn in (b"soon", b"17", b"1 2 3", b"\xff"):
        (folder / "state/pause").write_bytes(torn)
        device._written_at = -100
        device.step(0)
        told = json.loads((folder / "state/status.json").read_text(encoding="utf-8"))
        assert told["pause"] == [told["time"], pauses.ENDLESS], torn
    (folder / "state/begun").write_bytes(b"\xff")
    (folder / "state/pause").unlink()
    device.step(0)
    device.finish()


def test_a_server_does_not_make_the_status_unreadable(home):
    device = opened(home({"kind": "constant", "value": 5}))
    body = b'"' + b"a" * 12000 + b'"'
    message = struct.pack(">4sII", MAGIC, int(time.time()), len(body)) + body + bytes(SIGNATURE_BYTES)
    device._client._accept("undertone/v2/load/config", message)
    state = json.dumps(device._state(0)).encode()
    assert status.parse_status(state)["trouble"].startswith("campaign refused: the campaign is 'aaa")
    device.finish()


def test_a_source_of_one_number_serves_no_policy_of_several(home):
    stream = {"rho": 1, "period_seconds": DAY, "dimension": 2}
    folder = home({"kind": "constant", "value": 5}, stream=stream)
    with pytest.raises(Invalid, match=r"stream\.dimension is 2, expected 1"):
        opened(folder)


def test_what_was_said_is_its_owners_alone(home, tmp_path):
    home({"kind": "constant", "value": 5})
    command = [sys.executable, "-m", "undertone_device", "run", "--all", str(tmp_path), "--ledger", str(tmp_path / "l")]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8")
    assert "started" in running.stdout.readline()
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 0
    running.stdout.close()
    assert stat.S_IMODE((tmp_path / "l").stat().st_mode) == 0o600
    assert FileStorage(str(tmp_path / "m/state")).read(status.FILE) is not None


def test_among_several_devices_the_wrong_one_is_named(home, tmp_path):
    home({"kind": "constant", "value": 1}, name="a")
    wrong = home({"kind": "constant", "value": "one"}, name="b") / "device.json"
    for arguments, named in ((["--all", str(tmp_path)], f"error: {wrong}: "), (["--config", str(wrong)], "error: ")):
        command = [sys.executable, "-m", "undertone_device", "run", *arguments]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith(f"{named}source.value is 'one', expected an integer"), done.stderr
