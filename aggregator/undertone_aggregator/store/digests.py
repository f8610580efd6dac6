"""Digests of reports in a store: they are masked with a key that is in a file of its own.

The state `SEEN` holds 21 bits of each of a device's three newest reports (`counts.seen`). A report has few possible
values, so whoever had the store could try all of them, and find the reports. The store therefore combines the digests
of a segment, by exclusive or, with SHAKE-256 of the key and 16 random bytes of the segment. Without the key the result
looks like random bits. If the key was lost, or the store was restored, a segment may be masked with another key. Its
digests are then unknown, and a repeated report is `duplicate_unverified`. What is counted never depends on digests.

A masked segment consists of the first 8 bytes of the SHA-256 of the key (zeros without a key), 16 random bytes, and the
segment's data.
"""

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.base.owner import give_to_owner
from undertone_aggregator.counts.seen import UNKNOWN, digest_bytes
from undertone_shared.errors import Invalid

KEY_BYTES = 32
_NAME_BYTES = 8
_RANDOM_BYTES = 16
_HEAD_BYTES = _NAME_BYTES + _RANDOM_BYTES


class DigestMask:
    """Masks the digests of segments with a key. Without a key, the digests are left out."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key
        self._name = bytes(_NAME_BYTES) if key is None else hashlib.sha256(key).digest()[:_NAME_BYTES]

    def hide(self, is_snapshot: bool, data: bytes) -> bytes:
        """Return a segment as the store keeps it."""
        random, masked = os.urandom(_RANDOM_BYTES), bytearray(data)
        self._combine(digest_bytes(is_snapshot, masked), random)
        return self._name + random + masked

    def show(self, is_snapshot: bool, stored: bytes) -> bytes:
        """Return the segment that ``stored`` masks, with digests `UNKNOWN` if another key masked it. Raises Invalid."""
        if len(stored) < _HEAD_BYTES:
            raise Invalid(f"a deduplication segment has {len(stored)} bytes, expected at least {_HEAD_BYTES}")
        name, random, data = stored[:_NAME_BYTES], stored[_NAME_BYTES:_HEAD_BYTES], bytearray(stored[_HEAD_BYTES:])
        digests = digest_bytes(is_snapshot, data)
        if name == self._name:
            self._combine(digests, random)
        else:
            digests[...] = UNKNOWN
        return bytes(data)

    def _combine(self, digests: NDArray[np.uint8], random: bytes) -> None:
        if self._key is None:
            digests[...] = UNKNOWN
        else:
            stream = hashlib.shake_256(self._key + random).digest(digests.size)
            digests ^= np.frombuffer(stream, dtype=np.uint8).reshape(digests.shape)


def mask_beside(store: Path, *, create: bool) -> DigestMask:
    """Return the mask of a store's file, with the key in the file beside it; without that file, a mask without a key.

    ``create``: make a key if there is none.
    Raises Invalid for a file that holds no key, OSError for one that cannot be read or written.
    """
    path = key_beside(store)
    if create and not path.exists():
        _make(path)
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return DigestMask()
    if len(key) != KEY_BYTES:
        raise Invalid(f"{path} has {len(key)} bytes, expected the {KEY_BYTES} of a key: delete it for a new one")
    return DigestMask(key)


def key_beside(store: Path) -> Path:
    """Return the path of the key of a store's file."""
    return store.with_name(f"{store.name}.key")


def _make(path: Path) -> None:
    """Write a new key of mode 0600, unless another process has done so meanwhile."""
    whole = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(os.urandom(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        give_to_owner(whole, path.parent)
        # A hard link, unlike a rename, never replaces a file that exists already.
        with contextlib.suppress(FileExistsError):
            os.link(whole, path)
    finally:
        whole.unlink(missing_ok=True)
