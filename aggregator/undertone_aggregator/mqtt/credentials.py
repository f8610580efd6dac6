"""Broker credentials: mosquitto's password file and access-control file, each written for the whole fleet at once."""

import base64
import contextlib
import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from undertone_aggregator.base.files import read_utf8, write_private
from undertone_aggregator.base.lock import locked
from undertone_aggregator.mqtt.endpoint.passwords import certificate_entry, password_entry, read_passwords
from undertone_aggregator.mqtt.link import DROPPED_TOPIC, STORED_TOPIC, worker_password, worker_user
from undertone_aggregator.mqtt.sessions import WORKER_USERS
from undertone_shared.errors import Invalid
from undertone_shared.off_board import discovery
from undertone_shared.topics import check_prefix, report_topic

# Seconds that a command waits for another command that is changing the broker's files.
_LOCK_SECONDS = 60.0

AGGREGATOR = "aggregator"
# The lines of the access-control file between these two marks belong to the operator.
_OWN_BEGIN = "# --- Your own rules: Undertone keeps what stands from here ..."
_OWN_HINT = "# Begin with a line such as `user grafana`, and add that user to the password file with mosquitto_passwd."
_OWN_END = "# ... to here. It writes everything below again whenever a device is added, rotated or revoked. ---"
# The lines of the access-control file between these two marks are the rules of readers.
_READERS_BEGIN = "# --- Readers, which `undertone readers` adds and removes ..."
_READERS_END = "# ... end of readers. ---"
# Up to this number of devices, each has lines of its own. With more, all share one pattern for each campaign, because
# mosquitto compares each line with all lines before it.
EXACT_DEVICES = 20_000


def new_password(seed: bytes | None = None) -> str:
    """Return a password of 32 URL-safe characters: 192 random bits, or the first 192 bits of ``seed``."""
    return base64.urlsafe_b64encode(secrets.token_bytes(24) if seed is None else seed[:24]).decode()


@dataclass(frozen=True)
class ShownCertificate:
    """The certificate (PEM) by which a device authenticates instead of a password."""

    pem: str


Secret = str | ShownCertificate


def entry_of(user: str, secret: Secret) -> str:
    """Return the line of a user in the password file. Raises Invalid."""
    if isinstance(secret, ShownCertificate):
        return certificate_entry(user, secret.pem)
    return password_entry(user, secret)


def write_passwords(path: Path, users: Mapping[str, Secret]) -> None:
    """Write the password file, readable by its owner only. ``users``: user -> password or certificate.

    Raises Invalid, OSError.
    """
    write_private(path, "".join(entry_of(user, secret) for user, secret in users.items()))


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the lock on the broker's files in ``folder``, which campaigns share. Raises Invalid after a minute."""
    refusal = f"another command has been changing the broker's files in {folder} for {_LOCK_SECONDS:.0f} s: try again"
    with locked(folder / ".lock", folder, _LOCK_SECONDS, refusal):
        yield


def change_passwords(path: Path, changed: Mapping[str, Secret | None]) -> Collection[str]:
    """Replace or add the passwords of these users in a file; None removes a user. Return all users in the new file.

    The caller must hold the lock of `alone`. Raises OSError, Invalid.
    """
    entries = {user: f"{user}:{entry}\n" for user, entry in read_passwords(path).items()}
    for user, secret in changed.items():
        entries.pop(user, None)
        if secret is not None:
            entries[user] = entry_of(user, secret)
    write_private(path, "".join(entries.values()))
    return entries.keys()


def server_users(password: str) -> dict[str, str]:
    """Return the passwords of the server's users: the aggregator, and one user for each worker's session."""
    workers = [worker_user(AGGREGATOR, slot) for slot in range(WORKER_USERS)]
    return {AGGREGATOR: password, **{user: worker_password(password, user) for user in workers}}


def servers_names() -> frozenset[str]:
    """Return the names of the server's own users, which are neither devices nor readers."""
    return frozenset(server_users(""))


def check_device_name(name: str) -> str:
    """Return the name of a device. Raises Invalid if one of the server's own users has that name."""
    if name in servers_names():
        raise Invalid(f"the device's name is {name!r}, expected another: it is the name of a broker user of the server")
    return name


