"""Addresses of stores, and the table of the kinds of store. A new kind is a line in `KINDS`."""

from dataclasses import dataclass
from pathlib import Path

from undertone_shared.errors import Invalid


@dataclass(frozen=True)
class StoreKind:
    """A kind of store.

    ``module``, ``opener``: name a class or function that opens a store. It is called with (where, campaign=,
    read_only=, create=, choose=), see `undertone_aggregator.store.store.open_store`. ``shared``: True if any machine
    can open the store; it may hold several campaigns. False for a file of one campaign on the machine that counts.
    ``example``: an address, for error sentences.
    """

    module: str
    opener: str
    shared: bool
    example: str


KINDS = {
    "sqlite": StoreKind("undertone_aggregator.store.sqlite_store", "SqliteStore", False, "FILE"),
    "postgresql": StoreKind(
        "undertone_aggregator.store.postgres_store", "PostgresStore", True, "postgresql://user@host/database"
    ),
}
_FILE = "sqlite"


@dataclass(frozen=True)
class StoreAddress:
    """``scheme:where``; the scheme is one of `KINDS`."""

    scheme: str
    where: str

    @property
    def kind(self) -> StoreKind:
        """The kind of store that the scheme names."""
        return KINDS[self.scheme]

    @property
    def shared(self) -> bool:
        """True if any machine can open the store, see `StoreKind`."""
        return self.kind.shared

    @property
    def file(self) -> Path | None:
        """The store's file; None for a database."""
        return None if self.shared else Path(self.where)

    def within(self, folder: Path) -> "StoreAddress":
        """Return the same address. The path of a relative file then starts from ``folder``."""
        return self if self.file is None else StoreAddress(self.scheme, str(folder / self.file))

    def __str__(self) -> str:
        return f"{self.scheme}:{self.where}"


def store_address(url: str | Path) -> StoreAddress:
    """Parse ``scheme:where``. A path, and text without a scheme, means a SQLite file. Raises Invalid."""
    scheme, colon, where = str(url).partition(":")
    if isinstance(url, Path) or not colon or "/" in scheme:
        return StoreAddress(_FILE, str(url))
    if scheme not in KINDS:
        raise Invalid(f"the store's scheme is {scheme!r}, expected {', '.join(KINDS)}")
    return StoreAddress(scheme, where)


def shared_examples() -> str:
    """Return examples of shared stores' addresses, for error sentences."""
    return " or ".join(kind.example for kind in KINDS.values() if kind.shared)
