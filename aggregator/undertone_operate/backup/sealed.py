"""Files encrypted with a passphrase: AES-256-GCM in parts, with a key that scrypt derives.

The file consists of ``UTSF1``, 16 bytes of salt, 7 bytes of nonce, and the parts of 1 MiB (the last may be shorter),
each with its tag of 16 bytes. A part's nonce is the file's nonce, the part's number (4 bytes), and a byte that is 1 in
the last part, else 0. So parts that are missing, swapped or cut off at the end are noticed (the STREAM construction:
Hoang, Reyhanitabar, Rogaway and Vizár, CRYPTO 2015).
"""

import os
from pathlib import Path
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from undertone_shared.errors import Invalid

_MAGIC = b"UTSF1"
_SALT_BYTES, _NONCE_BYTES, _TAG_BYTES = 16, 7, 16
_PART = 1 << 20
# Scrypt's cost: 32 MiB of memory for each passphrase that somebody tries.
_COST = 1 << 15
LEAST_PASSPHRASE = 12


def is_sealed(file: Path) -> bool:
    """Return True if a file begins as `seal` writes it. Raises OSError."""
    with file.open("rb") as opened:
        return opened.read(len(_MAGIC)) == _MAGIC


def seal(source: BinaryIO, out: BinaryIO, passphrase: str) -> None:
    """Read ``source`` to its end, and write it to ``out``, encrypted. Raises OSError."""
    salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
    cipher = _cipher(passphrase, salt)
    out.write(_MAGIC + salt + nonce)
    number, part = 0, source.read(_PART)
    while True:
        following = source.read(_PART)
        out.write(cipher.encrypt(_nonce(nonce, number, last=not following), part, None))
        if not following:
            return
        number, part = number + 1, following


def unseal(source: BinaryIO, out: BinaryIO, passphrase: str) -> None:
    """Write the content of a sealed ``source`` to ``out``.

    Raises Invalid for another passphrase, and for a file that was changed or cut off; then ``out`` is incomplete.
    Raises OSError.
    """
    head = source.read(len(_MAGIC) + _SALT_BYTES + _NONCE_BYTES)
    salt, nonce = head[len(_MAGIC) : -_NONCE_BYTES], head[-_NONCE_BYTES:]
    if not head.startswith(_MAGIC):
        raise Invalid("the file is not encrypted, expected one that undertone backup wrote with a passphrase")
    if len(salt) != _SALT_BYTES:
        raise Invalid("the backup was truncated: its beginning is incomplete")
    cipher = _cipher(passphrase, salt)
    number, part = 0, source.read(_PART + _TAG_BYTES)
    while True:
        following = source.read(_PART + _TAG_BYTES)
        try:
            out.write(cipher.decrypt(_nonce(nonce, number, last=not following), part, None))
        except InvalidTag:
            raise Invalid("the passphrase is wrong, or the backup was changed or truncated") from None
        if not following:
            return
        number, part = number + 1, following


def _cipher(passphrase: str, salt: bytes) -> AESGCM:
    return AESGCM(Scrypt(salt=salt, length=32, n=_COST, r=8, p=1).derive(passphrase.encode()))


def _nonce(nonce: bytes, number: int, *, last: bool) -> bytes:
    return nonce + number.to_bytes(4, "big") + bytes([last])
