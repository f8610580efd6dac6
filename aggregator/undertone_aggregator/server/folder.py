"""A server's folder: settings shared by its campaigns in `server.toml`, and a file for each campaign.

DIR/server.toml            [broker], [store] (path: a folder, or one PostgreSQL database for all), [server], [join],
                           [outlet]
DIR/campaigns/NAME.toml    [campaign], [stream], [landing]
DIR/stores/NAME.sqlite     its counts, made by the server
DIR/fleets/NAME/devices    its devices' files, made by undertone devices
DIR/state.json             what the server says of itself and its campaigns, see `undertone_aggregator.campaign.state`
DIR/state.alerts.json      the alerts that it sent, see `undertone_aggregator.server.alert_sender`
DIR/broker                 passwords and access rules of all devices and readers, and mosquitto's own files
DIR/readers/NAME.password  the password of a reader
"""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from undertone_aggregator.base.files import naming, write_private
from undertone_aggregator.base.lock import locked
from undertone_aggregator.base.owner import give_to_owner
from undertone_aggregator.settings.broker_options import BrokerOptions
from undertone_aggregator.settings.config import LARGEST_FILE, Config, config_of
from undertone_aggregator.settings.join_options import JoinOptions
from undertone_aggregator.settings.options import parse, tables_in
from undertone_aggregator.settings.server_options import ServerOptions
from undertone_aggregator.store.store_address import StoreAddress, store_address
from undertone_shared.errors import Invalid
from undertone_shared.topics import check_name

SERVER = "server.toml"
CAMPAIGNS = "campaigns"
BROKER = "broker"
FLEETS = "fleets"
STATE = "state.json"
# Seconds for which a command waits for another command that changes campaigns.
_CHANGE_SECONDS = 60.0
_SHARED = ("broker", "store", "server", "join", "outlet")
_OWN = ("campaign", "stream", "landing")


