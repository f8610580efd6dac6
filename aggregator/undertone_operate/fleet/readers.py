"""Readers: users who may read published estimates and Home Assistant's topics over MQTT.

They may publish only the message with which Home Assistant announces that it has started.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from undertone_aggregator.base.files import write_private
from undertone_aggregator.base.owner import give_to_owner
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.endpoint.passwords import read_passwords
from undertone_aggregator.server.folder import Home
from undertone_aggregator.settings.broker_options import BrokerOptions
from undertone_shared.errors import Invalid
from undertone_shared.topics import check_name


@dataclass(frozen=True)
class ReaderFiles:
    """The files of a server's readers.

    ``folder``: the folder with readers/NAME.password; ``broker``: the folder with the files ``passwords`` and
    ``access``; ``home_assistant``: prefix of Home Assistant's discovery topics, None for the usual one.
    """

    folder: Path
    broker: Path
    options: BrokerOptions
    home_assistant: str | None

    @staticmethod
    def at_home(home: Home) -> "ReaderFiles":
        """Open the readers of a server's folder. Raises Invalid."""
        return ReaderFiles(home.folder, home.broker, home.broker_options, home.server.home_assistant)

    def names(self) -> list[str]:
        """Return the names of the readers. Raises Invalid."""
        return credentials.readers_of(self._access)

    def add(self, name: str) -> Path:
        """Add a reader; return the file with its password. Raises Invalid."""
        credentials.check_device_name(check_name("the reader", name))
        if not self.options.source.broker and self.options.access is None:
            raise Invalid("access is missing in [broker], expected the access-control file, which names the readers")
        with credentials.alone(self.broker):
            names = self.names()
            if name in names or name in read_passwords(self.broker / "passwords"):
                raise Invalid(f"the reader is {name}, expected a name that no device and no reader has")
            path = self._write_password(name)
            self._write_rules([*names, name])
        return path

    def rotate(self, name: str) -> Path:
        """Give a reader a new password; return the file that holds it. Raises Invalid."""
        with credentials.alone(self.broker):
            self._check(name)
            return self._write_password(name)

    def remove(self, name: str) -> None:
        """Remove a reader with its password. Raises Invalid."""
        with credentials.alone(self.broker):
            self._check(name)
            self._change({name: None})
            self._write_rules([each for each in self.names() if each != name])
            self._password(name).unlink(missing_ok=True)

    @property
    def _access(self) -> Path:
        return self.broker / "access"

    def _password(self, name: str) -> Path:
        return self.folder / "readers" / f"{name}.password"

    def _check(self, name: str) -> None:
        names = self.names()
        if name not in names:
            known = f"expected one of: {', '.join(names)}" if names else "and no other reader"
            raise Invalid(f"there is no reader {name}, {known}")

    def _write_password(self, name: str) -> Path:
        path, password = self._password(name), credentials.new_password()
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700)
            give_to_owner(path.parent, self.folder)
        write_private(path, password + "\n")
        self._change({name: password})
        return path

    def _change(self, changed: Mapping[str, str | None]) -> None:
        credentials.change_passwords(self.broker / "passwords", changed)

    def _write_rules(self, names: list[str]) -> None:
        credentials.write_readers(self._access, self.options.prefix, names, home_assistant=self.home_assistant)
