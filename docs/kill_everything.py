"""Starts a broker, an aggregator and 50 devices (one under MicroPython), kills each of them, and checks the accounts.

    python docs/kill_everything.py [--devices N] [--directory DIR]

Slots last one second. In the report phase the aggregator, the fleet's process with 49 devices, the MicroPython device
and the broker are ended by kill -9 and started again; the broker a second time by SIGTERM; three devices die with a
report drawn, half sent, and sent but not acknowledged. Then `undertone verify` must explain every report: what a
killed broker had acknowledged and not yet saved is lost, by that name. Exit code 0 if it does.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from undertone_aggregator.broker import free_port
from undertone_simulator.demo.plan import Options, Plan, prepare
from undertone_simulator.demo.run import COLLECTIONS, drain, ledgers
from undertone_simulator.fleet_process import Job
from undertone_simulator.ledger import REPORT, FleetLedger, LedgerTail
from undertone_simulator.stage import Stage, end, find_micropython


class Scene:
    """The processes, and a way to end and restart each."""

    def __init__(self, plan: Plan, stage: Stage):
        self.plan = plan
        self.stage = stage
        self.ledger = FleetLedger(plan.folder / "demo.ledger")
        self.with_micropython = find_micropython() is not None
        names = plan.names
        self.job = Job(
            folder=str(plan.folder),
            members=len(names) - self.with_micropython,
            readings=str(plan.folder / "readings.npz"),
            ledger=str(plan.folder / "fleet.ledger"),
            slots=plan.options.slots,
            per_day=plan.readings.per_day,
            stride=plan.stride,
            state=str(plan.folder / "state"),
            faults=((1, "kill-drawn", names[0]), (1, "kill-torn", names[1]), (1, "kill-sent", names[2])),
        )

    def say(self, sentence: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {sentence}", flush=True)

    def start(self) -> None:
        self.stage.broker.start()
        self.stage.start_fleet(self.job)
        self.start_micropython()
        while not self.stage.fleet_ready():
            if self.stage.fleet is None or self.stage.fleet.poll() is not None:
                raise SystemExit(f"the fleet did not start: {self.stage.words('fleet.log')}")
            time.sleep(0.1)
        self.start_aggregator()

    def start_aggregator(self) -> None:
        self.stage.start_aggregator(self.plan.config_file)

    def start_micropython(self) -> None:
        if self.with_micropython:
            row = len(self.plan.names) - 1
            readings = [self.plan.readings.at(row, column) or 0 for column in range(self.plan.options.slots)]
            self.stage.start_micropython(self.plan.names[row], readings, 1_000_000)

    def report_slot(self, tail: LedgerTail) -> int:
        """The number of the report slot that is on, -1 before the first."""
        first = next((play.first for play in tail.poll().plays if play.phase == REPORT), None)
        return -1 if first is None else int(time.time()) - first

    def kill(self, name: str, how: signal.Signals) -> None:
        self.say(f"{how.name}: {name}")
        self.ledger.fault(f"{name}_killed" if how is signal.SIGKILL else f"{name}_stopped")
        self.ledger.flush()
        stage = self.stage
        if name == "broker":
            (stage.broker.kill if how is signal.SIGKILL else stage.broker.stop)()
        else:
            end(getattr(stage, name), how)

    def restart(self, name: str) -> None:
        self.say(f"start: {name}")
        starts: dict[str, Callable[[], None]] = {
            "aggregator": self.start_aggregator,
            "fleet": lambda: self.stage.start_fleet(self.job),
            "micropython": self.start_micropython,
            "broker": self.stage.broker.start,
        }
        starts[name]()


def deaths(with_micropython: bool) -> list[tuple[str, signal.Signals]]:
    """Who dies, in this order, and how."""
    found = [("aggregator", signal.SIGKILL), ("fleet", signal.SIGKILL)]
    if with_micropython:
        found.append(("micropython", signal.SIGKILL))
    return [*found, ("broker", signal.SIGKILL), ("broker", signal.SIGTERM), ("aggregator", signal.SIGTERM)]


def run(devices: int, folder: Path, round_slots: int = 4, pause: int = 3) -> int:
    """Run it all in `folder`, a death every two pauses (in slots); the exit code of `undertone verify`."""
    who = deaths(find_micropython() is not None)
    slots = pause * (2 * len(who) + 2)
    port = free_port()
    plan = prepare(Options(devices, slots, round_slots=round_slots), folder, port, COLLECTIONS["reports"])
    with Stage(folder, port) as stage:
        scene = Scene(plan, stage)
        scene.start()
        scene.say(f"{devices} devices report; {len(who)} processes will be killed, three devices die besides")
        tail = LedgerTail(folder / "fleet.ledger")
        for number, (name, how) in enumerate(who):
            while scene.report_slot(tail) < pause * (2 * number + 1):
                time.sleep(0.05)
            scene.kill(name, how)
            while scene.report_slot(tail) < pause * (2 * number + 1) + 1:
                time.sleep(0.05)
            scene.restart(name)
        assert stage.fleet is not None
        stage.fleet.wait(timeout=120)
        end(stage.micropython, signal.SIGINT)
        scene.ledger.close()
        drain(folder)
        end(stage.aggregator)
    command = [sys.executable, "-m", "undertone", "verify", "--store", str(folder / "store.sqlite")]
    for path in ledgers(folder):
        command += ["--ledger", str(path)]
    return subprocess.run(command, check=False).returncode


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=50, metavar="N")
    parser.add_argument("--directory", type=Path, metavar="DIR", help="keep all files there")
    arguments = parser.parse_args()
    if arguments.directory is not None:
        return run(arguments.devices, arguments.directory)
    with tempfile.TemporaryDirectory(prefix="undertone-kill-") as folder:
        return run(arguments.devices, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
