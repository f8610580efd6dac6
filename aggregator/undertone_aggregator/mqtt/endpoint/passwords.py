"""Mosquitto's password file, line by line; and, for the direct endpoint, devices that show certificates in it.

Passwords are generated with 192 random bits, so PBKDF2's iteration count adds nothing: mosquitto's own default of 101
keeps provisioning and every connect cheap. Never put a password that a person chose into such a file.
"""

import base64
import hashlib
import hmac
import secrets
import ssl
from pathlib import Path

from undertone_shared.errors import Invalid
from undertone_shared.topics import check_name

ITERATIONS = 101
# In the place of mosquitto's "$7$"; mosquitto takes nobody in by such a line.
CERTIFICATE = "$certificate$"
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


def certificate_entry(device: str, certificate: str) -> str:
    """The line of a device that shows this one certificate, PEM, and no password: ``device:$certificate$SHA-256``.

    Raises Invalid for a device that is no name.
    """
    check_name("device", device)
    return f"{device}:{CERTIFICATE}{hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).hexdigest()}\n"


def certificate_matches(entry: str, certificate: bytes) -> bool:
    """Whether this certificate, DER, is the one of ``$certificate$SHA-256``."""
    return entry == CERTIFICATE + hashlib.sha256(certificate).hexdigest()


def password_matches(entry: str, password: str) -> bool:
    """Whether this is the password of ``$7$iterations$salt$hash``. Raises Invalid for another form."""
    try:
        _, kind, iterations, salt, digest = entry.split("$")
        derived = hashlib.pbkdf2_hmac("sha512", password.encode(), base64.b64decode(salt), int(iterations), 64)
        return kind == "7" and hmac.compare_digest(derived, base64.b64decode(digest))
    except ValueError:
        raise Invalid(f"an entry of a password file begins with {entry[:3]!r}, expected $7$…, whole") from None


def read_passwords(path: Path) -> dict[str, str]:
    """A password file as user -> entry. Raises OSError."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    # As mosquitto does, it leaves out what is empty or a comment.
    entries = (line.partition(":") for line in lines if line.strip() and not line.startswith("#"))
    return {user: entry for user, _, entry in entries}
