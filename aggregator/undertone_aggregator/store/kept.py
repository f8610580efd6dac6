"""What a server keeps of single reports under their devices' names, where it does: said by the page and the doctor."""

import json
from collections.abc import Mapping

from undertone_aggregator.store.store import Store

_KEPT = "kept_by_name"


_AUDIT = (
    "The store keeps a row for each report with its device's name and a digest, from which the report can be found"
    " ([store] audit)."
)


def kept_by_name(audit: bool, days: int | None) -> list[str]:
    """Say what is kept beside the counts: an audit, and files of reports for ``days`` days (None: no files)."""
    said = [_AUDIT] if audit else []
    if days is not None:
        said.append(
            f"Every report is kept under its device's name in files for {days} days ([landing]): whoever"
            " reads them sees each device's perturbed reports one by one."
        )
    return said


def note_kept(store: Store, audit: bool, days: int | None) -> None:
    """Keep the sentences for readers of the store; an audit that was turned off is still there."""
    said = kept_by_name(audit, days)
    if _AUDIT not in said and next(store.audit(), None) is not None:
        said.insert(0, _AUDIT)
    store.set_meta({_KEPT: json.dumps(said)})


def noted_as_kept(meta: Mapping[str, str]) -> list[str]:
    """What a store's facts say of it."""
    return list(json.loads(meta.get(_KEPT) or "[]"))
