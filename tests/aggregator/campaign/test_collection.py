"""The table of the ways to collect reports, which refuses an unknown kind of rule, and the guarantees of epochs."""

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import cast

import pytest

from support.server import two_epochs
from undertone_aggregator.campaign.collection import COLLECTIONS, cells_of, collection_of, guarantee_of
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.design.budget import Budget
from undertone_aggregator.mqtt.dropped import Dropped
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid
from undertone_shared.schedule import Schedule


@pytest.mark.parametrize("ask", [collection_of, cells_of])
def test_an_unknown_kind_is_refused(ask: object) -> None:
    with pytest.raises(Invalid, match="the rule's kind is 'sketch', expected one of scalar, stream"):
        ask("sketch")  # type: ignore[operator]


def test_what_is_said_costs_what_was_issued_not_what_is_configured() -> None:
    issued = [replace(epoch, budget=Budget.parse(epsilon)) for epoch, epsilon in zip(two_epochs(), (2, 1), strict=True)]
    cost = guarantee_of(Timeline(issued), Budget.parse(8))
    assert (cost.level, cost.budget.epsilon, "ε = 2 per reading" in cost.sentence) == ("event", 2, True)
    assert cost.certificate == max(
        Fraction(*mechanism.certificate()) for epoch in issued for _, mechanism in epoch.campaign.rule.mechanisms
    )


@pytest.mark.parametrize(
    ("measure", "slot", "stride", "window", "month"),
    [
        ("sum", 1800, 49, "24 hours", 30),
        ("sum", 900, 5, "1 hour", 577),
        ("sum", 60, 1441, "24 hours", 30),
        # A counter's value begins with a reading of the slot before, so its interval has two slots.
        ("counter", 1800, 50, "24 hours", 29),
        ("counter", 900, 6, "1 hour", 481),
    ],
)
def test_in_turns_the_guarantee_is_of_a_window_and_of_a_month(
    measure: str, slot: int, stride: int, window: str, month: int
) -> None:
    campaign = SimpleNamespace(
        rule=two_epochs()[0].campaign.rule,
        measure=measure,
        slot_seconds=slot,
        cycle=48,
        first_slot=0,
        last_slot=1_000_000,
        schedule=Schedule(bytes(16), stride, 0),
    )
    cost = COLLECTIONS["scalar"].guarantee(cast("Campaign", campaign), Budget.parse(1))
    assert (cost.level, cost.span, cost.budget.epsilon) == ("window", f"any {window}", 1)
    assert cost.sentence.startswith(f"ε = 1 for any {window}, because a device rests for {window} between")
    assert cost.sentence.endswith(f"; a habit repeated over 30 days costs at most ε = {month}")


@pytest.mark.parametrize("strides", [(49, 1), (1, 49)])
@pytest.mark.parametrize("epsilons", [(2, 1), (1, 2), (2, 2)])
def test_a_plan_that_had_no_turns_for_an_epoch_says_no_window(
    strides: tuple[int, int], epsilons: tuple[int, int]
) -> None:
    rule = two_epochs()[0].campaign.rule
    epochs = [
        SimpleNamespace(
            campaign=SimpleNamespace(
                rule=rule,
                measure="sum",
                slot_seconds=1800,
                cycle=48,
                first_slot=0,
                last_slot=1_000_000,
                schedule=Schedule(bytes(16), stride, 0),
            ),
            budget=Budget.parse(epsilon),
        )
        for stride, epsilon in zip(strides, epsilons, strict=True)
    ]
    cost = guarantee_of(cast("Timeline", SimpleNamespace(epochs=epochs)), Budget.parse(8))
    assert (cost.level, cost.budget.epsilon, "ε = 2 per reading" in cost.sentence) == ("event", 2, True)


def test_epochs_that_are_only_planned_have_the_budget_of_the_plan() -> None:
    assert guarantee_of(Timeline(two_epochs()), Budget.parse(4)).budget.epsilon == 4
    assert set(COLLECTIONS) == {"scalar", "stream"}


def test_what_the_broker_dropped_adds_up_over_its_restarts() -> None:
    dropped = Dropped()
    assert [dropped.more(count) for count in (None, 3, 3, 10, None, 4, 4)] == [0, 3, 0, 7, 0, 4, 0]
    assert Dropped.from_json(dropped.to_json()) == Dropped(4, 14)
