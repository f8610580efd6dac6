"""The password file in mosquitto's format, with an extension for devices that authenticate by certificate.

Passwords are generated with 192 random bits, so a high iteration count of PBKDF2 adds no security. With mosquitto's own
default of 101, adding devices and connecting stay cheap. Never put a password that a person chose into such a file.
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
# Marks an entry with a certificate, where a password has mosquitto's "$7$". Mosquitto itself admits nobody by such a
# line.
CERTIFICATE = "$certificate$"
_SALT_BYTES = 12


def password_entry(user: str, password: str) -> str:
    """Return a line of a mosquitto password file: ``user:$7$iterations$salt$hash``, PBKDF2-HMAC-SHA512, 64 bytes.

    Raises Invalid for an invalid user name or an empty password.
    """
    check_name("user", user)
    if not password:
        raise Invalid(f"the password of {user} is empty")
    salt = secrets.token_bytes(_SALT_BYTES)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS, 64)
    return f"{user}:$7${ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}\n"


def certificate_entry(device: str, certificate: str) -> str:
    """Return the line of a device that authenticates by this certificate (PEM): ``device:$certificate$SHA-256``.

    Raises Invalid for an invalid device name.
    """
    check_name("device", device)
    return f"{device}:{CERTIFICATE}{hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).hexdigest()}\n"


def certificate_matches(entry: str, certificate: bytes) -> bool:
    """Return True if this certificate (DER) has the hash in the entry ``$certificate$SHA-256``."""
    return entry == CERTIFICATE + hashlib.sha256(certificate).hexdigest()


def password_matches(entry: str, password: str) -> bool:
    """Return True if this is the password of the entry ``$7$iterations$salt$hash``. Raises Invalid for another form."""
    try:
        _, kind, iterations, salt, digest = entry.split("$")
        if kind != "7":
            raise ValueError
        derived = hashlib.pbkdf2_hmac("sha512", password.encode(), base64.b64decode(salt), int(iterations), 64)
        return hmac.compare_digest(derived, base64.b64decode(digest))
    except ValueError:
        raise Invalid(
            f"an entry of a password file begins with {entry[:3]!r}, expected a whole entry that begins with $7$"
        ) from None


def read_passwords(path: Path) -> dict[str, str]:
    """Read a password file as user -> entry. Raises OSError."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    # Empty lines and comments are skipped, as mosquitto does.
    entries = (line.partition(":") for line in lines if line.strip() and not line.startswith("#"))
    return {user: entry for user, _, entry in entries}