def access_rules(
    prefix: str,
    devices: Mapping[str, Collection[str]] | None = None,
    *,
    own: str | None = None,
    readers: Collection[str] = (),
    home_assistant: str | None = None,
    exact: int | None = EXACT_DEVICES,
) -> str:
    """Return the access-control file: a device may write its own reports, and read campaigns and published numbers.

    ``devices``: device -> its campaigns. Each device may write to one topic of each of its campaigns, so it can leave
    at most one retained message there. With more than ``exact`` devices, one pattern for each campaign covers all
    devices and shards; without ``devices``, one pattern covers all campaigns as well. The aggregator then checks the
    shard. ``exact``: None (no limit) for the server's own endpoint, which finds a device's rules in a table.

    ``own``: the operator's own rules; None writes a comment that explains where to put them. ``readers``: see
    `_reader_rules`. ``home_assistant``: first level of Home Assistant's topics; None: the usual one. Raises Invalid.
    """
    check_prefix(prefix)
    home = home_assistant or discovery.DEFAULT_PREFIX
    devices = devices or {}
    each_alone = len(devices) > 0 and (exact is None or len(devices) <= exact)
    # The operator's rules come first: after the last device, a rule without a user would apply to that device.
    lines = [_OWN_BEGIN, _OWN_HINT if own is None else own, _OWN_END, ""]
    lines += [_READERS_BEGIN, *_reader_rules(prefix, readers, home), _READERS_END, ""]
    lines += [f"pattern read {prefix}/+/config", f"pattern read {prefix}/+/aggregate/#"]
    if not each_alone:
        campaigns = sorted({campaign for own in devices.values() for campaign in own})
        lines += [f"pattern write {prefix}/{campaign}/+/%u/report" for campaign in campaigns or ("+",)]
    lines += ["", f"user {AGGREGATOR}", f"topic readwrite {prefix}/+/config", f"topic readwrite {prefix}/+/aggregate/#"]
    lines += [f"topic read {topic}" for topic in (DROPPED_TOPIC, STORED_TOPIC)]
    lines += [f"topic write {discovery.config_topic(home, '+')}"]
    for slot in range(WORKER_USERS):
        lines += [f"user {worker_user(AGGREGATOR, slot)}", f"topic read {prefix}/+/+/+/report"]
    lines += [""]
    for device, campaigns_of_it in devices.items() if each_alone else ():
        lines += [f"user {device}", *(f"topic write {report_topic(prefix, name, device)}" for name in campaigns_of_it)]
    return "\n".join(lines) + "\n"


def write_access_rules(
    path: Path,
    prefix: str,
    devices: Mapping[str, Collection[str]] | None = None,
    *,
    home_assistant: str | None = None,
    exact: int | None = EXACT_DEVICES,
) -> None:
    """Write the access-control file, readable only by its owner, but keep its readers and the operator's own rules.

    ``prefix``: first level of the topics. ``devices``, ``home_assistant``, ``exact``: see `access_rules`. Raises
    Invalid, OSError.
    """
    own, readers = _own_rules(path), readers_of(path)
    rules = access_rules(prefix, devices, own=own, readers=readers, home_assistant=home_assistant, exact=exact)
    write_private(path, rules)


def readers_of(path: Path) -> list[str]:
    """Return the readers that an access-control file lists, without those in the operator's own rules.

    Raises Invalid, OSError.
    """
    lines = _between(path, _READERS_BEGIN, _READERS_END) or []
    return [line.removeprefix("user ") for line in lines if line.startswith("user ")]


def write_readers(path: Path, prefix: str, readers: Collection[str], *, home_assistant: str | None = None) -> None:
    """Replace the readers of an access-control file, and keep its other lines. Raises Invalid, OSError."""
    text = read_utf8(path) if path.exists() else ""
    before = _between(path, _READERS_BEGIN, _READERS_END)
    if before is None:
        raise Invalid(f"{path} has no line {_READERS_BEGIN!r}, expected the file that undertone init wrote")
    rules = _reader_rules(check_prefix(prefix), readers, home_assistant or discovery.DEFAULT_PREFIX)
    lines = text.splitlines()
    begin = lines.index(_READERS_BEGIN) + 1
    write_private(path, "\n".join([*lines[:begin], *rules, *lines[begin + len(before) :]]) + "\n")


def _reader_rules(prefix: str, readers: Collection[str], home: str) -> list[str]:
    """Return the rules of readers: they may read aggregates, and all topics of Home Assistant.

    The only message that they may publish is the one by which Home Assistant announces its start.
    """
    rules = [f"topic read {prefix}/+/aggregate/#", f"topic read {home}/#", f"topic write {home}/status"]
    return [line for reader in readers for line in (f"user {reader}", *rules)]


def _own_rules(path: Path) -> str | None:
    """Return the operator's lines of an access-control file; None without the marks around them. Raises Invalid."""
    lines = _between(path, _OWN_BEGIN, _OWN_END)
    return None if lines is None else "\n".join(lines)


def _between(path: Path, first: str, last: str) -> list[str] | None:
    """Return the lines between two marks of a file; None if there is no file or neither mark. Raises OSError.

    Raises Invalid if one mark is missing, or if the end mark stands above the begin mark: the lines between are then
    unknown.
    """
    if not path.exists():
        return None
    lines = read_utf8(path).splitlines()
    begin, end = (lines.index(mark) if mark in lines else None for mark in (first, last))
    if begin is None and end is None:
        return None
    if begin is None or end is None or end < begin:
        raise Invalid(
            f"one of the lines {first!r} and {last!r} is missing in {path}, or their order is wrong: restore them"
        )
    return lines[begin + 1 : end]
