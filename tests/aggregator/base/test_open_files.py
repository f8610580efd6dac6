"""The limit of open files: raised at a start, compared with the devices, and an alarm when it is reached."""

import asyncio
import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.direct import raw, write_home
from support.many import PLAN
from support.waiting import wait_for
from undertone_aggregator.base.open_files import RESERVE, heed, limit, none_left, raise_limit
from undertone_aggregator.campaign.state import read_state
from undertone_aggregator.server.folder import Home
from undertone_operate.examine.doctor import examine


@contextmanager
def serving(folder: Path, limits: tuple[int, int]) -> Iterator[Path]:
    """`undertone serve` in a process that begins with these soft and hard limits; yields the file of its log."""
    log = folder / "log"
    command = [sys.executable, "-m", "undertone", "serve", str(folder), "--log-format", "json"]
    with log.open("wb") as file:
        server = subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits),
        )
    try:
        yield log
    finally:
        server.terminate()
        server.wait(60)


@pytest.fixture
def home(tmp_path: Path, free_port: Callable[[], int]) -> tuple[Home, int]:
    port = free_port()
    write_home(tmp_path, port, ["meter-1", "meter-2"])
    made = Home(tmp_path)
    made.write_plan("power", PLAN.format(name="power", epsilon=1))
    return made, port


def files_of_server(home: Home) -> int | None:
    """The server's limit, as soon as devices can connect to it."""
    served = read_state(home.state)
    ready = served is not None and "power" in served.campaigns and served.campaigns["power"].ready
    return served.files if served is not None and ready else None


@pytest.mark.waits
def test_a_server_takes_all_files_that_it_may_have(home: tuple[Home, int]) -> None:
    folder, _ = home
    with serving(folder.folder, (256, 1024)) as log:
        wait_for(lambda: files_of_server(folder) is not None)
        assert files_of_server(folder) == 1024
        assert b'"files"' not in log.read_bytes()
        finding = next(each for each in examine(folder.folder) if each.check == "open files")
        assert (finding.result, finding.fix) == ("ok", "")
        assert "may have 1024 open files, enough for 2 devices" in finding.sentence


@pytest.mark.waits
def test_running_out_is_one_alarm_and_doctor_says_how_many_are_needed(home: tuple[Home, int]) -> None:
    folder, port = home
    with serving(folder.folder, (100, 100)) as log:
        wait_for(lambda: files_of_server(folder) is not None)
        clients = [raw(port, b"") for _ in range(150)]

        def alarms() -> list[dict[str, Any]]:
            return [line for line in map(json.loads, log.read_text().splitlines()) if line["event"] == "files"]

        wait_for(lambda: bool(alarms()))
        finding = next(each for each in examine(folder.folder) if each.check == "open files")
        for client in clients:
            client.close()
        (alarm,) = alarms()
    assert alarm["level"] == "alarm"
    assert "the limit of 100 open files is reached" in alarm["message"]
    assert "undertone doctor" in alarm["message"]
    assert finding.result == "failure"
    assert f"expected {RESERVE + 2} for 2 devices" in finding.sentence
    assert f"LimitNOFILE={RESERVE + 2}" in finding.fix


def test_a_soft_limit_is_raised_as_far_as_the_system_permits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS, whose hard limit is none and whose kernel takes no more than OPEN_MAX."""
    limits = [256, resource.RLIM_INFINITY]

    def change(which: int, wanted: tuple[int, int]) -> None:
        if wanted[0] > 10_240:
            raise ValueError("current limit exceeds maximum limit")
        limits[:] = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda which: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", change)
    assert raise_limit() == 10_240
    assert limits == [10_240, resource.RLIM_INFINITY]
    assert raise_limit() == 10_240
    assert limit()[0] == 10_240


def test_a_loop_that_accepts_nobody_says_why() -> None:
    said: list[str] = []
    with closing(asyncio.new_event_loop()) as loop:
        heed(loop, said.append)
        # What asyncio's servers call when accept fails for want of files.
        full = OSError(errno.EMFILE, "Too many open files")
        loop.call_exception_handler({"message": "socket.accept() out of system resource", "exception": full})
        loop.call_exception_handler({"message": "other", "exception": ValueError()})
    assert len(said) == 1
    assert "open files is reached" in said[0]


def test_whether_a_file_is_left() -> None:
    assert not none_left()
    held: list[int] = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        used = os.open(os.devnull, os.O_RDONLY)
        held.append(used)
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, hard))
        while not none_left():
            held.append(os.open(os.devnull, os.O_RDONLY))
        assert none_left()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in held:
            os.close(each)
