"""Who may come in: devices by name and password, from mosquitto's password file."""

import secrets
from collections.abc import Collection
from pathlib import Path

from undertone_aggregator.direct.passwords import password_entry, password_matches, read_passwords
from undertone_shared.errors import Invalid
from undertone_shared.topics import check_name


class Gate:
    """The devices of a password file, which are all but ``others``: users that only brokers need.

    Raises Invalid for a line that is no entry, OSError when the file cannot be read.
    """

    def __init__(self, path: Path, others: Collection[str] = ()) -> None:
        self._path = path
        self.files = (path,)
        self._others = frozenset(others)
        self._entries: dict[str, str] = {}
        # Somebody unknown costs what a device costs: the time of an answer says nothing of the names.
        self._nobody = password_entry("nobody", secrets.token_urlsafe(24)).strip().partition(":")[2]
        self.reload()

    def reload(self) -> None:
        """Read the file again; when that raises, the entries stay what they were."""
        entries = read_passwords(self._path)
        for user, entry in entries.items():
            try:
                check_name("user", user)
                password_matches(entry, "")
            except ValueError:
                raise Invalid(f"{self._path} has an entry of {user!r} that is not of the form $7$…") from None
        self._entries = {user: entry for user, entry in entries.items() if user not in self._others}

    def __len__(self) -> int:
        return len(self._entries)

    def knows(self, user: str) -> bool:
        """Whether there is a device with this name."""
        return user in self._entries

    def admits(self, user: str, password: str) -> bool:
        """Whether this is the password of the device with this name."""
        entry = self._entries.get(user)
        matches = password_matches(self._nobody if entry is None else entry, password)
        return matches and entry is not None