class Home:
    """The folder of a server. Its constructor and its methods raise Invalid for invalid files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / SERVER).is_file():
            raise Invalid(f"{folder} holds no {SERVER}: make it with undertone init {folder}")

    def names(self) -> list[str]:
        """Return the names of the campaigns, sorted. Editors' hidden files beside a plan are skipped."""
        return sorted(path.stem for path in (self.folder / CAMPAIGNS).glob("[!.]*.toml"))

    def only(self, name: str | None) -> str:
        """Return ``name`` if there is a campaign of this name. Without a name, return that of the only campaign. Raises
        Invalid.
        """
        names = self.names()
        if name is None and len(names) == 1:
            return names[0]
        if name not in names:
            if not names:
                raise Invalid(f"there is no campaign in {self.folder}: undertone campaign create makes one")
            named = "the campaign is not named" if name is None else f"there is no campaign {name}"
            raise Invalid(f"{named}, expected one of those in {self.folder}: {', '.join(names)}")
        return name

    def newest(self, name: str | None, device: str | None = None) -> str:
        """Return ``name`` if there is a campaign of this name. Without a name, return the newest campaign of the only
        fleet.

        Campaigns that succeed each other have one fleet. ``device``: if there are several fleets, the one with this
        device is meant. Raises Invalid.
        """
        if name is not None:
            return self.only(name)
        newest = [each for each in self.names() if self.successor(each) is None]
        if device is not None and len(newest) > 1:
            newest = [each for each in newest if (self.fleet(each) / "devices" / device).is_dir()] or newest
        return newest[0] if len(newest) == 1 else self.only(None)

    def file(self, name: str) -> Path:
        """Return the path of a campaign's plan. Raises Invalid for an invalid name."""
        return self.folder / CAMPAIGNS / f"{check_name('the campaign', name)}.toml"

    def text(self, name: str) -> bytes:
        """Return the bytes of a campaign's plan as they are now; empty if they cannot be read for any reason."""
        try:
            return self.file(name).read_bytes()
        except (Invalid, OSError):
            return b""

    @property
    def broker(self) -> Path:
        """Folder of the broker's files."""
        return self.folder / BROKER

    @property
    def lock(self) -> Path:
        """Lock file that the running server holds."""
        return self.folder / "serve.lock"

    @property
    def state(self) -> Path:
        """File to which the server writes its state."""
        return self.folder / STATE

    def fleet(self, name: str) -> Path:
        """Return the folder of a campaign's devices. Campaigns that succeed each other share the first one's folder."""
        return self.folder / FLEETS / self.chain(name)[-1]

    def chain(self, name: str) -> list[str]:
        """Return a campaign and its predecessors, which had the same devices, newest first."""
        chain = [name]
        while (earlier := self._succeeds(chain[-1])) is not None and earlier not in chain:
            chain.append(earlier)
        return chain

    def successor(self, name: str) -> str | None:
        """Return the campaign that succeeds this one, if any."""
        return next((other for other in self.names() if self._succeeds(other) == name), None)

    def _succeeds(self, name: str) -> str | None:
        """Return the campaign that this one succeeds; None if there is none, or if the plan cannot be read."""
        with contextlib.suppress(Invalid, OSError):
            earlier = self._tables(self.file(name), _OWN)["campaign"].get("succeeds")
            return None if earlier is None else check_name("succeeds", earlier)
        return None

    def fleets(self) -> dict[str, Path]:
        """Return a map: campaign -> folder of its devices.

        It includes campaigns whose plan was removed, because their devices still report.
        """
        names = {path.name for path in (self.folder / FLEETS).glob("[!.]*") if path.is_dir()}
        return {name: self.fleet(name) for name in sorted(names.union(self.names())) if self.fleet(name).is_dir()}

    @property
    def server(self) -> ServerOptions:
        """The options of [server], which all campaigns share."""
        return parse(ServerOptions, "server", self._tables(self.folder / SERVER, _SHARED).get("server", {}))

    @property
    def join(self) -> JoinOptions:
        """The options of [join]: where people redeem join codes for any campaign."""
        return parse(JoinOptions, "join", self._tables(self.folder / SERVER, _SHARED).get("join", {}))

    @property
    def broker_options(self) -> BrokerOptions:
        """The options of [broker], which all campaigns share."""
        return parse(BrokerOptions, "broker", self._tables(self.folder / SERVER, _SHARED).get("broker", {}))

    def config(self, name: str, plan: str | None = None) -> Config:
        """Return the configuration of one campaign; ``plan``: text that replaces its file's."""
        path = self.file(name)
        if plan is None and not path.is_file():
            others = ", ".join(self.names()) or "none"
            raise Invalid(f"there is no campaign {name} in {self.folder}, expected one of: {others}")
        shared = self._tables(self.folder / SERVER, _SHARED)
        own = self._tables(path, _OWN) if plan is None else _parse(plan, "the plan", _OWN)
        named = own.get("campaign", {}).get("name")
        if named != name:
            found = "missing" if named is None else repr(named)
            raise Invalid(f"campaign.name is {found} in {path}, expected {name!r}, the file's name")
        store, where = dict(shared.get("store", {})), _where(shared)
        if where.file is not None:
            if plan is None:
                # A plan that is only examined must not leave a folder behind.
                _make(self.folder / where.file)
            store["path"] = f"{where.scheme}:{where.file / f'{name}.{where.scheme}'}"
        config = config_of({**shared, **own, "store": store}, self.folder)
        # `fleet(name)` would read `succeeds` from the plan's file, but a previewed plan has no file yet.
        return replace(config, fleet=self.fleet(config.campaign.succeeds or name))

    def stores(self) -> dict[str, str]:
        """Return a map: campaign -> store.

        If the stores are files, the map has every campaign whose store exists, even if its plan was removed. With a
        database it has the campaigns that have a plan.
        """
        where = _where(self._tables(self.folder / SERVER, _SHARED)).within(self.folder)
        if where.file is None:
            return dict.fromkeys(self.names(), str(where))
        return {path.stem: f"{where.scheme}:{path}" for path in sorted(where.file.glob(f"*.{where.scheme}"))}

    @property
    def disk(self) -> Path:
        """Folder on the disk that holds the stores, or will hold them."""
        stores = _where(self._tables(self.folder / SERVER, _SHARED)).within(self.folder).file
        return stores if stores is not None and stores.is_dir() else self.folder

    def changing(self) -> contextlib.AbstractContextManager[None]:
        """Hold the lock on plans and hand-overs, so that two operators' commands run one after the other.

        Raises Invalid after a minute.
        """
        refusal = f"another command changes campaigns of {self.folder}: try again"
        return locked(self.folder / "changing.lock", self.folder, _CHANGE_SECONDS, refusal)

    def remove(self, name: str) -> None:
        """Remove a campaign's plan; the running server then ends the campaign. Raises Invalid, OSError."""
        self.file(name).unlink()

    def write_plan(self, name: str, text: str) -> None:
        """Write the file of a campaign's plan, or replace it."""
        path = self.file(name)
        _make(path.parent)
        write_private(path, text)

    def _tables(self, path: Path, allowed: tuple[str, ...]) -> dict[str, Any]:
        with naming(path):
            data = path.read_bytes()
        if len(data) > LARGEST_FILE:
            raise Invalid(f"{path} has {len(data)} bytes, expected at most {LARGEST_FILE}")
        return _parse(data.decode(errors="replace"), str(path), allowed)


def _where(shared: Mapping[str, Any]) -> StoreAddress:
    """Return the value of [store] path: a folder of files, or one database for all campaigns. Raises Invalid."""
    return store_address(str(shared.get("store", {}).get("path", "stores")))


def _parse(text: str, where: str, allowed: tuple[str, ...]) -> dict[str, Any]:
    tables = tables_in(text, where)
    for name, table in tables.items():
        if name not in allowed or not isinstance(table, dict):
            raise Invalid(f"{where} has {name!r}, expected the tables {', '.join(f'[{each}]' for each in allowed)}")
    return tables


def _make(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(mode=0o700)
        give_to_owner(folder, folder.parent)
