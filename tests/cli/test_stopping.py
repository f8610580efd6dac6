"""A demonstration or a load test that is told to end ends its broker and its server, too."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.waiting import wait_for
from undertone_simulator import processes as processes
from undertone_simulator.processes import Processes
from undertone_simulator.site import make_site


def processes_of(folder: Path) -> list[str]:
    return [line for line in command_lines() if f"{folder}/" in line or f"serve {folder}" in line]


def command_lines() -> list[str]:
    """The command lines of all processes, read from Linux's /proc or, elsewhere, printed by `ps`."""
    if not Path("/proc/self/cmdline").exists():
        return subprocess.run(
            ["ps", "-eww", "-o", "args"], capture_output=True, encoding="utf-8", check=True
        ).stdout.splitlines()
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        # A process may end while the list is read.
        with contextlib.suppress(OSError):
            lines.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return lines


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.parametrize(
    "words", ["demo --devices 4 --slots 30 --broker mosquitto", "fleet --clients 4 --interval 5 --ramp-up 1"]
)
def test_sigterm_leaves_nothing_running(words: str, tmp_path: Path, mosquitto_binary: str) -> None:
    folder = tmp_path / "kept"
    command = subprocess.Popen(
        [sys.executable, "-m", "undertone", *words.split(), "--output", str(folder)],
        env={**os.environ, "UNDERTONE_MOSQUITTO": mosquitto_binary},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(
            lambda: len(processes_of(folder)) >= 2 or command.poll() is not None, what="server, with broker or fleet"
        )
        assert command.poll() is None
        command.send_signal(signal.SIGTERM)
        assert command.wait(120) == 130
        assert processes_of(folder) == []
    finally:
        command.kill()


@pytest.mark.parametrize("what", ["broker", "child"])
def test_a_signal_in_the_middle_of_a_start_orphans_nobody(
    what: str,
    tmp_path: Path,
    mosquitto_binary: str,
    monkeypatch: pytest.MonkeyPatch,
    free_port: Callable[[], int],
) -> None:
    """The signal comes after the child process has started and before the parent has recorded it.

    The child ends all the same.
    """
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    plan = '[campaign]\nname = "load"\nsensor = "load"\nunit = "Wh"\nbound = 1000\nepsilon = 1\n'
    site = make_site(tmp_path / "home", plan, "load", 1, free_port(), direct=False)
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def interrupted(*arguments: Any, **options: Any) -> "subprocess.Popen[bytes]":
        started.append(start(*arguments, **options))
        signal.raise_signal(signal.SIGTERM)
        return started[-1]

    def stage() -> None:
        with Processes(tmp_path, site) as made:
            if what == "broker":
                made.broker.start()
            else:
                made._start([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log")

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    monkeypatch.setattr(subprocess, "Popen", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            stage()
        (child,) = started
        assert child.wait(60) is not None
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)
        for child in started:
            child.kill()
            child.wait()


def test_a_second_signal_while_processes_are_ended_leaves_none_running(
    tmp_path: Path, mosquitto_binary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    children = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in range(2)]
    end = processes.end

    def interrupted(*arguments: Any) -> int | None:
        signal.raise_signal(signal.SIGINT)
        return end(*arguments)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(processes, "end", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt), Processes(tmp_path) as stage:
            stage._children += children
        assert all(child.poll() is not None for child in children)
    finally:
        signal.signal(signal.SIGINT, before)
        for child in children:
            child.kill()
            child.wait()
