"""`as_papers`: one option makes a plan follow the papers, and options that contradict it are refused."""

from typing import Any

import pytest

from support.refusal import refused
from undertone_aggregator.settings.config import CampaignPlan
from undertone_aggregator.settings.options import parse
from undertone_aggregator.settings.papers import papers_sentence

PLAN: dict[str, Any] = {"name": "a", "sensor": "load", "unit": "Wh", "bound": 10_000, "epsilon": "1"}


def papers(**options: Any) -> CampaignPlan:
    return parse(CampaignPlan, "campaign", {**PLAN, "as_papers": True, **options})


def test_one_option_sets_them_all_and_they_are_shown() -> None:
    plan = papers()
    assert (plan.method, plan.query, plan.bins, plan.rounds) == ("sw-w", "ranges:48", "linear", (48,))
    assert (plan.mechanism, plan.cohort_share, plan.blocks, plan.filter) == ("hybrid", 0, 1, False)
    assert papers_sentence(plan) == (
        "as the papers: collect = reports, method = sw-w, bins = linear, mechanism = hybrid, cohort_share = 0.0,"
        " blocks = 1, filter = false, rounds = [48], query = ranges:48"
    )


def test_a_plan_without_it_has_the_defaults_of_this_project() -> None:
    plan = parse(CampaignPlan, "campaign", PLAN)
    assert (plan.as_papers, plan.method, plan.query, plan.bins, plan.filter) == (
        False,
        "robust",
        "shown",
        "logarithmic",
        True,
    )
    assert papers_sentence(plan) == ""


def test_the_round_is_a_cycle_and_the_ranges_are_within_one() -> None:
    assert (papers(cycle=24).rounds, papers(cycle=24).query) == ((24,), "ranges:24")


def test_what_the_papers_leave_open_can_be_chosen() -> None:
    assert papers(rounds=[96]).rounds == (96,)
    assert papers(query="ranges:1048576").query == "ranges:1048576"
    assert papers(query="fleet").query == "fleet"
    assert papers(method="sw-w").method == "sw-w"


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"method": "robust"}, ("campaign.method", "'robust'", "'sw-w'", "as_papers")),
        ({"mechanism": "optimal"}, ("campaign.mechanism", "'optimal'", "'hybrid'", "as_papers")),
        ({"bins": "logarithmic"}, ("campaign.bins", "'logarithmic'", "'linear'", "as_papers")),
        ({"cohort_share": 0.05}, ("campaign.cohort_share", 0.05, "as_papers")),
        ({"blocks": 8}, ("campaign.blocks", 8, "as_papers")),
        ({"filter": True}, ("campaign.filter is true, expected false", "as_papers")),
        ({"collect": "stream"}, ("campaign.collect", "'stream'", "as_papers")),
        ({"rounds": [48, 48]}, ("campaign.rounds", "[48, 48]", "one round")),
        ({"query": "shown"}, ("campaign.query", "'shown'", "ranges:R", "fleet")),
        ({"query": "ranges:0"}, ("campaign.query", "'ranges:0'")),
        ({"query": "range:5"}, ("campaign.query", "'range:5'")),
    ],
)
def test_an_option_that_contradicts_it_is_refused(options: dict[str, Any], facts: tuple[object, ...]) -> None:
    with refused(*facts):
        papers(**options)
