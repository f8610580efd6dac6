"""What happens when: a list of events from one seed, and the faults of single devices."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from undertone_simulator.wire.faults import REST

# The server's ingest workers, where a broker can serve several.
WORKERS = 2
# After an event the system has so many seconds to itself.
CALM = (3.0, 8.0)
# Seconds before the end in which nothing happens any more: everything must come to rest.
QUIET = 20.0
# Seconds between two faults of single devices.
_DEVICE_SECONDS = (4, 9)
_DEVICE_FAULTS = ("kill", "kill-drawn", "kill-torn", "kill-sent", "duplicate", "disconnect", "hold", "step")


@dataclass(frozen=True)
class Event:
    """``name`` begins at ``second`` of the report phase and is over ``seconds`` later."""

    second: float
    name: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.second:7.1f} s {self.name}" + (f" for {self.seconds:.1f} s" if self.seconds else "")


# Event -> (how often among the others, shortest and longest duration).
EVENTS: dict[str, tuple[int, float, float]] = {
    "aggregator-kill": (4, 0.5, 3.0),
    "aggregator-term": (2, 0.5, 3.0),
    "aggregator-stop": (2, 2.0, 5.0),
    "worker-kill": (3, 0.0, 0.0),
    "worker-stop": (2, 2.0, 5.0),
    "broker-kill": (3, 0.5, 2.0),
    "broker-term": (2, 0.5, 2.0),
    "broker-stop": (2, 1.0, 4.0),
    "fleet-kill": (2, 0.5, 2.0),
    "fleet-stop": (2, 1.0, 4.0),
    "disk-full": (3, 3.0, 6.0),
    "clock-forward": (2, 2.0, 4.0),
    "clock-back": (2, 2.0, 4.0),
    "theft": (3, 2.0, 4.0),
    "flood": (3, 1.0, 4.0),
    "edit": (1, 0.0, 0.0),
    "second-server": (1, 0.0, 0.0),
    "other-store": (1, 0.0, 0.0),
}


# What happens to a broker, to several workers, or by way of what a broker keeps.
NEEDS_BROKER = frozenset(name for name in EVENTS if name.startswith(("broker-", "worker-"))) | {"other-store"}


def schedule(seed: int, seconds: float, *, direct: bool = False) -> list[Event]:
    """Events until ``seconds``, every name once before any comes again, then by weight.

    ``direct``: those that need no broker.
    """
    chance = random.Random(f"undertone chaos {seed}")
    possible = [name for name in EVENTS if not (direct and name in NEEDS_BROKER)]
    deck = list(possible)
    chance.shuffle(deck)
    events: list[Event] = []
    second = chance.uniform(*CALM)
    while True:
        name = deck.pop() if deck else chance.choices(possible, [EVENTS[name][0] for name in possible])[0]
        _, shortest, longest = EVENTS[name]
        event = Event(round(second, 1), name, round(chance.uniform(shortest, longest), 1))
        if event.second + event.seconds > seconds - QUIET:
            return events
        events.append(event)
        second = event.second + event.seconds + chance.uniform(*CALM)


def device_faults(seed: int, slots: int, names: Sequence[str]) -> tuple[tuple[int, str, str], ...]:
    """(report slot, fault, device), a fault at a time for a device."""
    chance = random.Random(f"undertone chaos devices {seed}")
    faults = []
    slot = chance.randint(*_DEVICE_SECONDS)
    while slot < slots - QUIET - REST:
        faults.append((slot, chance.choice(_DEVICE_FAULTS), chance.choice(names)))
        slot += chance.randint(*_DEVICE_SECONDS)
    return tuple(faults)
