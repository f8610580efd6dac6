"""Notices that a database was restored, by the newest settled slot, which is also in a file in the server's folder.

`undertone restore` knows that a store in the folder was restored, and has it publish no slot that the lost server may
have published (`estimate.publication.withhold`). Nobody tells a server that its PostgreSQL database was restored. The
server notices it by itself: the restored database has settled fewer slots than the server has noted in its folder,
which is not part of a backup of the database.
"""

from pathlib import Path

from undertone_aggregator.base.files import write_private
from undertone_aggregator.estimate.publication import publication_of, withhold
from undertone_aggregator.store.store import Store


class SettledMark:
    """The newest slot of a campaign that this server has settled, kept in a file. ``settled`` is -1 without a file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.settled"
        try:
            self.settled = int(self.path.read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            self.settled = -1

    def note(self, slot: int) -> None:
        """Write down that all slots up to ``slot`` have settled, before their numbers are published. Raises OSError."""
        if slot > self.settled:
            write_private(self.path, f"{slot}\n")
            self.settled = slot

    def withhold(self, store: Store, due: int, least: int) -> tuple[int, int] | None:
        """If the store has settled fewer slots than the mark, have it publish no slot up to the mark or ``due``.

        Return (first, last) of the withheld slots, or None if the store has settled at least as many slots as the mark.
        Raises StoreError.
        """
        if publication_of(store, least).settled >= self.settled:
            return None
        return withhold(store, max(due, self.settled), least)
