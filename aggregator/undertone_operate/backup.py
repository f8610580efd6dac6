"""Restoring the backup of a store, and the facts that an operator must know about a restored store."""

import shutil
import tempfile
from pathlib import Path

from undertone_aggregator.base.owner import give_to_owner
from undertone_aggregator.campaign.binding import counted_by
from undertone_aggregator.settings.landing_plan import SPARK
from undertone_aggregator.store.store import open_store
from undertone_shared.errors import Invalid

_LOCK_SECONDS = 1.0


def restore(backup: Path, target: Path) -> list[str]:
    """Replace a store that no server uses by the backup; keep the old one beside it; return notes for the operator.

    Raises Invalid for a file that is no store or is another campaign's, or while a server runs; OSError.
    """
    with open_store(backup, read_only=True) as store:
        campaign, fingerprints = store.meta().get("campaign", ""), {e.campaign.fingerprint for e in store.epochs()}
        newest, counted = store.newest_slot(), store.outcomes()["counted"]
        counts = counted_by(store)
    sentences = [
        f"{campaign}: {len(fingerprints)} epochs, {counted} reports"
        + (f", the newest of slot {newest}" if counted else "")
    ]
    # The backup is copied to the target's disk. SQLite makes the copy, because the newest data of a backup may be in
    # its log file.
    folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=target.name + "."))
    try:
        with open_store(backup, read_only=True) as store:
            store.backup(folder / target.name)
        give_to_owner(folder / target.name, target if target.exists() else target.parent)
        sentences += _put_aside(target, campaign, fingerprints, counted) if target.exists() else _clear(target)
        (folder / target.name).replace(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sentences.append(_later_reports(counts))
    return sentences


def _later_reports(counts: str) -> str:
    """Return a sentence about where the reports are that were acknowledged after the backup was made."""
    if counts == SPARK:
        return (
            "reports that were acknowledged after the backup was made are in the landing folder, as long as its files"
            " are kept: count them into this store with undertone spark recount, and a new checkpoint"
        )
    return (
        "reports that were acknowledged after the backup was made are not in this store: the broker has forgotten them,"
        " and the devices do not send them again; their sequence numbers will show them as lost. Where [landing] kept"
        " them, undertone recount shows them"
    )


def _put_aside(target: Path, campaign: str, fingerprints: set[bytes], counted: int) -> list[str]:
    # The lock keeps any server, also one that is starting, from writing to the store that is moved away.
    with open_store(target) as store, store.serving(_LOCK_SECONDS), store.exclusive(_LOCK_SECONDS):
        held = store.meta().get("campaign", "")
        if held != campaign:
            raise Invalid(f"{target} contains the campaign {held}, expected {campaign}, which the backup contains")
        later = [epoch for epoch in store.epochs() if epoch.campaign.fingerprint not in fingerprints]
        more = store.outcomes()["counted"] - counted
        store.close()
        aside = _move(target)[0]
    sentences = [f"the store that was there is now {aside}; it had counted {more} reports more than the backup"]
    if later:
        starts = ", ".join(str(epoch.campaign.epoch) for epoch in later)
        sentences.append(
            f"that store has issued {len(later)} epochs that the backup does not contain ({starts}): the server"
            " refuses the reports of devices that follow them (other_campaign), and these devices refuse earlier"
            " epochs, until the server issues a later one (--take-over)"
        )
    return sentences


def _clear(target: Path) -> list[str]:
    """Move aside the log of a missing store, which SQLite would otherwise replay into the restored one."""
    left = _move(target)
    return [f"the store was missing; the files that it left are now {' and '.join(map(str, left))}"] if left else []


def _move(target: Path) -> list[Path]:
    """Move the store's file aside together with its log, which exists after a crash or while a reader has it open."""
    parts = {
        Path(f"{target}{end}"): target.with_name(f"{target.name}.before-restore{end}")
        for end in ("", "-wal", "-shm")
        if Path(f"{target}{end}").exists()
    }
    for aside in parts.values():
        if aside.exists():
            raise Invalid(f"{aside} exists already: an earlier restore made it; move it elsewhere first")
    for part, aside in parts.items():
        part.rename(aside)
    return list(parts.values())
