"""Who may come in: devices by name and password, from mosquitto's password file."""

from pathlib import Path

from undertone_aggregator import credentials
from undertone_shared.errors import Invalid
from undertone_shared.topics import check_name

# Known to the server alone: only brokers need these users.
_SERVERS = (credentials.AGGREGATOR, credentials.ANALYST)


class Gate:
    """The devices of a password file. Raises Invalid for a line that is no entry, OSError when it cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, str] = {}
        # Somebody unknown costs what a device costs: the time of an answer says nothing of the names.
        self._nobody = credentials.password_entry("nobody", credentials.new_password()).strip().partition(":")[2]
        self.reload()

    def reload(self) -> None:
        """Read the file again; when that raises, the entries stay what they were."""
        entries = credentials.read_passwords(self._path)
        for user, entry in entries.items():
            try:
                check_name("user", user)
                credentials.password_matches(entry, "")
            except ValueError:
                raise Invalid(f"{self._path} has an entry of {user!r} that is not of the form $7$…") from None
        self._entries = {user: entry for user, entry in entries.items() if user not in _SERVERS}

    def __len__(self) -> int:
        return len(self._entries)

    def knows(self, user: str) -> bool:
        """Whether there is a device with this name."""
        return user in self._entries

    def admits(self, user: str, password: str) -> bool:
        """Whether this is the password of the device with this name."""
        entry = self._entries.get(user)
        matches = credentials.password_matches(self._nobody if entry is None else entry, password)
        return matches and entry is not None
