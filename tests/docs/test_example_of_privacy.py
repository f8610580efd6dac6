"""The worked examples (choosing ε, the size of an experiment) have the numbers that `undertone plan` predicts."""

import math
from functools import cache
from statistics import NormalDist

import pytest

import undertone
from support.micropython import REPO
from undertone_device.core.units import UNIT
from undertone_device.host.consent import percent

pytestmark = pytest.mark.services


@cache
def _example() -> str:
    page = (REPO / "docs/privacy.md").read_text(encoding="utf-8")
    text = page[page.index("**A worked example.**") : page.index("## What leaves a household")]
    return " ".join(text.split())


def _percent(share: float) -> int:
    return round(100 * share)


def test_the_errors_of_a_slot_and_of_a_day():
    planned = undertone.plan(devices=3000, epsilon=1, campaigns=1)
    errors = {span.name: _percent(span.error / planned.mean) for span in planned.spans}
    slot, day = errors["a slot"], errors["a day"]
    assert f"they are {slot} % for the mean of a half-hour, and {day} % for the mean of a day" in _example()


@cache
def turns(devices: int):
    """The ways of a plan. One plan is made for each number of devices, because a plan simulates campaigns."""
    return undertone.plan(devices=devices, epsilon=1, window="24h", workers=2).ways


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "way", "pattern"),
    [
        (3000, "turns of 30 min", "the error would be {raw} % ({filtered} % after smoothing over time)"),
        (3000, "turns of 2 h", "With slots of two hours, the error would be {raw} % ({filtered} % after smoothing)"),
        (3000, "turns of 24 h", "with slots of a whole day {raw} % ({filtered} % after smoothing)"),
        (
            10000,
            "turns of 30 min",
            "with 10,000 homes the same command predicts an error of {raw} % ({filtered} % after smoothing)",
        ),
    ],
)
def test_the_errors_of_turns(devices: int, way: str, pattern: str):
    [row] = [each for each in turns(devices) if each.name == way]
    assert pattern.format(raw=_percent(row.raw), filtered=_percent(row.filtered)) in _example()


def test_the_power_of_an_experiment():
    page = " ".join((REPO / "docs/statistician.md").read_text(encoding="utf-8").split())
    arm = undertone.plan(devices=2500, epsilon=1, campaigns=1)
    found = {span.name: _percent(2.8 * 2**0.5 * span.standard_error / arm.mean) for span in arm.spans}
    assert (
        "For 2,500 homes in each arm the smallest difference that is found is"
        f" {found['a slot']} % of the mean for a slot, and {found['a day']} % for a day" in page
    )
    assert f"which is {60 * (2 / 2500) ** 0.5:.1f} % here" in page
    normal = NormalDist()
    assert f"The difference must be {normal.inv_cdf(0.975) + normal.inv_cdf(0.8):.1f} times its standard error" in page


@pytest.mark.parametrize(
    ("reports", "pattern"),
    [
        (10, "ε is {0:.3g} for a slot, {1:.2g} for a day of half-hours and {2:,.0f} for a year"),
        (1000, "With `--reports 1000` it is {0:.3g}, {1:.3g} and {2:.3g}."),
    ],
)
def test_what_published_means_tell_of_one_household(reports: int, pattern: str):
    page = " ".join((REPO / "docs/privacy.md").read_text(encoding="utf-8").split())
    spans = undertone.certify_published(epsilon=1, reports=reports)
    assert {each.delta for each in spans.values()} == {1e-6}
    found = [float(f"{spans[name].epsilon:.3g}") for name in ("a slot", "a day", "a year")]
    assert pattern.format(*found) in page


def test_guesses_are_rounded_up_as_the_devices_do():
    """A phone that joins a campaign at ε = 1 says 74 %, and so do the pages."""
    page = (REPO / "docs/privacy.md").read_text(encoding="utf-8")
    shown = [f"{percent(round(epsilon * UNIT))} %" for epsilon in (0.5, 1, 2, 4)]
    assert f"| 50 % | {' | '.join(shown)} |" in page
    odds = [math.exp(epsilon) / 9 for epsilon in (0.5, 1, 2, 4)]
    assert f"| 10 % | {' | '.join(f'{math.ceil(100 * each / (1 + each))} %' for each in odds)} |" in page
    likely = percent(UNIT)
    assert likely is not None
    for name in ("privacy.md", "concepts.md"):
        assert f"at most {likely} to {100 - likely}" in " ".join((REPO / "docs" / name).read_text("utf-8").split())
