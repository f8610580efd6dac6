"""Mosquitto's password file, line by line.

Passwords are generated with 192 random bits, so PBKDF2's iteration count adds nothing: mosquitto's own default of 101
keeps provisioning and every connect cheap. Never put a password that a person chose into such a file.
"""

import base64
import hashlib
import hmac
import secrets
from pathlib import Path

from undertone_shared.errors import Invalid
from undertone_shared.topics import check_name

ITERATIONS = 101
_SALT_BYTES = 12


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
    derived = hashlib.pbkdf2_hmac("sha512", password.encode(), base64.b64decode(salt), int(iterations), 64)
    return hmac.compare_digest(derived, base64.b64decode(digest))


def read_passwords(path: Path) -> dict[str, str]:
    """A password file as user -> entry. Raises OSError."""
    entries = (line.partition(":") for line in path.read_text().splitlines())
    return {user: entry for user, _, entry in entries}
