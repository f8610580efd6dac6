"""The processes of a soak test, and the effect of each event of the schedule on them."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from undertone_simulator.demo.plan import PreparedDemo
from undertone_simulator.processes import Processes, end, find_micropython
from undertone_simulator.wire.fleet_process import CUT, JOINED, FleetJob
from undertone_simulator.wire.ledger import FleetLedger, Sent, read_ledgers
from undertone_simulator.wire.verify import BROKER_STARTED
from undertone_studies.chaos.hostile import Hostile
from undertone_studies.chaos.processes import children_of, command_of, limit_files, pause
from undertone_studies.chaos.schedule import WORKERS, Event, device_faults

Say = Callable[[str], None]
# Largest size in bytes of a file of the server while its disk is simulated as full.
_FULL = 4096
# Time limit in seconds for a server to start, or to refuse to start if it must not run.
_REFUSED_SECONDS = 120.0
_LOOK_SECONDS = 0.1
# Words that the ledger uses for the two ends of a time in which all devices are without network.
OFFLINE, ONLINE = "offline", "online"
# Files of the server's folder that a server needs, besides its campaigns.
_SERVER_FILES = ("server.toml", "signing.key", "aggregator.password")
FULL = "cannot be written, trying again"


class SoakProcesses:
    """The processes of a soak.

    ``refusals``: (event, sentence) of each server that was expected not to start, or not to run its campaign.
    """

    def __init__(self, plan: PreparedDemo, processes: Processes, seed: int, say: Say) -> None:
        self.plan = plan
        self.processes = processes
        self.refusals: list[tuple[str, str]] = []
        self.ended: list[str] = []
        self.victims: list[str] = []
        self._say = say
        self._chance = random.Random(f"undertone chaos targets {seed}")
        self._ledger = FleetLedger(plan.folder / "demo.ledger")
        self._clock = plan.folder / "clock"
        self._clock.write_text("0", encoding="utf-8")
        self._copier: threading.Thread | None = None
        self._expected_to_run = False
        # Number of lines in the log when the server was last started.
        self._before = 0
        # The last device is the malicious one. The device before it runs under MicroPython, if that is installed.
        names = plan.names
        self.micropython = names[-2] if find_micropython() is not None else None
        self.fleet = names[: -1 if self.micropython is None else -2]
        # Devices try once a slot to reach the server, so that faults happen while devices come back.
        self._period = 1000 * plan.config.campaign.slot_seconds
        self.job = FleetJob(
            folder=str(plan.site.fleet),
            members=len(self.fleet),
            readings=str(plan.folder / "readings.npz"),
            ledger=str(plan.folder / "fleet.ledger"),
            slots=plan.options.slots,
            per_day=plan.readings.per_day,
            stride=plan.playback.stride,
            days=plan.playback.days,
            state=str(plan.folder / "state"),
            faults=device_faults(seed, plan.options.slots, self.fleet),
            period=self._period,
        )
        config = plan.config
        self.hostile = Hostile(
            names[-1], plan.site, config.broker.prefix, config.campaign.name, config.broker.port, self._chance
        )

    # Methods that start and stop processes.

    def start(self) -> None:
        """Start broker, devices and server. Without a broker the devices connect to the server, which starts first."""
        if self.plan.options.direct:
            self.start_aggregator()
        else:
            self.processes.broker.start()
        self.processes.start_fleet(self.job)
        if self.micropython is not None:
            row = self.plan.names.index(self.micropython)
            readings = [self.plan.readings.at(row, column) or 0 for column in range(self.plan.options.slots)]
            self.processes.start_micropython(self.micropython, readings, 1 << 30, period=self._period)
        self.processes.wait_until_connected(len(self.fleet))
        if not self.plan.options.direct:
            self.start_aggregator()

    def start_aggregator(self) -> None:
        """Start the server with a clock that can be stepped.

        Its log is read through a pipe, because its disk may be full.
        """
        processes = self.processes
        self._before = len(self.log())
        processes.aggregator = subprocess.Popen(
            self._server(self.plan.folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "UNDERTONE_CLOCK": str(self._clock)},
            start_new_session=True,
        )
        self._copier = threading.Thread(target=self._copy, args=(processes.aggregator,), daemon=True)
        self._copier.start()
        self._expected_to_run = True

    def _server(self, folder: Path) -> list[str]:
        stepped = [sys.executable, "-m", "undertone_studies.chaos.stepped"]
        return [*stepped, "undertone", "serve", str(folder), "--log-format", "json"]

    def _copy(self, child: "subprocess.Popen[bytes]") -> None:
        assert child.stdout is not None
        with (self.plan.folder / "aggregator.log").open("ab") as log:
            for line in child.stdout:
                log.write(line)
                log.flush()

    def check(self) -> None:
        """Record a server that has ended by itself, and start it again."""
        child = self.processes.aggregator
        if self._expected_to_run and child is not None and child.poll() is not None:
            self.ended.append(f"the server ended by itself with code {child.returncode}")
            self._say(self.ended[-1])
            self.start_aggregator()

    def _end_aggregator(self, how: signal.Signals) -> None:
        self._expected_to_run = False
        end(self.processes.aggregator, how)

    def workers(self) -> list[int]:
        """Return the process ids of the server's ingest workers."""
        child = self.processes.aggregator
        if child is None:
            return []
        pids = children_of(child.pid)
        return [pid for pid in pids if b"spawn_main" in command_of(pid)]

    # Methods that cause faults.

    def happen(self, event: Event) -> None:
        """Run an event from its beginning to its end, after the server is up.

        On a busy machine an event could otherwise begin while the server still loads after an earlier event ended it.
        """
        workers = 0 if self.plan.options.direct else WORKERS
        self._await(lambda: len(self.log()) > self._before and len(self.workers()) >= workers)
        self._ledger.fault(event.name.replace("-", "_"))
        self._ledger.flush()
        name, _, how = event.name.partition("-")
        if name == "offline":
            self._offline(how, event.seconds)
        elif how in ("kill", "term", "stop") and name != "worker":
            self._signal(name, how, event.seconds)
        else:
            getattr(self, "_" + event.name.replace("-", "_"))(event.seconds)

    def _signal(self, name: str, how: str, seconds: float) -> None:
        """Kill or terminate a process and start it again after ``seconds``, or stop and continue it."""
        broker = self.processes.broker
        if how == "stop":
            pause([broker.pid or 0 if name == "broker" else getattr(self.processes, name).pid], seconds)
            return
        sign = signal.SIGKILL if how == "kill" else signal.SIGTERM
        if name == "broker":
            (broker.kill if how == "kill" else broker.stop)()
        elif name == "aggregator":
            self._end_aggregator(sign)
        else:
            end(self.processes.fleet, sign)
        # The ledger records the fault once the broker is dead, because acknowledgements until then may have been lost
        # with it.
        self._ledger.fault(f"{name}_{'killed' if how == 'kill' else 'stopped'}")
        self._ledger.flush()
        time.sleep(seconds)
        if name == "broker":
            # Acknowledgements from here on may come from the new broker.
            self._ledger.fault(BROKER_STARTED)
            self._ledger.flush()
            broker.start()
        elif name == "aggregator":
            self.start_aggregator()
        else:
            self.processes.start_fleet(self.job)

    def _offline(self, how: str, seconds: float) -> None:
        """Cut the devices' network, and restart the server meanwhile. The ledger has both ends of the absence."""
        fleet = self.processes.fleet
        ends = time.monotonic() + seconds
        if fleet is None or fleet.poll() is not None:
            return
        self._note(OFFLINE)
        fleet.send_signal(CUT)
        time.sleep(self._chance.uniform(1, 5))
        self._signal("aggregator", how, self._chance.uniform(0.5, 3.0))
        time.sleep(max(ends - time.monotonic(), 0))
        if fleet.poll() is None:
            fleet.send_signal(JOINED)
        self._note(ONLINE)

    def _note(self, fault: str) -> None:
        self._ledger.fault(fault)
        self._ledger.flush()

    def _worker_kill(self, seconds: float) -> None:
        for pid in self._chance.sample(self.workers(), min(1, len(self.workers()))):
            os.kill(pid, signal.SIGKILL)

    def _worker_stop(self, seconds: float) -> None:
        pause(self._chance.sample(self.workers(), min(1, len(self.workers()))), seconds)

    def _disk_full(self, seconds: float) -> None:
        """Limit the size of the server's files for at least ``seconds``, until the server's log reports a full disk."""
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        ends = time.monotonic() + seconds

        def noticed() -> bool:
            self._limit((_FULL, before[1]))
            return time.monotonic() >= ends and any(FULL in sentence for sentence in self.log()[self._before :])

        self._await(noticed)
        self._limit(before)

    def _limit(self, limits: tuple[int, int]) -> None:
        """Limit the size of the files of the server, then of its workers.

        The server comes first, so that workers that it starts meanwhile inherit the limit.
        """
        child = self.processes.aggregator
        limit_files([child.pid] if child else [], limits)
        limit_files(self.workers(), limits)

    def _await(self, true: Callable[[], bool]) -> None:
        """Wait until the condition is true; if it never is, the judge reports the failure."""
        deadline = time.monotonic() + _REFUSED_SECONDS
        while not true() and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)

    def _step(self, by: float, seconds: float) -> None:
        for offset in (by, 0.0):
            self._clock.write_text(str(offset), encoding="utf-8")
            time.sleep(seconds if offset else 0.0)

    def _clock_forward(self, seconds: float) -> None:
        self._step(self._chance.uniform(1, 90), seconds)

    def _clock_back(self, seconds: float) -> None:
        self._step(-self._chance.uniform(1, 90), seconds)

    def _theft(self, seconds: float) -> None:
        victim = self._chance.choice(self.fleet)
        if self.hostile.steal(victim, seconds):
            self.victims.append(victim)

    def _flood(self, seconds: float) -> None:
        self.hostile.flood(seconds)

    def _edit(self, seconds: float) -> None:
        """Set ε to 0.5 in the plan and restart: the server must not run the campaign; then restore the plan."""
        file = self.plan.site.plan
        text = file.read_text(encoding="utf-8")
        self._end_aggregator(signal.SIGTERM)
        file.write_text(text.replace(f'epsilon = "{self.plan.options.epsilon}"', 'epsilon = "0.5"'), encoding="utf-8")
        self._refused("edit", self.plan.folder)
        file.write_text(text, encoding="utf-8")
        self.start_aggregator()

    def _second_server(self, seconds: float) -> None:
        self._refused("second-server", self.plan.folder)

    def _other_store(self, seconds: float) -> None:
        """Start a server in a copy of the folder that has no store."""
        other = self.plan.folder / "other"
        shutil.copytree(self.plan.site.plan.parent, other / self.plan.site.plan.parent.name)
        for path in self.plan.folder.iterdir():
            if path.name in _SERVER_FILES:
                shutil.copy(path, other)
        self._refused("other-store", other)
        shutil.rmtree(other)

    def _refused(self, event: str, folder: Path) -> None:
        """Start a server that must not run the campaign, record the sentence that says why, and end it."""
        child = subprocess.Popen(
            self._server(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        late = threading.Timer(_REFUSED_SECONDS, child.terminate)
        late.start()
        last = "it printed nothing"
        assert child.stdout is not None
        for line in child.stdout:
            try:
                told = json.loads(line)
                last = str(told.get("message", ""))
                if told.get("event") == "failed":
                    break
            except ValueError:
                last = line.decode(errors="replace").strip()
        late.cancel()
        with child:
            end(child)
        self.refusals.append((event, last))

    # Methods that end the soak.

    def finish(self) -> None:
        """Stop the device under MicroPython and close the ledgers, after the fleet has ended."""
        end(self.processes.micropython, signal.SIGINT)
        self.hostile.close()
        self._ledger.close()

    def stop_aggregator(self) -> None:
        """Stop the server, and wait for the rest of its log."""
        self._end_aggregator(signal.SIGTERM)
        if self._copier is not None:
            self._copier.join(5)

    def sent(self) -> Sent:
        """Return the content of all ledgers together."""
        return read_ledgers(self.processes.ledgers())

    def log(self) -> list[str]:
        """Return the sentences of the server's log."""
        sentences = []
        path = self.plan.folder / "aggregator.log"
        for line in path.read_text(errors="replace", encoding="utf-8").splitlines() if path.exists() else ():
            try:
                sentences.append(str(json.loads(line).get("message", "")))
            except ValueError:
                sentences.append(line)
        return sentences
