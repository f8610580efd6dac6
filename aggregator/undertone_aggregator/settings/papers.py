"""The papers' way of collecting reports, as one option of a campaign's plan: `as_papers`.

ToPL (CCS 2021, section 5): the readings of one stretch of time are reported by the Square Wave with bins of equal
width. Expectation maximisation without smoothing and the white box (see `threshold.choose`) estimate their
distribution. Eq. 8 gives θ for random ranges, and θ is broadcast once. All later readings are truncated on the device
and reported by the Hybrid mechanism. Nothing is added to the means, and they are not smoothed.
`undertone_aggregator.threshold.choose` and `undertone_aggregator.campaign.rounds` do what these options say.
"""

import json
from typing import Any, Protocol

from undertone_shared.errors import Invalid

# The options that `as_papers` sets -> their values. A plan with `as_papers` cannot give them other values.
SET = {
    "collect": "reports",
    "method": "sw-w",
    "bins": "linear",
    "mechanism": "hybrid",
    "cohort_share": 0.0,
    "blocks": 1,
    "filter": False,
}
# Slots of a cycle if the plan does not say.
_CYCLE = 48


class _Plan(Protocol):
    """The options of a campaign's plan that this module reads by name. It reads the options in `SET` as well."""

    @property
    def as_papers(self) -> bool: ...
    @property
    def rounds(self) -> tuple[int, ...]: ...
    @property
    def query(self) -> str: ...


def papers_values(cycle: object) -> dict[str, Any]:
    """Return the options that `as_papers` sets. One round lasts a cycle, and the query's ranges have up to a cycle of
    slots.
    """
    slots = _CYCLE if cycle is None else cycle
    return {**SET, "rounds": [slots], "query": f"ranges:{slots}"}


def check_papers(plan: _Plan) -> None:
    """Raise Invalid if an option of a plan with `as_papers` contradicts the papers."""
    for name, value in SET.items():
        if (given := getattr(plan, name)) != value:
            # A plan is TOML, which writes true and false.
            given, expected = (json.dumps(each) if isinstance(each, bool) else repr(each) for each in (given, value))
            raise Invalid(f"campaign.{name} is {given}, expected {expected}: campaign.as_papers sets it")
    if len(plan.rounds) != 1:
        raise Invalid(f"campaign.rounds is {list(plan.rounds)}, expected one round, because campaign.as_papers is set")
    if plan.query == "shown":
        raise Invalid("campaign.query is 'shown', expected ranges:R or fleet, because campaign.as_papers is set")


def papers_sentence(plan: _Plan) -> str:
    """Return what `as_papers` has set, as one line of options; empty for a plan without it."""
    if not plan.as_papers:
        return ""
    values = {**SET, "rounds": list(plan.rounds), "query": plan.query}
    words = (f"{name} = {str(value).lower() if isinstance(value, bool) else value}" for name, value in values.items())
    return "as the papers: " + ", ".join(words)
