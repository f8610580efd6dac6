"""The limit of open files.

The server raises the limit when it starts, compares it with the number of devices, and gives an alarm when the limit is
reached.
"""

import asyncio
import errno
import json
import os
import resource
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.command import undertone
from support.direct import Device, raw, write_home
from support.many import PLAN
from support.waiting import wait_for
from undertone_aggregator.base.open_files import FILES, RESERVE, heed, limit, none_left, raise_limit
from undertone_aggregator.base.room import CROWD, Room, room
from undertone_aggregator.campaign.state import read_state
from undertone_aggregator.server.folder import Home
from undertone_aggregator.web.site import HomeSite
from undertone_device.mqtt.packets import ProtocolError
from undertone_operate.examine.doctor import examine
from undertone_operate.examine.doctor_broker import Finding
from undertone_simulator.processes import Processes
from undertone_simulator.readings.populations import population
from undertone_simulator.wire.fleet_process import FleetJob


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


def room_of_server(home: Home) -> Room | None:
    """Return the server's room for devices, or None before they can connect to it."""
    served = read_state(home.state)
    ready = served is not None and "power" in served.campaigns and served.campaigns["power"].ready
    return served.room if served is not None and ready else None


def finding_of(home: Home) -> Finding:
    """What doctor says about the room for connections."""
    return next(each for each in examine(home.folder) if each.check == "room")


def alarms(log: Path, event: str) -> list[dict[str, Any]]:
    """The alarms with this event in a log."""
    lines = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line["level"] == "alarm" and line["event"] == event]


@pytest.mark.slow
@pytest.mark.waits
def test_a_server_takes_all_files_that_it_may_have(home: tuple[Home, int]) -> None:
    folder, _ = home
    with serving(folder.folder, (256, 1024)) as log:
        wait_for(lambda: room_of_server(folder) is not None)
        assert room_of_server(folder) == room(None, 1024)
        assert not alarms(log, FILES)
        assert "at most 768 at once, because of the limit of 1024 open files" in log.read_text(encoding="utf-8")
        finding = finding_of(folder)
        assert (finding.result, finding.fix) == ("ok", "")
        assert "2 devices may log in, and at most 768 can be connected at once" in finding.sentence


