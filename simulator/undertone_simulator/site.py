"""A server's folder with one campaign and its devices, for demonstrations, load tests, soaks and tests.

Devices reach the server, or its broker, on loopback without TLS.
"""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undertone_aggregator.base.owner import user_name
from undertone_aggregator.counts.partial import EVERYBODY
from undertone_aggregator.server.folder import Home
from undertone_aggregator.settings.config import Config
from undertone_aggregator.settings.report_sources import DIRECT, EXTERNAL
from undertone_aggregator.store.store import open_store
from undertone_operate.fleet.device_files import Target, make_policy, signers, stream_policy
from undertone_operate.fleet.devices import FleetFiles
from undertone_operate.fleet.initialise import Wishes, initialise
from undertone_simulator.mosquitto import HOST, Mosquitto


@dataclass(frozen=True)
class LocalHome:
    """The folder: its campaign's configuration, and the names of its devices, sorted."""

    home: Home
    config: Config
    names: list[str]

    @property
    def folder(self) -> Path:
        """The server's folder."""
        return self.home.folder

    @property
    def direct(self) -> bool:
        """True if devices connect to the server itself."""
        return not self.config.broker.source.broker

    @property
    def port(self) -> int:
        """The port that devices connect to."""
        return self.config.broker.places[0][1] or self.config.broker.port

    @property
    def plan(self) -> Path:
        """The file of the campaign's plan."""
        return self.home.file(self.config.campaign.name)

    @property
    def fleet(self) -> Path:
        """The folder of the devices."""
        return self.home.fleet(self.config.campaign.name)

    def device(self, name: str) -> Path:
        """Return the folder of one device."""
        return self.fleet / "devices" / name

    def mosquitto(self, **options: Any) -> Mosquitto:
        """Return the broker, which is not started, see `Mosquitto`; the server's folder has its users."""
        passwords, access = self.home.broker / "passwords", self.home.broker / "access"
        return Mosquitto(self.folder / "mosquitto", self.port, passwords=passwords, access=access, **options)


def make_site(
    folder: Path,
    plan: str,
    name: str,
    devices: int,
    port: int,
    *,
    direct: bool = True,
    server: Mapping[str, Any] | None = None,
    **policy: Any,
) -> LocalHome:
    """Make the folder, as `undertone init`, `campaign create` and `devices add` do.

    ``plan``: TOML of the campaign ``name``. ``server``: options of `server.toml`. ``policy``: fields of the devices'
    policy that differ from what the campaign needs. Raises Invalid, OSError.
    """
    program, mode = (sys.executable, "-m", "undertone"), DIRECT if direct else EXTERNAL
    user = user_name()
    initialise(folder, Wishes(mode, HOST, None, user, program, port, audit=True, health=None, more=server or {}))
    home = Home(folder)
    home.write_plan(name, plan)
    config = home.config(name)
    allowed = {"signers": signers(config), **stream_policy(config), **policy}
    text = json.dumps(make_policy(config.campaign, insecure=True, **allowed), indent=2) + "\n"
    with open_store(config.store_url, campaign=name) as store:
        fleet = FleetFiles.at_home(home, name, store)
        names = fleet.add(devices, EVERYBODY, Target(HOST, port, None), text, int(time.time()))
    return LocalHome(home, config, sorted(names))
