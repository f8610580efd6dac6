"""Settings and objects that all devices of a fleet on the wire share."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from undertone_device.mqtt.packets import DEFAULT_KEEPALIVE
from undertone_simulator.wire.clock import Clock
from undertone_simulator.wire.ledger import FleetLedger

PERIOD = 1000


@dataclass
class Wire:
    """What all devices of a fleet on the wire share: the server's address, topics, the clock, the ledger.

    ``cut``: True while no device reaches the server. ``period``: milliseconds between a device's attempts to reach a
    server that is away, see `Knocks`; by default far fewer than for a real device, because slots are shorter, too.
    """

    host: str
    port: int
    prefix: str
    campaign: str
    clock: Clock
    ledger: FleetLedger
    on_campaign: Callable[[bytes], None]
    tls: ssl.SSLContext | None = None
    keepalive: int = DEFAULT_KEEPALIVE
    cut: bool = False
    period: int = PERIOD
    connecting: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(100))
