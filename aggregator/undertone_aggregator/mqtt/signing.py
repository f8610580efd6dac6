"""The server's signing key: Ed25519, made by provisioning, readable by its owner alone, never sent anywhere.

Who loses it makes a new one and gives its public half to the devices' policies (docs/keys.md).
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from undertone_aggregator.store.files import write_private
from undertone_shared.errors import Invalid


@dataclass(frozen=True)
class Signer:
    """``sign``: 64 bytes of signature for a campaign's digest. ``public``: the key for policies, 32 bytes in hex."""

    sign: Callable[[bytes], bytes]
    public: str


def make_key(path: Path) -> Signer:
    """Write a new key (PKCS 8, PEM, mode 0600). Raises Invalid if the file is there already, OSError."""
    if path.exists():
        raise Invalid(f"{path} exists already: a signing key is never replaced")
    private = Ed25519PrivateKey.generate()
    write_private(path, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
    return _signer(private)


def read_key(path: Path) -> Signer:
    """The key in the file. Raises Invalid for a file that is none or that others may read, OSError."""
    # What systemd loads for one service is that service's alone, whatever its mode.
    loaded = str(path.parent) == os.environ.get("CREDENTIALS_DIRECTORY")
    if not loaded and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise Invalid(f"{path} may be read by others, expected mode 0600")
    try:
        private = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError):
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise Invalid(f"{path} is not an Ed25519 key in PEM")
    return _signer(private)


def ensure_key(path: Path) -> Signer:
    """The key in the file, a new one if there is none."""
    return read_key(path) if path.exists() else make_key(path)


def _signer(private: Ed25519PrivateKey) -> Signer:
    return Signer(private.sign, private.public_key().public_bytes_raw().hex())
