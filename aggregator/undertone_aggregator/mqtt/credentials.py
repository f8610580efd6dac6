"""Broker credentials: mosquitto's password and access-control files, for one fleet at once."""

import contextlib
import fcntl
import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from undertone_aggregator.base.owner import give_to_owner
from undertone_aggregator.mqtt.endpoint.passwords import certificate_entry, password_entry, read_passwords
from undertone_aggregator.mqtt.link import DROPPED_TOPIC, STORED_TOPIC, worker_password, worker_user
from undertone_aggregator.mqtt.sessions import WORKER_USERS
from undertone_aggregator.store.files import write_private
from undertone_shared.errors import Invalid
from undertone_shared.off_board import discovery
from undertone_shared.topics import check_prefix, report_topic

AGGREGATOR = "aggregator"
ANALYST = "analyst"
# The broker lets in one client for each user: several readers, such as Home Assistant and a dashboard, take one each.
ANALYSTS = (ANALYST, *(f"{ANALYST}-{number}" for number in range(2, 9)))
# What stands between these lines of the access-control file is the operator's.
_OWN_BEGIN = "# --- Your own rules: Undertone keeps what stands from here ..."
_OWN_HINT = "# Begin with a line such as `user grafana`, and add that user to the password file with mosquitto_passwd."
_OWN_END = "# ... to here. It writes everything below again whenever a device is added, rotated or revoked. ---"
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


def analyst_users(password: str) -> dict[str, str]:
    """user -> password of those who read what is published: all of them may do the same and have one password."""
    return dict.fromkeys(ANALYSTS, password)


def servers_names() -> frozenset[str]:
    """The users of a password file that are no devices."""
    return frozenset({*ANALYSTS, *server_users("")})


def check_device_name(name: str) -> str:
    """Return the name of a device. Raises Invalid for a name that one of the server's own users has."""
    if name in servers_names():
        raise Invalid(f"the device's name is {name!r}, expected another: the server's own broker user is called so")
    return name


def access_rules(
    prefix: str,
    devices: Mapping[str, Collection[str]] | None = None,
    *,
    own: str | None = None,
    home_assistant: str | None = None,
) -> str:
    """The access-control file: a device writes its own reports and reads campaigns, nothing else.

    Analysts read aggregates and what is below Home Assistant's discovery prefix, and may publish its birth message.
    ``own``: the operator's own rules, a hint in a comment without them.
    ``devices``: device -> its campaigns. Each may write to one topic of each of them, and so leave at most one
    retained message there. Without them, and beyond `EXACT_DEVICES`, for which mosquitto reads the file too slowly, a
    pattern stands for all devices, and campaign and shard are free: the aggregator checks them. Raises Invalid.
    """
    check_prefix(prefix)
    home = home_assistant or discovery.DEFAULT_PREFIX
    devices = devices or {}
    exact = 0 < len(devices) <= EXACT_DEVICES
    # They stand first: a rule without a user would otherwise be the last device's.
    lines = [_OWN_BEGIN, _OWN_HINT if own is None else own, _OWN_END, "", f"pattern read {prefix}/+/config"]
    if not exact:
        campaigns = sorted({campaign for own in devices.values() for campaign in own})
        lines += [f"pattern write {prefix}/{campaign}/+/%u/report" for campaign in campaigns or ("+",)]
    lines += ["", f"user {AGGREGATOR}", f"topic readwrite {prefix}/+/config", f"topic readwrite {prefix}/+/aggregate/#"]
    lines += [f"topic read {topic}" for topic in (DROPPED_TOPIC, STORED_TOPIC)]
    lines += [f"topic write {discovery.config_topic(home, '+')}"]
    for slot in range(WORKER_USERS):
        lines += [f"user {worker_user(AGGREGATOR, slot)}", f"topic read {prefix}/+/+/+/report"]
    for user in ANALYSTS:
        lines += ["", f"user {user}", f"topic read {prefix}/+/aggregate/#"]
        lines += [f"topic read {home}/#", f"topic write {home}/status"]
    lines += [""]
    for device, campaigns_of_it in devices.items() if exact else ():
        lines += [f"user {device}", *(f"topic write {report_topic(prefix, name, device)}" for name in campaigns_of_it)]
    return "\n".join(lines) + "\n"


def write_access_rules(
    path: Path,
    prefix: str,
    devices: Mapping[str, Collection[str]] | None = None,
    *,
    home_assistant: str | None = None,
) -> None:
    """Write the access-control file for one topic prefix, readable by its owner only; the operator's rules stay.

    Raises Invalid, OSError.
    """
    write_private(path, access_rules(prefix, devices, own=_own_rules(path), home_assistant=home_assistant))


def _own_rules(path: Path) -> str | None:
    """The lines of the operator in an access-control file; None where the file has no place for them. Raises OSError.

    Raises Invalid for a file whose second mark is gone, or stands above the first: what is whose cannot be known.
    """
    if not path.exists():
        return None
    lines = path.read_text(encoding="utf-8").splitlines()
    marks = [lines.index(mark) if mark in lines else None for mark in (_OWN_BEGIN, _OWN_END)]
    begin, end = marks
    if begin is None and end is None:
        return None
    if begin is None or end is None or end < begin:
        raise Invalid(
            f"{path} has lost one of the lines between which your own rules stand: {_OWN_BEGIN!r}, {_OWN_END!r}"
        )
    return "\n".join(lines[begin + 1 : end])
