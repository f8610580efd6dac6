"""Backups of a store, made while its server runs, and what a restored one cannot know."""

import os
import shutil
import tempfile
from pathlib import Path

from undertone_aggregator.collect.store import open_store
from undertone_shared.errors import Invalid

_LOCK_SECONDS = 1.0


def restore(backup: Path, target: Path) -> list[str]:
    """Put the backup in the place of a store that no server uses, which is kept beside it; what is to be known.

    Raises Invalid for a file that is no store, another campaign's, or while a server runs; OSError.
    """
    with open_store(backup, read_only=True) as store:
        campaign, fingerprints = store.meta().get("campaign", ""), {e.campaign.fingerprint for e in store.epochs()}
        newest, counted = store.newest_slot(), store.outcomes()["counted"]
    said = [f"{campaign}: {len(fingerprints)} epochs, {counted} reports, the newest of slot {newest}"]
    if target.exists():
        said += _put_aside(target, campaign, fingerprints, counted)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name + ".")
    os.close(handle)
    try:
        shutil.copyfile(backup, temporary)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    said.append(
        "reports that were acknowledged after the backup was made are in no store any more: the broker has forgotten"
        " them, and the devices do not send them again; their sequence numbers will show them as lost"
    )
    return said


def _put_aside(target: Path, campaign: str, fingerprints: set[bytes], counted: int) -> list[str]:
    aside = target.with_name(target.name + ".before-restore")
    if aside.exists():
        raise Invalid(f"{aside} exists already: an earlier restore kept it there; move it away")
    # Held alone, so that no server writes to what is moved away, nor one that is about to.
    with open_store(target) as store, store.serving(_LOCK_SECONDS), store.exclusive(_LOCK_SECONDS):
        held = store.meta().get("campaign", "")
        if held != campaign:
            raise Invalid(f"{target} holds the campaign {held}, the backup {campaign}")
        later = [epoch for epoch in store.epochs() if epoch.campaign.fingerprint not in fingerprints]
        more = store.outcomes()["counted"] - counted
        store.close()
        # With the log, where a reader keeps it open.
        for end in ("", "-wal", "-shm"):
            if Path(f"{target}{end}").exists():
                Path(f"{target}{end}").rename(f"{aside}{end}")
    said = [f"what was there is now {aside}: it has counted {more} reports more"]
    if later:
        starts = ", ".join(str(epoch.campaign.epoch) for epoch in later)
        said.append(
            f"it has issued {len(later)} epochs that the backup does not know ({starts}): devices that follow them are"
            " refused as other_campaign, and refuse what starts earlier, until a later epoch is issued (--take-over)"
        )
    return said
