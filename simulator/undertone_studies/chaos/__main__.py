"""Command line of the soak test; see `undertone_studies.chaos`. Exit codes: 0 passed, 1 failed, 2 bad arguments."""

import argparse
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.store.store import open_store
from undertone_simulator.demo.plan import DemoOptions, prepare
from undertone_simulator.demo.reports import Reports
from undertone_simulator.mosquitto import free_port
from undertone_simulator.processes import Processes
from undertone_simulator.wire.ledger import REPORT, LedgerTail
from undertone_simulator.wire.verify import outcomes
from undertone_studies.chaos.judge import failures, refused_in_absence, thetas
from undertone_studies.chaos.schedule import CALM, WORKERS, Event, schedule
from undertone_studies.chaos.soak import SoakProcesses

EPSILON = "4"
# A soak is stuck when nothing has been sent and no event has happened for this long.
_STUCK_SECONDS = 120.0


class Soak(Reports):
    """Configuration of the soak: a campaign of single reports that chooses a new θ each minute."""

    def table(self, options: DemoOptions, rounds: tuple[int, ...], bound: int) -> str:
        """Return the campaign's tables; see `Reports`."""
        minute = super().table(options, rounds, bound).replace(f"epoch_slots = {options.slots}", "epoch_slots = 60")
        return f'{minute}mechanism = "hybrid"\n'


def main(arguments: list[str] | None = None) -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(prog="chaos", description="A soak test: a long run with faults from a seed.")
    parser.add_argument("--minutes", type=float, default=60.0, help="minutes of the report phase (60)")
    parser.add_argument("--seed", type=int, help="seed of the faults; if absent, one is drawn and printed")
    parser.add_argument("--devices", type=int, default=40, help="number of devices (40)")
    parser.add_argument("--direct", action="store_true", help="devices connect to the server, without a broker")
    parser.add_argument("--output", type=Path, help="keep all files in this new folder")
    given = parser.parse_args(arguments)
    if not 1 <= given.minutes <= 10_000 or not 4 <= given.devices <= 1000:
        parser.error(
            f"--minutes is {given.minutes:g} and --devices is {given.devices}, expected 1 to 10000 minutes and 4 to"
            " 1000 devices"
        )
    # A background job of a shell ignores Ctrl-C. The signals are handled here, so that no process is left behind.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = secrets.randbits(32) if given.seed is None else given.seed
    again = f"--seed {seed} --minutes {given.minutes:g} --devices {given.devices}{' --direct' if given.direct else ''}"
    say(f"seed {seed}: repeat this run with {again}")
    if given.output is not None:
        return soak(given.minutes, seed, given.devices, given.output, direct=given.direct)
    with tempfile.TemporaryDirectory(prefix="undertone-chaos-") as folder:
        return soak(given.minutes, seed, given.devices, Path(folder), direct=given.direct)


def say(sentence: str) -> None:
    """Print one line with the time."""
    print(f"{time.strftime('%H:%M:%S')} {sentence}", flush=True)


def soak(minutes: float, seed: int, devices: int, folder: Path, *, direct: bool = False) -> int:
    """Run the whole soak in ``folder``; return 0 if it passes."""
    slots = round(60 * minutes)
    events = schedule(seed, slots, direct=direct)
    options = DemoOptions(
        devices, slots, EPSILON, seed=seed % (1 << 31), round_slots=6, broker=None if direct else "mosquitto"
    )
    workers = 1 if direct else WORKERS
    plan = prepare(options, folder, free_port(), Soak(), boots_per_day=1000, workers=workers)
    with Processes(folder, plan.site) as processes:
        soak = SoakProcesses(plan, processes, seed, say)
        soak.start()
        say(f"devices: {devices}, events: {len(events)}, faults of single devices: {len(soak.job.faults)}")
        _play(soak, events)
        soak.finish()
        accounts = processes.drain(frozenset([soak.hostile.name]), lambda _: soak.check())
        soak.stop_aggregator()
    with open_store(plan.config.store_url, read_only=True) as store:
        wrong = list(failures(soak, events, accounts, store))
        timeline = Timeline(store.epochs())
        wrong += refused_in_absence(soak.sent(), outcomes(store), timeline, soak.hostile.name)
        chosen = thetas(timeline)
    say(accounts.sentence())
    say(f"faults: {_counts(accounts.faults)}; reports lost by a fault: {_counts(accounts.lost)}")
    say(f"theta of the report epochs: {', '.join(map(str, chosen)) or 'none'}")
    for event, sentence in soak.refusals:
        say(f"{event}: {sentence[:200]}")
    for sentence in wrong:
        say(f"FAILED: {sentence}")
    say(f"seed {seed}: {'passed' if not wrong else f'failed, number of findings above: {len(wrong)}'}")
    return 1 if wrong else 0


def _counts(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in counted.items()) or "none"


def _play(soak: SoakProcesses, events: list[Event]) -> None:
    """Start each event at its second of the report phase, then wait for the fleet's end. Raises RuntimeError if stuck.

    On a slow machine events begin later than planned, and the soak lasts longer.
    """
    tail = LedgerTail(soak.plan.folder / "fleet.ledger")
    waiting = list(events)
    progress, patience = (0, 0), time.monotonic() + _STUCK_SECONDS
    calm = 0.0
    while soak.processes.fleet is not None and (soak.processes.fleet.poll() is None or waiting):
        soak.check()
        sent = tail.poll()
        if progress != (sent.lines, len(waiting)):
            progress, patience = (sent.lines, len(waiting)), time.monotonic() + _STUCK_SECONDS
        first = next((play.first for play in sent.plays if play.phase == REPORT), None)
        due = first is not None and waiting and time.time() - first >= waiting[0].second
        if due and time.monotonic() >= calm:
            event = waiting.pop(0)
            say(str(event))
            soak.happen(event)
            # The least time without events counts from the moment at which the event really ended, which may be later
            # than planned.
            calm = time.monotonic() + CALM[0]
        if time.monotonic() > patience:
            raise RuntimeError(
                f"the fleet makes no progress; its last lines: {soak.processes.words('fleet.log')[-500:]}"
            )
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
