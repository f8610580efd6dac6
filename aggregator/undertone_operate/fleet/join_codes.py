"""Join codes of a server's folder, in the SQLite file `join.sqlite`: each lets one person's device join a campaign.

A code is 128 random bits. Only its SHA-256 is stored, so nobody can join with what the file holds. A code goes through
these states. Each change is one transaction, so that a crash leaves the code in one of them:

    open -> bound to the hash of the key that the redeemer chose -> a device's name is promised -> redeemed
    open or bound -> revoked

From *bound* on, no other key can redeem the code. The name that is promised to a code is given to no other device.
"""

import base64
import binascii
import contextlib
import hashlib
import hmac
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from undertone_aggregator.base.owner import give_to_owner
from undertone_shared.errors import Invalid

FILE = "join.sqlite"
OPEN, BOUND, REDEEMED, REVOKED, EXPIRED = "open", "bound", "redeemed", "revoked", "expired"
LARGEST_CODES = 100_000
_CODE_BYTES = 16
_GROUP = 4
_VERSION = 1
_WAIT_SECONDS = 30.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS codes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    hash BLOB NOT NULL UNIQUE,
    campaign TEXT NOT NULL,
    device_group TEXT NOT NULL,
    about TEXT NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    revoked INTEGER,
    key BLOB,
    device TEXT UNIQUE,
    redeemed INTEGER
);
"""
_FIELDS = "id, hash, campaign, device_group, about, created, expires, revoked, key, device, redeemed"
# Digits that people type for a letter: base32 has no 0, 1 and 8.
_MISREAD = str.maketrans("018", "OIB", "- \t\r\n")


@dataclass(frozen=True)
class JoinCode:
    """One code as it is stored. Times are Unix seconds.

    ``hash``: SHA-256 of the code. ``group``: the group of its device. ``about``: the operator's own words about the
    campaign. ``key``: SHA-256 of the key that redeemed the code. ``device``: the name of its device.
    """

    id: int
    hash: bytes
    campaign: str
    group: str
    about: str
    created: int
    expires: int
    revoked: int | None
    key: bytes | None
    device: str | None
    redeemed: int | None

    def state(self, now: float) -> str:
        """Return the state of the code at the Unix second ``now``."""
        if self.redeemed is not None:
            return REDEEMED
        if self.revoked is not None:
            return REVOKED
        # If somebody began in time to redeem a code, the redemption may be completed later.
        if self.key is not None:
            return BOUND
        return EXPIRED if now >= self.expires else OPEN

    def row(self, now: float) -> dict[str, str | int | None]:
        """Return what an operator sees of the code, without hashes."""
        fields = ("id", "campaign", "group", "created", "expires", "redeemed", "device")
        return {"state": self.state(now), **{name: getattr(self, name) for name in fields}}


def code_text(code: bytes) -> str:
    """Return a code as people read it: base32 in groups of four."""
    digits = base64.b32encode(code).decode().rstrip("=")
    return "-".join(digits[start : start + _GROUP] for start in range(0, len(digits), _GROUP))


def parse_code(text: object) -> bytes:
    """Return the code in a text, with or without hyphens, in upper or lower case. Raises Invalid."""
    # The sentence does not repeat the text, because it may be a code with one wrong digit.
    refusal = "the code is not valid, expected 26 characters, each a letter or a digit from 2 to 7, such as ABCD-EFGH-…"
    if not isinstance(text, str) or len(text) > 100:
        raise Invalid(refusal)
    digits = text.translate(_MISREAD).upper()
    try:
        code = base64.b32decode(digits + "=" * (-len(digits) % 8))
    except (binascii.Error, ValueError):
        raise Invalid(refusal) from None
    if len(code) != _CODE_BYTES or code_text(code).replace("-", "") != digits:
        raise Invalid(refusal)
    return code


class JoinCodes:
    """The codes of a server's folder. Any process may use them at any time; a missing file holds no codes."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def create(self, campaign: str, count: int, group: str, about: str, now: int, expires: int) -> list[str]:
        """Make ``count`` codes and return them as texts. Their texts exist nowhere else. Raises Invalid."""
        if not 1 <= count <= LARGEST_CODES:
            raise Invalid(f"devices is {count}, expected 1 to {LARGEST_CODES}")
        if expires <= now:
            raise Invalid(f"the codes would expire after {expires - now} seconds, expected 1 or more")
        codes = [secrets.token_bytes(_CODE_BYTES) for _ in range(count)]
        rows = [(_hash(code), campaign, group, about, now, expires) for code in codes]
        columns = "hash, campaign, device_group, about, created, expires"
        with self._changing(create=True) as database:
            database.executemany(f"INSERT INTO codes ({columns}) VALUES (?, ?, ?, ?, ?, ?)", rows)
        return [code_text(code) for code in codes]

    def codes(self) -> list[JoinCode]:
        """Return all codes, oldest first."""
        if not self.path.exists():
            return []
        with self._opened() as database:
            return [JoinCode(*row) for row in database.execute(f"SELECT {_FIELDS} FROM codes ORDER BY id")]

    def about(self, campaign: str) -> str:
        """Return the words about a campaign that its newest code holds; "" if the campaign has no code."""
        if not self.path.exists():
            return ""
        with self._opened() as database:
            words = database.execute("SELECT about FROM codes WHERE campaign = ? ORDER BY id DESC LIMIT 1", (campaign,))
            return next((about for (about,) in words), "")

    def find(self, codes: Iterable[bytes]) -> dict[bytes, JoinCode]:
        """Return a map: code -> the code as it is stored now. Unknown codes are left out."""
        if not self.path.exists():
            return {}
        query = f"SELECT {_FIELDS} FROM codes WHERE hash = ?"
        with self._opened() as database:
            rows = {code: database.execute(query, (_hash(code),)).fetchone() for code in codes}
        return {code: JoinCode(*row) for code, row in rows.items() if row is not None}

    def bind(self, redeemed: Iterable[tuple[bytes, bytes]], now: int) -> None:
        """Bind each open code to a key, for pairs of a code and a key. A code that has a key keeps it."""
        if not self.path.exists():
            return
        where = "WHERE hash = ? AND key IS NULL AND revoked IS NULL AND expires > ?"
        with self._changing() as database:
            changed = [(hash_of_key(key), _hash(code), now) for code, key in redeemed]
            database.executemany(f"UPDATE codes SET key = ? {where}", changed)

    def promise(self, names: Sequence[tuple[int, str]]) -> None:
        """Promise each code (by its id) the name of its device, unless the code was revoked.

        The caller must hold the fleet's lock.
        """
        with self._changing() as database:
            changed = [(name, each) for each, name in names]
            database.executemany("UPDATE codes SET device = ? WHERE id = ? AND revoked IS NULL", changed)

    def redeemed(self, ids: Sequence[int], now: int) -> None:
        """Note that the devices of these codes are complete."""
        with self._changing() as database:
            changed = [(now, each) for each in ids]
            database.executemany("UPDATE codes SET redeemed = ? WHERE id = ? AND redeemed IS NULL", changed)

    def revoke(self, ids: Sequence[int], now: int) -> list[int]:
        """Revoke these codes, except those whose devices have names already. Return the codes that are revoked now."""
        revoked = []
        with self._changing() as database:
            for each in ids:
                where = "WHERE id = ? AND device IS NULL AND redeemed IS NULL"
                if database.execute(f"UPDATE codes SET revoked = ? {where}", (now, each)).rowcount:
                    revoked.append(each)
        return revoked

    def promised(self) -> set[str]:
        """Return the names of all devices that joined by a code, or are about to."""
        if not self.path.exists():
            return set()
        with self._opened() as database:
            return {name for (name,) in database.execute("SELECT device FROM codes WHERE device IS NOT NULL")}

    def forget(self, device: str) -> None:
        """Delete a device's name; its code stays redeemed."""
        if self.path.exists():
            with self._changing() as database:
                database.execute("UPDATE codes SET device = NULL WHERE device = ?", (device,))

    def copy(self, to: Path) -> None:
        """Copy the file to a new file of mode 0600, in a state between two changes."""
        to.touch(mode=0o600, exist_ok=False)
        with self._opened() as database, contextlib.closing(sqlite3.connect(to)) as copied:
            database.backup(copied)

    @contextlib.contextmanager
    def _changing(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        """Yield the database within a transaction that is on the disk when the block ends."""
        with self._opened(create=create) as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")

    @contextlib.contextmanager
    def _opened(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        if create and not self.path.exists():
            self.path.touch(mode=0o600)
            give_to_owner(self.path, self.path.parent)
        try:
            # With mode=rw, SQLite does not make an empty file if there is none.
            address = f"{self.path.resolve().as_uri()}?mode=rw"
            with contextlib.closing(
                sqlite3.connect(address, uri=True, timeout=_WAIT_SECONDS, isolation_level=None)
            ) as database:
                database.execute("PRAGMA synchronous = FULL")
                database.execute("PRAGMA secure_delete = ON")
                _prepare(database, self.path)
                yield database
        except sqlite3.Error as wrong:
            raise Invalid(f"{self.path} cannot be used: {wrong}") from None


def hash_of_key(key: bytes) -> bytes:
    """Return what is stored for a redeemer's key."""
    return hashlib.sha256(key).digest()


def has_key(code: JoinCode, key: bytes) -> bool:
    """Return True if a code is bound to this key, in constant time."""
    return code.key is not None and hmac.compare_digest(code.key, hash_of_key(key))


def _hash(code: bytes) -> bytes:
    # A hash without salt or stretching is enough: a code has 128 random bits.
    return hashlib.sha256(code).digest()


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    """Make the table in a new file. Raises Invalid for a later version's file."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version == 0:
        database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
    elif version != _VERSION:
        raise Invalid(
            f"{path} has version {version}, expected {_VERSION}: use the later version of Undertone that wrote it"
        )
