"""The server's Ed25519 signing key, in a file that only its owner may read.

After a loss, the operator makes a new key and puts its public half into the devices' policies (docs/operator.md).
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from undertone_aggregator.base.files import check_private, write_private
from undertone_shared.errors import Invalid


@dataclass(frozen=True)
class Signer:
    """A signing key. ``sign``: returns the 64-byte signature of its argument, such as a campaign's digest.

    ``public``: public key, 32 bytes in hex.
    """

    sign: Callable[[bytes], bytes]
    public: str


def make_key(path: Path) -> Signer:
    """Write a new key (PKCS 8, PEM, mode 0600). Raises Invalid if the file exists, OSError if it cannot be written."""
    if path.exists():
        raise Invalid(f"{path} exists already: a signing key is never replaced")
    private = Ed25519PrivateKey.generate()
    write_private(path, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
    return _signer(private)


def read_key(path: Path) -> Signer:
    """Read the key from a file. Raises OSError, and Invalid if the file holds no Ed25519 key or others may read it."""
    # A credential that systemd loads for a service is readable by that service only, whatever its mode.
    loaded = str(path.parent) == os.environ.get("CREDENTIALS_DIRECTORY")
    if not loaded:
        check_private(path)
    try:
        private = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError):
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise Invalid(f"{path} is not an Ed25519 key in PEM without a password")
    return _signer(private)


def ensure_key(path: Path) -> Signer:
    """Return the key in the file. If there is no file, make a new key."""
    return read_key(path) if path.exists() else make_key(path)


def _signer(private: Ed25519PrivateKey) -> Signer:
    return Signer(private.sign, private.public_key().public_bytes_raw().hex())
