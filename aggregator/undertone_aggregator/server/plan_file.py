"""A single campaign in one file, with its broker, store and server: the argument of `undertone serve FILE`."""

from pathlib import Path

from undertone_aggregator.settings.config import Config, read_config
from undertone_aggregator.settings.join_options import JoinOptions
from undertone_aggregator.settings.server_options import ServerOptions


class PlanFile:
    """A plan file in place of a server's folder (see `undertone_aggregator.server.folder.Home`).

    ``path``: the file, None for a configuration without one.
    """

    # True if the server ends when a campaign fails. Here it ends, because it has only one campaign.
    alone = True
    # Lock file of the running server: none, because the lock of the store already keeps a second server out.
    lock: Path | None = None

    def __init__(self, config: Config, path: Path | None = None) -> None:
        self._config = config
        self._path = path

    @staticmethod
    def read(path: Path) -> "PlanFile":
        """Read the configuration from a file. Raises Invalid, OSError."""
        return PlanFile(read_config(path), path)

    @property
    def folder(self) -> Path:
        """The folder that contains the file."""
        return self._config.folder

    @property
    def disk(self) -> Path:
        """Folder on the disk that holds the store."""
        return self._config.disk

    @property
    def state(self) -> Path:
        """File to which the server writes its state, beside the store."""
        return self.disk / f"{self._config.campaign.name}.state.json"

    @property
    def server(self) -> ServerOptions:
        """The options of [server]."""
        return self._config.server

    @property
    def join(self) -> JoinOptions:
        """The options of [join]."""
        return self._config.join

    @property
    def page(self) -> list[str]:
        """Arguments with which `undertone web` shows this campaign."""
        return [self._config.store_url]

    def names(self) -> list[str]:
        """Return the name of the only campaign, as a list."""
        return [self._config.campaign.name]

    def stores(self) -> dict[str, str]:
        """Return an empty mapping: there are no other campaigns whose stores might hold sessions."""
        return {}

    def text(self, name: str) -> bytes:
        """Return the current text of the file; empty if it cannot be read."""
        try:
            return b"" if self._path is None else self._path.read_bytes()
        except OSError:
            return b""

    def config(self, name: str) -> Config:
        """Return the configuration as it is in the file now. Raises Invalid, OSError."""
        return self._config if self._path is None else read_config(self._path)
