"""Authentication of devices and readers, and the topics to which each may publish or subscribe."""

import secrets
from collections.abc import Collection
from pathlib import Path

from undertone_aggregator.mqtt.endpoint.access import Access, ReadRules, read_access
from undertone_aggregator.mqtt.endpoint.passwords import (
    CERTIFICATE,
    certificate_matches,
    password_entry,
    password_matches,
    read_passwords,
)
from undertone_shared.errors import Invalid
from undertone_shared.topics import check_name


class Gate:
    """The devices and readers of a password file: all its users except ``others``, which are users of brokers only.

    ``access``: the access-control file. It says to which campaigns each device may report, and which users are readers
    of which topics. None: devices may report to all campaigns, and there are no readers. Raises Invalid for an invalid
    entry of the password file or a missing file, OSError if a file cannot be read.
    """

    def __init__(self, path: Path, others: Collection[str] = (), access: Path | None = None) -> None:
        self._path = path
        self._access_file = access
        self.files = (path,) if access is None else (path, access)
        self._others = frozenset(others)
        self._entries: dict[str, str] = {}
        self._access: Access | None = None
        # An unknown user's password is checked against this entry, so that the time of an answer does not reveal which
        # names exist.
        self._nobody = password_entry("nobody", secrets.token_urlsafe(24)).strip().partition(":")[2]
        self.reload()

    def reload(self) -> frozenset[str]:
        """Read the files again. On an error nothing changes.

        Return the users whose entry was removed or changed, and the users who may now read other topics than before.
        """
        for path in self.files:
            if not path.exists():
                raise Invalid(f"{path} is not there: restore it from a backup, or correct its path in [broker]")
        entries = read_passwords(self._path)
        for user, entry in entries.items():
            # Checking an entry takes as long as a login. So after the addition of one device only its entry is checked.
            if self._entries.get(user) == entry:
                continue
            try:
                check_name("user", user)
                if not entry.startswith(CERTIFICATE):
                    password_matches(entry, "")
            except ValueError:
                raise Invalid(
                    f"{self._path} has an invalid entry for {user!r}, expected NAME:$7$… or NAME:{CERTIFICATE}…"
                ) from None
        access = None if self._access_file is None else read_access(self._access_file)
        before, readers = self._entries, {user: self.reader(user) for user in self._entries}
        # The access rules are replaced first, so that no device logs in before its reports are allowed.
        self._access = access
        self._entries = {user: entry for user, entry in entries.items() if user not in self._others}
        return frozenset(
            user
            for user, entry in before.items()
            if self._entries.get(user) != entry or self.reader(user) != readers[user]
        )

    def admits(self, user: str, password: str) -> bool:
        """Return True if this is the password of the device or reader with this name."""
        entry = self._entries.get(user, "")
        has_password = bool(entry) and not entry.startswith(CERTIFICATE)
        return password_matches(entry if has_password else self._nobody, password) and has_password

    def admits_certificate(self, user: str, certificate: bytes) -> bool:
        """Return True if this verified certificate (DER) is the one of the device with this name."""
        return certificate_matches(self._entries.get(user, ""), certificate)

    def may_publish(self, topic: str, user: str) -> bool:
        """Return True if the device with this name may publish to this topic."""
        return self._access is None or self._access.may_publish(topic, user)

    def reader(self, user: str) -> ReadRules | None:
        """Return what a reader may read; None for a device."""
        return None if self._access is None else self._access.reader(user)
