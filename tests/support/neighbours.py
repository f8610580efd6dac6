"""Simulated homes in several groups report to a running server, and each group has another load."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from undertone_simulator.processes import end
from undertone_simulator.readings.readings import Readings
from undertone_simulator.wire.fleet_process import FleetJob

# With so many homes in each group, the groups' means differ by more than their noise.
HOMES = 60
_SLOTS = 4000


class Neighbours:
    """Simulated homes of one campaign that report between the calls of `start` and `stop`.

    ``loads``: group -> what each of its homes measures in every slot. ``counted``: the homes have meters that count up.
    ``run``: a function that runs a command of `undertone`. ``environment``: that of the homes' process. ``speed``: how
    fast the clock of the homes runs.
    """

    def __init__(
        self,
        home: Path,
        campaign: str,
        loads: Mapping[str, int],
        run: Callable[..., object],
        environment: Mapping[str, str] = os.environ,
        speed: float = 1.0,
        counted: bool = False,
    ) -> None:
        self._folder = home.parent / "neighbours"
        self._folder.mkdir()
        self._environment = dict(environment)
        for group in loads:
            run("devices", "add", str(HOMES), "--home", str(home), "--campaign", campaign, "--group", group)
        readings = self._folder / "readings.npz"
        values = np.repeat(np.array(list(loads.values()), np.int64), HOMES)[:, None].repeat(_SLOTS, axis=1)
        if counted:
            values = values.cumsum(axis=1)
        Readings(values, np.ones(values.shape, np.bool_), "Wh").save(readings)
        fleet, homes = str(home / f"fleets/{campaign}"), HOMES * len(loads)
        FleetJob(fleet, homes, str(readings), str(self.ledger), _SLOTS, stride=0, speed=speed).save(self._job)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def ledger(self) -> Path:
        """The file with what the homes have sent."""
        return self._folder / "ledger"

    @property
    def _job(self) -> Path:
        return self._folder / "job.json"

    def start(self) -> None:
        """Let the homes report."""
        command = [sys.executable, "-m", "undertone_simulator.wire.fleet_process", str(self._job)]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)

    def stop(self) -> None:
        """Let the homes stop reporting."""
        end(self._process, signal.SIGTERM)
