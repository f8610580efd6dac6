"""Sentences about single reports that a server keeps under device names; the page and the doctor show them."""

import json
from collections.abc import Mapping

from undertone_aggregator.base.plural import many
from undertone_aggregator.store.store import Store

_KEPT = "kept_by_name"


_AUDIT = (
    "The store holds devices' names with digests of their reports, from which the reports can be found ([store] audit)."
)


def kept_by_name(audit: bool, days: int | None) -> list[str]:
    """Return sentences about an audit, and about landed files that hold reports for ``days`` days (None: no files)."""
    sentences = [_AUDIT] if audit else []
    if days is not None:
        sentences.append(
            f"Every report is kept under its device's name in files for at least {many(days, 'day')} ([landing]): a"
            " reader of these files sees each device's perturbed reports one by one."
        )
    return sentences


def note_kept(store: Store, audit: bool, days: int | None) -> None:
    """Store the sentences of `kept_by_name`, so that readers of the store can show them.

    If an audit was turned off meanwhile, its sentence stays, because its rows remain.
    """
    sentences = kept_by_name(audit, days)
    if _AUDIT not in sentences and next(store.audit(), None) is not None:
        sentences.insert(0, _AUDIT)
    store.set_meta({_KEPT: json.dumps(sentences)})


def noted_as_kept(meta: Mapping[str, str]) -> list[str]:
    """Return the sentences that `note_kept` stored, from the entries of `Store.meta`."""
    return list(json.loads(meta.get(_KEPT) or "[]"))
