"""Broker credentials: mosquitto's password and access-control files, for one fleet at once."""

import contextlib
import fcntl
import os
import secrets
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from undertone_aggregator.collect.link import DROPPED_TOPIC, STORED_TOPIC, worker_password, worker_user
from undertone_aggregator.collect.owner import give_to_owner
from undertone_aggregator.collect.room import naming
from undertone_aggregator.collect.sessions import WORKER_USERS
from undertone_aggregator.direct.passwords import certificate_entry, password_entry, read_passwords
from undertone_shared import discovery
from undertone_shared.topics import check_prefix, report_topic

AGGREGATOR = "aggregator"
ANALYST = "analyst"
# Mosquitto compares each line with all before it when it reads the file.
EXACT_DEVICES = 20_000


def new_password() -> str:
    """A fresh password of 32 URL-safe characters, 192 random bits."""
    return secrets.token_urlsafe(24)


@dataclass(frozen=True)
class ShownCertificate:
    """A device's certificate in the place of a password, PEM."""

    pem: str


Secret = str | ShownCertificate


def entry_of(user: str, secret: Secret) -> str:
    """The line of a password file. Raises Invalid."""
    if isinstance(secret, ShownCertificate):
        return certificate_entry(user, secret.pem)
    return password_entry(user, secret)


def write_passwords(path: Path, users: Mapping[str, Secret]) -> None:
    """Write the password file for user -> password or certificate, readable by its owner only. Raises Invalid."""
    write_private(path, "".join(entry_of(user, secret) for user, secret in users.items()))


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Nobody else who asks changes the broker's files in ``folder`` meanwhile: campaigns share them."""
    path = folder / ".lock"
    with path.open("w") as lock:
        give_to_owner(path, folder)
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def change_passwords(path: Path, changed: Mapping[str, Secret | None]) -> Collection[str]:
    """Replace these users' passwords in a file, add who is new, take out whose is None; all users that are left.

    Call it `alone`. Raises OSError, Invalid.
    """
    kept = {user: f"{user}:{entry}\n" for user, entry in read_passwords(path).items()}
    for user, secret in changed.items():
        kept.pop(user, None)
        if secret is not None:
            kept[user] = entry_of(user, secret)
    write_private(path, "".join(kept.values()))
    return kept.keys()


def server_users(password: str) -> dict[str, str]:
    """user -> password of the server's connections: the aggregator, and one user for each worker's session."""
    workers = [worker_user(AGGREGATOR, slot) for slot in range(WORKER_USERS)]
    return {AGGREGATOR: password, **{user: worker_password(password, user) for user in workers}}


def servers_names() -> frozenset[str]:
    """The users of a password file that are no devices."""
    return frozenset({ANALYST, *server_users("")})


def access_rules(prefix: str, devices: Mapping[str, Collection[str]] | None = None) -> str:
    """The access-control file: a device writes its own reports and reads campaigns, nothing else.

    ``devices``: device -> its campaigns. Each may write to one topic of each of them, and so leave at most one
    retained message there. Without them, and beyond `EXACT_DEVICES`, for which mosquitto reads the file too slowly, a
    pattern stands for all devices, and campaign and shard are free: the aggregator checks them. Raises Invalid.
    """
    check_prefix(prefix)
    devices = devices or {}
    exact = 0 < len(devices) <= EXACT_DEVICES
    lines = [f"pattern read {prefix}/+/config"]
    if not exact:
        campaigns = sorted({campaign for own in devices.values() for campaign in own})
        lines += [f"pattern write {prefix}/{campaign}/+/%u/report" for campaign in campaigns or ("+",)]
    lines += ["", f"user {AGGREGATOR}", f"topic readwrite {prefix}/+/config", f"topic readwrite {prefix}/+/aggregate/#"]
    lines += [f"topic read {topic}" for topic in (DROPPED_TOPIC, STORED_TOPIC)]
    lines += [f"topic write {discovery.config_topic(discovery.DEFAULT_PREFIX, '+')}"]
    for slot in range(WORKER_USERS):
        lines += [f"user {worker_user(AGGREGATOR, slot)}", f"topic read {prefix}/+/+/+/report"]
    lines += ["", f"user {ANALYST}", f"topic read {prefix}/+/aggregate/#", ""]
    for device, own in devices.items() if exact else ():
        lines += [f"user {device}", *(f"topic write {report_topic(prefix, name, device)}" for name in own)]
    return "\n".join(lines) + "\n"


def write_access_rules(path: Path, prefix: str, devices: Mapping[str, Collection[str]] | None = None) -> None:
    """Write the access-control file for one topic prefix, readable by its owner only. Raises Invalid."""
    write_private(path, access_rules(prefix, devices))


def write_private(path: Path, text: str) -> None:
    """Replace the file atomically; only its owner may read it (mode 0600). Raises OSError, naming it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    try:
        with naming(path), os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        give_to_owner(Path(temporary), path if path.exists() else path.parent)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
