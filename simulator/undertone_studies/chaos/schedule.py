"""The schedule of a soak: a list of events from one seed, and the faults of single devices."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from undertone_simulator.wire.faults import REST

# Number of the server's ingest workers, if a broker can serve several.
WORKERS = 2
# Shortest and longest time in seconds without events after an event.
CALM = (3.0, 8.0)
# Seconds before the end without events, so that everything comes to rest.
QUIET = 20.0
# Shortest and longest time in seconds between two faults of single devices.
_DEVICE_SECONDS = (4, 9)
_DEVICE_FAULTS = ("kill", "kill-drawn", "kill-torn", "kill-sent", "duplicate", "disconnect", "hold", "step")


@dataclass(frozen=True)
class Event:
    """An event: ``name`` begins at ``second`` of the report phase and is over ``seconds`` later."""

    second: float
    name: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.second:7.1f} s {self.name}" + (f" for {self.seconds:.1f} s" if self.seconds else "")


# Event -> (relative frequency, shortest and longest duration in seconds).
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
    # The devices have no network for so long that a new θ is due meanwhile, and the server starts again in that time.
    "offline-kill": (4, 25.0, 45.0),
    "offline-term": (2, 25.0, 45.0),
    "disk-full": (3, 3.0, 6.0),
    "clock-forward": (2, 2.0, 4.0),
    "clock-back": (2, 2.0, 4.0),
    "theft": (3, 2.0, 4.0),
    "flood": (3, 1.0, 4.0),
    "edit": (1, 0.0, 0.0),
    "second-server": (1, 0.0, 0.0),
    "other-store": (1, 0.0, 0.0),
}


# Events that need a broker: faults of the broker or of several workers, and those that use a broker's retained
# messages.
NEEDS_BROKER = frozenset(name for name in EVENTS if name.startswith(("broker-", "worker-"))) | {"other-store"}


def schedule(seed: int, seconds: float, *, direct: bool = False) -> list[Event]:
    """Make events one after the other until one would end later than `QUIET` seconds before ``seconds``.

    First comes one event of every kind, if the time is enough, then kinds at random by their relative frequency.
    ``direct``: only events that need no broker.
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
    """Make faults (report slot, fault, device) at random: every few slots a fault of a random device.

    A device may get a fault while it still has an earlier one.
    """
    chance = random.Random(f"undertone chaos devices {seed}")
    faults = []
    slot = chance.randint(*_DEVICE_SECONDS)
    while slot < slots - QUIET - REST:
        faults.append((slot, chance.choice(_DEVICE_FAULTS), chance.choice(names)))
        slot += chance.randint(*_DEVICE_SECONDS)
    return tuple(faults)
