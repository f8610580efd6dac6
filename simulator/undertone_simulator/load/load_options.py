"""The options of a load test, and its result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid
from undertone_simulator.readings.behaviour import Behaviour
from undertone_simulator.wire.fleet import JITTER, LARGEST_JITTER
from undertone_simulator.wire.verify import Accounts

LARGEST_LOAD = 10_000
# Maps each fault's name in the load test's options to its name in `undertone_simulator.wire.faults`.
FAULTS = {"kill": "kill", "duplicate": "duplicate", "delay": "hold", "lie": "lie"}


@dataclass(frozen=True)
class LoadOptions:
    """Options: ``clients`` connections, each reporting every ``interval`` seconds for ``slots`` report slots.

    ``faults``: share of the clients that suffer each of `FAULTS` once. ``micropython``: number of clients that are
    processes under MicroPython. ``window``: a time such as "60s"; devices then report in turns and rest in between.
    ``provisioned``: folder with the devices of a campaign that a running server has; the campaign sets the interval.
    Raises Invalid.
    """

    clients: int = 1000
    slots: int = 6
    interval: int = 10
    epsilon: str = "1"
    population: str = "households"
    seed: int = 1
    ramp_up: float = 0.0
    jitter: float = JITTER
    faults: Mapping[str, float] = field(default_factory=dict)
    behaviour: Behaviour = field(default_factory=Behaviour)
    micropython: int = 0
    window: str | None = None
    provisioned: Path | None = None

    def __post_init__(self) -> None:
        check_integer("clients", self.clients, 1, LARGEST_LOAD)
        check_integer("slots", self.slots, 1, 1 << 20)
        check_integer("interval", self.interval, 1, 7 * 86400)
        check_integer("micropython", self.micropython, 0, self.clients - 1)
        if not 0 <= self.ramp_up <= 86400:
            raise Invalid(f"ramp_up is {self.ramp_up!r}, expected 0 to 86400 seconds")
        if not 0 <= self.jitter <= LARGEST_JITTER:
            raise Invalid(f"jitter is {self.jitter!r}, expected 0 to {LARGEST_JITTER} of a slot")
        for name, share in self.faults.items():
            if name not in FAULTS or not 0 <= share <= 1:
                raise Invalid(
                    f"{name} is {share!r}, expected a share from 0 to 1 for one of the faults {', '.join(FAULTS)}"
                )


@dataclass(frozen=True)
class LoadResult:
    """Result of a load test. Latencies are in ms, from the hand-over to the PUBACK.

    ``accounts`` is None if the aggregator was not started by this test; ``peak_megabytes`` is the memory of the fleet's
    process; ``skipped`` counts draws for which this machine was too slow.
    """

    clients: int
    seconds: float
    sent: int
    acknowledged: int
    latency_median: float | None
    latency_99: float | None
    peak_megabytes: int | None
    skipped: int | None
    accounts: Accounts | None
    ledgers: tuple[Path, ...]

    def as_json(self) -> dict[str, Any]:
        """Return all fields as a JSON object."""
        fields = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("accounts", "ledgers")
        }
        fields["ledgers"] = [str(path) for path in self.ledgers]
        fields["accounts"] = None if self.accounts is None else self.accounts.as_json()
        return fields
