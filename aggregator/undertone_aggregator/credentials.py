"""Broker credentials: mosquitto's password and access-control files, for one fleet at once.

Passwords are generated here with 192 random bits, so PBKDF2's iteration count adds nothing: mosquitto's own default
of 101 keeps provisioning and every connect cheap. Never put a password that a person chose into such a file.
"""

import base64
import contextlib
import hashlib
import hmac
import os
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path

from undertone_shared.errors import Invalid
from undertone_shared.topics import check_name, check_prefix

AGGREGATOR = "aggregator"
ANALYST = "analyst"
ITERATIONS = 101
_SALT_BYTES = 12


def new_password() -> str:
    """A fresh password of 32 URL-safe characters, 192 random bits."""
    return secrets.token_urlsafe(24)


def password_entry(user: str, password: str) -> str:
    """One line of a mosquitto password file: ``user:$7$iterations$salt$hash``, PBKDF2-HMAC-SHA512, 64 bytes.

    Raises Invalid for a user that is no name, or an empty password.
    """
    check_name("user", user)
    if not password:
        raise Invalid(f"the password of {user} is empty")
    salt = secrets.token_bytes(_SALT_BYTES)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS, 64)
    return f"{user}:$7${ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}\n"


def password_matches(entry: str, password: str) -> bool:
    """Whether this is the password of ``$7$iterations$salt$hash``."""
    _, _, iterations, salt, digest = entry.split("$")
    found = hashlib.pbkdf2_hmac("sha512", password.encode(), base64.b64decode(salt), int(iterations), 64)
    return hmac.compare_digest(found, base64.b64decode(digest))


def read_passwords(path: Path) -> dict[str, str]:
    """A password file as user -> entry. Raises OSError."""
    entries = (line.partition(":") for line in path.read_text().splitlines())
    return {user: entry for user, _, entry in entries}


def write_passwords(path: Path, users: Mapping[str, str]) -> None:
    """Write the password file for user -> password, readable by its owner only. Raises Invalid."""
    write_private(path, "".join(password_entry(user, password) for user, password in users.items()))


def access_rules(prefix: str) -> str:
    """The access-control file: a device writes its own reports and reads campaigns, nothing else.

    The shard level cannot be tied to the user name by a pattern; the aggregator checks it. Raises Invalid.
    """
    check_prefix(prefix)
    return f"""\
# A device publishes reports under its own name only, whatever the shard, and reads campaigns.
pattern write {prefix}/+/+/%u/report
pattern read {prefix}/+/config

user {AGGREGATOR}
topic read {prefix}/+/+/+/report
topic readwrite {prefix}/+/config
topic readwrite {prefix}/+/aggregate/#

user {ANALYST}
topic read {prefix}/+/aggregate/#
"""


def write_access_rules(path: Path, prefix: str) -> None:
    """Write the access-control file for one topic prefix, readable by its owner only. Raises Invalid."""
    write_private(path, access_rules(prefix))


def write_private(path: Path, text: str) -> None:
    """Replace the file atomically; only its owner may read it (mode 0600)."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
