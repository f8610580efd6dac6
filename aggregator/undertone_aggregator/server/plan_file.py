"""One campaign in one file, with its broker, store and server: what `undertone serve FILE` serves."""

from pathlib import Path

from undertone_aggregator.settings.config import Config, read_config
from undertone_aggregator.settings.server_options import ServerOptions


class PlanFile:
    """A configuration in the place of a server's folder (`undertone_aggregator.server.folder.Home`). ``path``: its
    file."""

    # Its only campaign's failure is the server's.
    alone = True
    # Its store's own lock keeps a second server out.
    lock: Path | None = None

    def __init__(self, config: Config, path: Path | None = None) -> None:
        self._config = config
        self._path = path

    @staticmethod
    def read(path: Path) -> "PlanFile":
        """The configuration in a file. Raises Invalid, OSError."""
        return PlanFile(read_config(path), path)

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return self._config.folder

    @property
    def disk(self) -> Path:
        """A folder on the disk that the store is on."""
        return self._config.disk

    @property
    def state(self) -> Path:
        """Where the server writes its state: beside the store."""
        return self.disk / f"{self._config.campaign.name}.state.json"

    @property
    def server(self) -> ServerOptions:
        """[server]."""
        return self._config.server

    @property
    def page(self) -> list[str]:
        """The words that `undertone web` is asked with for its page."""
        return [self._config.store_url]

    def names(self) -> list[str]:
        """Its one campaign."""
        return [self._config.campaign.name]

    def stores(self) -> dict[str, str]:
        """No other campaign's store has to be asked which sessions it holds."""
        return {}

    def text(self, name: str) -> bytes:
        """What stands in the file now; empty while it cannot be read."""
        try:
            return b"" if self._path is None else self._path.read_bytes()
        except OSError:
            return b""

    def config(self, name: str) -> Config:
        """The configuration as it stands in the file now. Raises Invalid, OSError."""
        return self._config if self._path is None else read_config(self._path)