@pytest.mark.slow
@pytest.mark.waits
def test_running_out_is_one_alarm_and_doctor_says_how_many_are_needed(home: tuple[Home, int]) -> None:
    folder, port = home
    with serving(folder.folder, (100, 100)) as log:
        wait_for(lambda: room_of_server(folder) is not None)
        clients = [raw(port, b"") for _ in range(150)]
        wait_for(lambda: bool(alarms(log, FILES)))
        finding = finding_of(folder)
        for client in clients:
            client.close()
        (alarm,) = alarms(log, FILES)
    assert "can open no further file (its limit is 100)" in alarm["message"]
    assert "undertone doctor" in alarm["message"]
    assert finding.result == "failure"
    said = "2 devices may log in, and at most 1 can be connected at once, because of the limit of 100 open files"
    assert said in finding.sentence
    assert f"LimitNOFILE={RESERVE + 2}" in finding.fix


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("by_setting", [False, True])
def test_devices_that_find_no_room_are_counted_in_log_page_metrics_and_doctor(
    tmp_path: Path, free_port: Callable[[], int], by_setting: bool
) -> None:
    """Room for 40 of 45 devices: once because few files may be open, and once because the operator set that limit."""
    port, health, users = free_port(), free_port(), [f"power-{number:02}" for number in range(45)]
    more = "connections = 40\n" if by_setting else ""
    write_home(tmp_path, port, users, more=f'{more}[server]\nhealth = "127.0.0.1:{health}"\n')
    home = Home(tmp_path)
    home.write_plan("power", PLAN.format(name="power", epsilon=1))
    limits = (1024, 1024) if by_setting else (RESERVE + 40, RESERVE + 40)
    with serving(tmp_path, limits) as log:
        wait_for(lambda: room_of_server(home) is not None)
        devices = []
        for number, user in enumerate(users):
            # The connections come one after the other, because the server may accept simultaneous ones in any order.
            devices.append(Device(port, user))
            if number < 40:
                devices[-1].wait("connected")
            else:
                with pytest.raises(ProtocolError, match="it is unavailable"):
                    devices[-1].wait("connected")
        # The server raises the alarm within a minute, even if no further device tries to connect.
        wait_for(lambda: bool(alarms(log, CROWD)), 60)
        finding = finding_of(home)
        with urllib.request.urlopen(f"http://127.0.0.1:{health}/metrics", timeout=60) as answered:
            metrics = answered.read().decode()
        site = HomeSite(home)
        wait_for(lambda: "power" in site.names(), 60)
        assert any(each.startswith("5 devices cannot connect") for each in site.state("power")["problems"])
        wait_for(lambda: any(each["event"] == CROWD for each in site.state("power")["alarms"]), 120)
        site.close()
        for device in devices:
            device.socket.close()
    why = "connections = 40 in [broker]" if by_setting else f"the limit of {RESERVE + 40} open files"
    fix = "connections = 45 in [broker]" if by_setting else f"LimitNOFILE={RESERVE + 45}"
    said = f"5 devices cannot connect: the server has room for only 40 at once, because of {why}"
    (alarm,) = alarms(log, CROWD)
    assert said in alarm["message"]
    assert fix in alarm["message"]
    assert (finding.result, finding.sentence) == ("failure", said)
    assert fix in finding.fix
    assert "undertone_endpoint_room 40.0" in metrics
    assert "undertone_endpoint_turned_away 5.0" in metrics
    assert f"undertone_open_files_limit {limits[1]}.0" in metrics


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("devices", "soft", "hard"),
    [
        (60, 64, 1024),
        (60, 64, RESERVE + 40),
        pytest.param(2000, 1024, 4096, marks=pytest.mark.slow),
        pytest.param(2000, 1024, 1024, marks=pytest.mark.slow),
    ],
)
def test_a_fleet_comes_in_or_it_is_said_within_a_minute_how_many_cannot_and_why(
    tmp_path: Path, free_port: Callable[[], int], devices: int, soft: int, hard: int
) -> None:
    """A fleet over TLS, and a server made with an operator's commands. A soft limit alone turns no device away."""
    folder, health = tmp_path / "home", f"127.0.0.1:{free_port()}"
    where = ("--host", "localhost", "--tls", "--port", free_port(), "--websocket-port", 0, "--health", health)
    plan = ("--sensor", "load", "--unit", "Wh", "--bound", 10_000, "--epsilon", 1)
    for words in (
        ("init", folder, *where),
        ("campaign", "create", folder, "power", *plan),
        ("devices", "add", devices, "--home", folder),
    ):
        done = undertone(*words)
        assert done.returncode == 0, done.stderr
    home, fits = Home(folder), min(devices, hard - RESERVE)
    population("households", 1).readings(devices, 1).save(tmp_path / "readings.npz")
    job = FleetJob(
        str(folder / "fleets/power"),
        devices,
        str(tmp_path / "readings.npz"),
        str(tmp_path / "fleet.ledger"),
        slots=1000,
        ramp_up=devices / 250,
    )

    def metric(name: str) -> float:
        with urllib.request.urlopen(f"http://{health}/metrics", timeout=60) as answered:
            lines = answered.read().decode().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))

    with serving(folder, (soft, hard)) as log, Processes(tmp_path) as processes:
        wait_for(lambda: room_of_server(home) == room(None, hard))
        processes.start_fleet(job)
        if devices == fits:
            processes.wait_until_connected(devices, 600)
            assert finding_of(home).result == "ok"
            assert metric("undertone_endpoint_turned_away") == 0
            assert not alarms(log, CROWD)
            assert not alarms(log, FILES)
            return
        wait_for(lambda: metric("undertone_endpoint_turned_away") > 0, 600)
        wait_for(lambda: bool(alarms(log, CROWD)), 60)
        # Devices that were turned away try again later, and stay counted meanwhile.
        away = devices - fits
        wait_for(lambda: metric("undertone_endpoint_turned_away") == away, 600)
        said = f"{away} devices cannot connect: the server has room for only {fits} at once, because of"
        said += f" the limit of {hard} open files"
        fix = f"LimitNOFILE={devices + RESERVE}"
        wait_for(lambda: any(said in each["message"] and fix in each["message"] for each in alarms(log, CROWD)), 120)
        finding = finding_of(home)
        assert (finding.result, finding.sentence) == ("failure", said)
        assert fix in finding.fix
        site = HomeSite(home)
        wait_for(lambda: "power" in site.names())
        (problem,) = site.state("power")["problems"]
        assert problem.startswith(said)
        assert fix in problem
        site.close()
        assert not alarms(log, FILES)


def test_a_soft_limit_is_raised_as_far_as_the_system_permits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system is like macOS: its hard limit is infinite, but its kernel accepts no more than OPEN_MAX."""
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
        # asyncio's servers call this handler when accept() fails because no more files may be opened.
        full = OSError(errno.EMFILE, "Too many open files")
        loop.call_exception_handler({"message": "socket.accept() out of system resource", "exception": full})
        loop.call_exception_handler({"message": "other", "exception": ValueError()})
    assert len(said) == 1
    assert "can open no further file" in said[0]


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
