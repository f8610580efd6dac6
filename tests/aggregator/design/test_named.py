"""Certificates and campaigns take the names of one table of mechanisms. A name that is not in it is refused."""

import numpy as np
import pytest

from support.refusal import refused
from support.three_outputs import KIND, ThreeOutputs, traits
from undertone_aggregator.design import best_fraction, mechanisms, named
from undertone_aggregator.design.certificate import certify_named
from undertone_aggregator.design.named import NAMES, Certified, Fixed, Named, certified_names, reporting_names
from undertone_aggregator.settings.config import CampaignPlan
from undertone_aggregator.threshold import Threshold
from undertone_aggregator.threshold.joint import Undesigned, choose_jointly
from undertone_shared import notation
from undertone_shared.errors import Invalid


def three_outputs(epsilon, _):
    return ThreeOutputs(*best_fraction(epsilon), 1, 3)


@pytest.fixture
def contributed(monkeypatch):
    """Adds a mechanism to the three tables that docs/mechanisms.md names."""
    monkeypatch.setitem(mechanisms.TABLE, ThreeOutputs, traits)
    monkeypatch.setitem(notation.KINDS, "three-outputs", KIND)
    monkeypatch.setitem(NAMES, "three-outputs", Named(Certified(three_outputs), Fixed(three_outputs)))


def test_a_name_in_the_table_is_certified_as_itself(contributed):
    made = certify_named("three-outputs", "2")
    assert type(made.mechanism) is ThreeOutputs
    assert (made.ratio.numerator, made.ratio.denominator) == best_fraction("2")


def test_a_name_in_the_table_reports_as_itself(contributed):
    edges = tuple(range(0, 102, 2))
    density = np.full(50, 0.02)
    design = choose_jointly(
        "three-outputs", "2", 256, lambda _: Threshold(60, 60, 60, 0.0, 0.0, 1.0, density, edges, "ems")
    )
    assert type(design.mechanism) is ThreeOutputs


@pytest.mark.parametrize("name", ["three-outputs", "laplace", "", "Hybrid"])
def test_a_name_that_is_not_in_the_table_is_refused_everywhere(name):
    with refused("mechanism", *certified_names()):
        certify_named(name, "1")
    with refused("mechanism", *reporting_names()):
        choose_jointly(name, "1", 256, lambda _: None)
    with refused("mechanism", *reporting_names()):
        Undesigned(name, "1", 256, None, None, 1.1, print).design()
    with pytest.raises(Invalid, match="mechanism is"):
        CampaignPlan(sensor="s", unit="Wh", bound=10, name="c", epsilon="1", mechanism=name)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in reporting_names()])
def test_a_name_for_certificates_alone_does_not_report(name):
    with refused("mechanism", repr(name), *reporting_names()):
        choose_jointly(name, "1", 256, lambda _: None)


def test_automatic_choice_has_no_certificate_of_its_own():
    with refused("mechanism", "'auto'", *certified_names()):
        certify_named("auto", "1")


@pytest.mark.parametrize("name", certified_names())
def test_a_size_that_a_mechanism_does_not_have_is_refused(name):
    for option in ("levels", "bins"):
        if named.certified_as(name).sized != option:
            with refused(option, 8, name):
                certify_named(name, "1", **{option: 8})


@pytest.mark.slow_but("hybrid", "square-wave")
@pytest.mark.parametrize("name", certified_names())
def test_every_name_of_a_certificate_has_a_whole_mechanism(name):
    assert mechanisms.missing(certify_named(name, "1").mechanism) == []


@pytest.mark.parametrize("name", reporting_names())
def test_every_name_of_a_campaign_has_a_class_that_campaigns_know(name):
    """Each name has either a whole mechanism or a design from the readings (`Designed`)."""
    reporting = named.reporting_as(name)
    if isinstance(reporting, Fixed):
        assert mechanisms.missing(reporting.make("1", 16)) == []
    else:
        assert isinstance(reporting, named.Designed)
