"""A demonstration or a load test that is told to end takes its broker and its server along."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def processes_of(folder: Path) -> list[str]:
    listed = subprocess.run(["ps", "-eww", "-o", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if f"{folder}/" in line]


@pytest.mark.broker
@pytest.mark.parametrize("words", ["demo --devices 4 --slots 30", "fleet --clients 4 --interval 5 --ramp-up 1"])
def test_sigterm_leaves_nothing_running(words: str, tmp_path: Path, mosquitto_binary: str) -> None:
    folder = tmp_path / "kept"
    command = subprocess.Popen(
        [sys.executable, "-m", "undertone", *words.split(), "--directory", str(folder)],
        env={**os.environ, "UNDERTONE_MOSQUITTO": mosquitto_binary},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        # Broker and server.
        while len(processes_of(folder)) < 2:
            assert command.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        command.send_signal(signal.SIGTERM)
        assert command.wait(120) == 130
        assert processes_of(folder) == []
    finally:
        command.kill()
