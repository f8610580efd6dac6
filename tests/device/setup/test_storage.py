"""The state is in a folder of a real file system.

Only one process uses it, and no other user may read it. A file that cannot be read does not count as absent.
"""

import errno
import json
import os
import resource
import subprocess
import sys
from contextlib import contextmanager

import pytest
from rig import SLOT, START, Ticks, make_campaign, make_entropy, make_policy

from undertone_device.__main__ import main
from undertone_device.core.reporter import Reporter
from undertone_device.setup.storage import FileStorage
from undertone_shared.errors import Invalid
from undertone_shared.off_board import issue


def boot(folder, **policy):
    return Reporter("meter-1", make_policy(**policy), FileStorage(str(folder)), make_entropy(), Ticks())


def running(folder):
    reporter = boot(folder)
    reporter.accept(issue.pack(make_campaign(), START - SLOT), START - SLOT)
    return reporter


@pytest.fixture
def config(tmp_path):
    policy = {
        "version": 1,
        "sensor": "energy",
        "measures": ["sum"],
        "cap": [2, 1],
        "slot_seconds": SLOT,
        "theta": [1, 1000],
        "duration_seconds": 400 * 86400,
        "insecure": True,
    }
    (tmp_path / "policy.json").write_text(json.dumps(policy), encoding="utf-8")
    (tmp_path / "device.json").write_text(
        json.dumps(
            {
                "name": "meter-1",
                "broker": {"host": "localhost", "port": 1},
                "campaigns": ["load"],
                "policy": "policy.json",
                "state": "state",
                "source": {"kind": "constant", "value": 1},
            }
        ),
        encoding="utf-8",
    )
    return tmp_path


HOLD = """
import sys
from undertone_device.setup.storage import FileStorage
storage = FileStorage(sys.argv[1])
storage.claim()
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process(folder):
    """Another process, which uses the state folder as a running device does."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield
        process.stdin.close()


def test_a_second_device_on_the_same_state_is_refused_in_one_sentence(config, capsys):
    (config / "state").mkdir()
    with another_process(config / "state"):
        assert main(["run", "--config", str(config / "device.json")]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert "in use by another process" in error
        assert str(config / "state") in error
        with pytest.raises(Invalid, match="in use by another process"):
            boot(config / "state")
    boot(config / "state")


def test_one_storage_may_boot_again(tmp_path):
    storage = FileStorage(str(tmp_path))
    for _ in range(3):
        Reporter("meter-1", make_policy(), storage, make_entropy(), Ticks())


def test_a_ledger_that_cannot_be_read_is_not_a_lost_one(tmp_path):
    running(tmp_path)
    before = (tmp_path / "ledger").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    storage = FileStorage(str(tmp_path))
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, limits[1]))
    try:
        with pytest.raises(OSError, match="open files") as raised:
            storage.read("ledger")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert raised.value.errno == errno.EMFILE
    (tmp_path / "ledger").rename(tmp_path / "kept")
    (tmp_path / "ledger").mkdir()  # not even root can read it
    with pytest.raises(IsADirectoryError):
        boot(tmp_path)
    (tmp_path / "ledger").rmdir()
    (tmp_path / "kept").rename(tmp_path / "ledger")
    assert boot(tmp_path).campaign is not None
    assert (tmp_path / "ledger").read_bytes() == before


def test_the_state_is_for_its_owner_alone(config, monkeypatch):
    mask = os.umask(0)
    try:
        stopped = []

        def stop(self, milliseconds):
            stopped.append(1)
            os.kill(os.getpid(), 15)

        monkeypatch.setattr("undertone_device.host.gateway.HostedDevice.step", stop)
        assert main(["run", "--config", str(config / "device.json")]) == 0
        running(config / "state")
    finally:
        os.umask(mask)
    assert stopped
    state = config / "state"
    assert state.stat().st_mode & 0o777 == 0o700
    files = [path for path in state.rglob("*") if path.is_file()]
    assert {"ledger", "begun", "status.json"} <= {path.name for path in files}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_what_was_deleted_does_not_come_back_as_what_was_to_replace_it(tmp_path):
    storage = FileStorage(str(tmp_path))
    storage.write("name", b"old")
    (tmp_path / "name.new").write_bytes(b"torn")
    assert storage.read("name") == b"old"
    storage.delete("name")
    assert storage.read("name") is None
    (tmp_path / "name.new").write_bytes(b"whole")
    assert storage.read("name") == b"whole"


def test_the_only_copy_is_not_overwritten_whatever_happened_to_it_meanwhile(tmp_path):
    """If a power cut left only NAME.new, as may happen on FAT, the next write first renames this file to NAME."""
    for meanwhile in ("nothing", "deleted", "written by another object"):
        (tmp_path / "ledger").unlink(missing_ok=True)
        (tmp_path / "ledger.new").write_bytes(b"old")
        storage = FileStorage(str(tmp_path))
        assert storage.read("ledger") == b"old"
        if meanwhile == "deleted":
            storage.delete("ledger")
        elif meanwhile == "written by another object":
            FileStorage(str(tmp_path)).write("ledger", b"other")
        opened = []

        def create(path, mode, opened=opened):
            opened.append({file.name: file.read_bytes() for file in tmp_path.iterdir()})
            return open(path, mode)

        storage.create = create
        storage.write("ledger", b"new")
        assert storage.read("ledger") == b"new"
        if meanwhile == "nothing":
            assert opened[0] == {"ledger": b"old"}
