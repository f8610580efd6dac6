"""What a server keeps of single reports under their devices' names, where it does: said by the page and the doctor."""

import json
from collections.abc import Mapping

from undertone_aggregator.collect.store import Store
from undertone_aggregator.config import Config

_KEPT = "kept_by_name"
_AUDIT = (
    "The store keeps a row for each report with its device's name and a digest, from which the report can be found"
    " ([store] audit)."
)


def kept_by_name(config: Config) -> list[str]:
    """Sentences about what a configuration keeps beside the counts; none where the store has no reports."""
    said = [_AUDIT] if config.store.audit else []
    if config.landing.folder is not None:
        said.append(
            f"Every report is kept under its device's name in files for {config.landing.days} days ([landing]): whoever"
            " reads them sees each device's perturbed reports one by one."
        )
    return said


def note_kept(store: Store, config: Config) -> None:
    """Keep the sentences for readers of the store; an audit that was turned off is still there."""
    said = kept_by_name(config)
    if _AUDIT not in said and next(store.audit(), None) is not None:
        said.insert(0, _AUDIT)
    store.set_meta({_KEPT: json.dumps(said)})


def noted_as_kept(meta: Mapping[str, str]) -> list[str]:
    """What a store's facts say of it."""
    return list(json.loads(meta.get(_KEPT) or "[]"))
