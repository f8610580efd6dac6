"""Statements about single reports that a server stores under their devices' names.

The page and the doctor show them.
"""

import json
from collections.abc import Mapping

from undertone_aggregator.store.store import Store

_KEPT = "kept_by_name"


_AUDIT = (
    "The store keeps a row for each report with its device's name and a digest, from which the report can be found"
    " ([store] audit)."
)


def kept_by_name(audit: bool, days: int | None) -> list[str]:
    """Return sentences about data besides the counts: an audit, and files of reports for ``days`` days (None: no
    files).
    """
    said = [_AUDIT] if audit else []
    if days is not None:
        said.append(
            f"Every report is kept under its device's name in files for {days} days ([landing]): whoever"
            " reads them sees each device's perturbed reports one by one."
        )
    return said


def note_kept(store: Store, audit: bool, days: int | None) -> None:
    """Save the sentences for readers of the store; an audit that was turned off later is still stored."""
    said = kept_by_name(audit, days)
    if _AUDIT not in said and next(store.audit(), None) is not None:
        said.insert(0, _AUDIT)
    store.set_meta({_KEPT: json.dumps(said)})


def noted_as_kept(meta: Mapping[str, str]) -> list[str]:
    """Return the saved sentences from a store's facts."""
    return list(json.loads(meta.get(_KEPT) or "[]"))
