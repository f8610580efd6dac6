"""``python -m undertone_simulator.wire.fleet_process JOB``: run a fleet in a process of its own, from a job file.

It ends when its report slots are over, or on SIGTERM. If it is killed and started again with the same job, it continues
with the devices' storages, if they are on disk. It prints ``connected N`` and ``missing NAME ...`` while it connects,
``ready`` once all devices are connected, and ``refused REASON: N`` while no campaign is accepted. At its end it prints
``skipped N``, the number of draws for which this machine was too slow, and ``peak MB``, its largest memory. Exit codes:
0 done, 2 bad input or an error of the operating system.
"""

import asyncio
import functools
import json
import signal
import sys
from asyncio import sslproto
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from undertone_aggregator.base.open_files import allow_connections
from undertone_device.setup import assembly
from undertone_device.setup.config import read_config
from undertone_operate.fleet.read_devices import read_provisioned
from undertone_shared import ed25519
from undertone_shared.errors import Invalid
from undertone_simulator.readings.behaviour import Behaviour
from undertone_simulator.readings.readings import Readings
from undertone_simulator.wire.clock import Clock
from undertone_simulator.wire.commons import PERIOD, Wire
from undertone_simulator.wire.faults import Fault, schedule
from undertone_simulator.wire.fleet import JITTER, Fleet
from undertone_simulator.wire.ledger import FleetLedger, read_ledgers
from undertone_simulator.wire.memory import peak_megabytes
from undertone_simulator.wire.playback import Continuous, Playback

READY = "ready"
CONNECTED = "connected"
MISSING = "missing"
REFUSED = "refused"
PEAK = "peak"
SKIPPED = "skipped"
_SAY_SECONDS = 0.25
_TLS_BYTES = 1 << 14
# Signals that cut the devices' network, and that restore it.
CUT, JOINED = signal.SIGUSR1, signal.SIGUSR2
# Largest number of missing devices whose names are printed.
_NAMED = 5


@dataclass
class FleetJob:
    """The job of the process.

    `folder`: the devices' folder, such as `fleets/NAME`; `members`: number of its devices that run here, from number
    `first` on; `readings`: the file that `Readings.save` wrote; `ledger`: the file of the fleet's ledger; `slots`:
    number of report slots; `per_day`: columns of the readings that make a day; `stride`: number of columns of the
    readings from one slot of a threshold round to the next, 0 if every epoch measures column after column; `days`: how
    many days of the readings a threshold round covers; `state`: a folder for the devices' storages, None for
    memory; `start`, `speed`: see `Clock`; `faults`: (slot, name, device); `ramp_up`: seconds over
    which the connections are spread; `behaviour`: fields of `Behaviour`; `jitter`: see `Fleet`; `period`: see `Wire`;
    `durable`: see `FleetLedger`.
    """

    folder: str
    members: int
    readings: str
    ledger: str
    slots: int
    first: int = 0
    per_day: int = 48
    stride: int = 1
    days: int = 1
    state: str | None = None
    start: float | None = None
    speed: float = 1.0
    faults: tuple[tuple[int, str, str], ...] = ()
    ramp_up: float = 0.0
    behaviour: dict[str, Any] = field(default_factory=dict)
    jitter: float = JITTER
    period: int = PERIOD
    durable: bool = True

    def save(self, path: Path) -> None:
        """Write the job file. Raises OSError."""
        path.write_text(json.dumps(asdict(self), indent=2), encoding="utf-8")

    @staticmethod
    def read(path: Path) -> "FleetJob":
        """Read the file that `save` wrote. Raises Invalid, or OSError."""
        try:
            return FleetJob(**json.loads(path.read_text(encoding="utf-8")))
        except (TypeError, ValueError) as wrong:
            raise Invalid(f"{path} is not a fleet's job: {wrong}") from None


async def run(job: FleetJob) -> None:
    """Run the fleet until its slots are over or SIGTERM. Raises Invalid, or OSError."""
    allow_connections(job.members)
    members = read_provisioned(Path(job.folder))[job.first : job.first + job.members]
    config = read_config(str(Path(job.folder) / "devices" / members[0].name / "device.json"))
    path = Path(job.ledger)
    ledger = FleetLedger(path, durable=job.durable)
    wire = Wire(
        config.broker.host,
        config.broker.port,
        config.prefix,
        config.campaigns[0],
        Clock(job.start, job.speed),
        ledger,
        on_campaign=lambda message: None,
        tls=assembly.tls_context(config.broker, members[0].policy),
        period=job.period,
    )
    # asyncio's buffer of 256 KB for each TLS connection is reduced, because thousands of them would take memory for
    # nothing.
    sslproto.SSLProtocol.max_size = _TLS_BYTES
    state = None if job.state is None else Path(job.state)
    readings = Readings.saved(Path(job.readings))
    fleet = Fleet(
        members,
        readings,
        Playback(job.per_day, job.stride, job.days) if job.stride else Continuous(),
        wire,
        state=state,
        earlier=read_ledgers([path]),
        behaviour=Behaviour(**job.behaviour),
        jitter=job.jitter,
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    for sign, cut in ((CUT, True), (JOINED, False)):
        loop.add_signal_handler(sign, fleet.cut, cut)
    saying = loop.create_task(_say_ready(fleet))
    try:
        faults = schedule(fleet, [Fault(*fault) for fault in job.faults])
        await fleet.run(job.slots, stop, faults, ramp_up=job.ramp_up)
    finally:
        saying.cancel()
        ledger.close()
    print(SKIPPED, fleet.skipped, flush=True)


async def _say_ready(fleet: Fleet) -> None:
    while missing := [device.name for device in fleet.devices if not device.connections]:
        print(CONNECTED, len(fleet.devices) - len(missing), flush=True)
        print(MISSING, *missing[:_NAMED], flush=True)
        await asyncio.sleep(_SAY_SECONDS)
    print(READY, flush=True)
    while not fleet.campaigns:
        await asyncio.sleep(_SAY_SECONDS)
        if fleet.refusals:
            print(REFUSED, ", ".join(f"{reason}: {n}" for reason, n in fleet.refusals.most_common()), flush=True)


def verify_once() -> None:
    """Make this process verify each signature once for all its devices.

    A real device has its own processor. Here hundreds share one: at each new epoch they would all verify the same
    signature, which takes longer than a short slot, and skip that slot.
    """
    verify = ed25519.verify

    @functools.lru_cache(maxsize=16)
    def once(key: bytes, message: bytes, signature: bytes) -> bool:
        return verify(key, message, signature)

    def remembered(key: bytes, message: bytes, signature: bytes, alive: Callable[[], object] | None = None) -> bool:
        return once(bytes(key), bytes(message), bytes(signature))

    ed25519.verify = remembered


def main(path: str) -> int:
    """Run the job in the file; return the exit code."""
    verify_once()
    try:
        asyncio.run(run(FleetJob.read(Path(path))))
    except (Invalid, OSError) as wrong:
        print(f"error: {wrong}", file=sys.stderr)
        return 2
    print(PEAK, round(peak_megabytes()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
