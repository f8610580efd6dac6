"""A new mechanism is a class with one entry each in `mechanisms.TABLE` and `notation.KINDS`.

The tests show this with a mechanism that the product does not have.
"""

import json
import os
from fractions import Fraction

import numpy as np
import pytest

from support import server
from support.contract import check_contract
from support.designed import frozen_tables
from support.micropython import REPO
from support.three_outputs import KIND, ThreeOutputs, traits
from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.counts.partial import Key
from undertone_aggregator.design import best_fraction, mechanisms
from undertone_aggregator.design.certificate import certify_campaign, certify_mechanism
from undertone_aggregator.design.named import NAMES, Designed
from undertone_aggregator.design.population import Population
from undertone_aggregator.design.window import LEVELS
from undertone_aggregator.estimate.estimator import estimates_of
from undertone_aggregator.estimate.noise import noise_of
from undertone_aggregator.estimate.reconstruct import Decoder, Reconstruction
from undertone_shared import notation, report
from undertone_shared.campaign import Campaign, write_canonical
from undertone_shared.entropy import Entropy
from undertone_shared.errors import Invalid
from undertone_shared.off_board.contract import Mechanism
from undertone_shared.scalar import ReportRule

THETA = 1000


@pytest.fixture
def mechanism(monkeypatch):
    monkeypatch.setitem(mechanisms.TABLE, ThreeOutputs, traits)
    monkeypatch.setitem(notation.KINDS, "three-outputs", KIND)
    return ThreeOutputs(*best_fraction("2"), 1, 3)


def test_it_keeps_the_contract_of_every_mechanism(mechanism):
    check_contract(mechanism, "2", THETA)
    assert certify_mechanism("three-outputs", mechanism, "2", THETA, None).ratio == Fraction(mechanism.a, mechanism.b)


# The mechanisms whose contract takes seconds. A new mechanism is tried by `make test`.
LONG = ("hybrid", "piecewise", "piecewise-optimal")


# Two mechanisms are missing here: the optimal table, which the next test tries, and the Square Wave, which has no
# unbiased decode.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in LONG else [])
        for name, named in NAMES.items()
        if not isinstance(named.reporting, Designed) and name != "square-wave"
    ],
)
def test_the_named_ones_keep_it(name):
    named = NAMES[name]
    check_contract((named.certified or named.reporting).make("2", LEVELS), "2", THETA)


def test_a_shipped_table_keeps_it():
    for epsilon, theta, made in frozen_tables():
        check_contract(made, epsilon, theta)


MEMBERS = [name for name in vars(Mechanism) if not name.startswith("_")]


@pytest.mark.parametrize("member", MEMBERS)
def test_what_is_missing_is_named(mechanism, member):
    """`missing` names the member that a class lacks."""
    kept = {name: value for name, value in vars(ThreeOutputs).items() if name != member}
    lacking = type("Lacking", (), kept)
    mechanisms.TABLE[lacking] = traits
    try:
        made = lacking(7, 1, 1, 3)
        assert f"Lacking has no {member}" in mechanisms.missing(made)
    finally:
        del mechanisms.TABLE[lacking]


def test_an_entry_that_is_missing_is_named():
    said = mechanisms.missing(ThreeOutputs(7, 1, 1, 3))
    assert said == [
        "ThreeOutputs has no traits in undertone_aggregator.design.mechanisms.TABLE",
        "the kind 'three-outputs' is not in undertone_shared.notation.KINDS",
    ]


def test_the_guide_names_this_example():
    assert "(../tests/support/three_outputs.py)" in (REPO / "docs/mechanisms.md").read_text(encoding="utf-8")


def test_its_reports_become_a_mean_with_its_own_error(mechanism):
    # Each of 200,000 devices sends one symbol for the reading 700. A normal mean is further
    # away than 6 standard errors with a chance of 2e-9.
    rows = [np.array(mechanism.weights(k)) / mechanism.row_total() for k in range(3)]
    law = 0.6 * rows[1] + 0.4 * rows[2]
    counts = np.random.default_rng(5).multinomial(200_000, law)
    density = np.zeros(THETA + 1)
    density[700] = 1.0
    decoder = Decoder(ReportRule(0, THETA, mechanism), 0, Population(density, range(THETA + 2)))
    mean, variance, n = decoder.mean(counts)
    y = np.array([float(Fraction(*mechanism.decode(j, THETA))) for j in range(3)])
    exact = float(law @ y**2 - (law @ y) ** 2)
    assert abs(mean - 700) < 6 * (exact / n) ** 0.5
    assert variance == pytest.approx(exact / n, rel=1e-3)
    assert decoder.goodness.misfits(counts[None])[0] < 6


def test_a_campaign_carries_it_by_its_kind(mechanism):
    plain = server.campaign(theta=THETA)
    fields = json.loads(plain.body)
    fields["rule"]["mechanism"] = mechanism.describe()
    pieces = []
    write_canonical(fields, pieces.append)
    campaign = Campaign(b"".join(pieces))
    assert json.loads(campaign.body)["rule"]["mechanism"]["kind"] == "three-outputs"
    # Draw reports as a device does, and estimate the mean from them.
    entropy, counts = Entropy(os.urandom), np.zeros(3, dtype=np.int64)
    for _ in range(40):
        entropy.refill()
        _, (symbol,), _ = campaign.rule.draw(campaign, server.FIRST, 700, False, None, entropy)
        counts[symbol] += 1
    key = Key("meters", campaign.fingerprint, report.REPORT, "all", server.FIRST)
    (estimate,) = estimates_of(Reconstruction(Timeline([Epoch(campaign, 0)])), {key: counts})
    assert estimate.reports == 40
    _, certificate = certify_campaign(campaign.body, "4")
    assert certificate.as_json()["integers"] == mechanism.describe()


def test_an_unknown_kind_is_named():
    with pytest.raises(
        Invalid, match=f"^m has kind 'three-outputs', expected one of {', '.join(sorted(notation.KINDS))}$"
    ):
        notation.parse_mechanism("m", ThreeOutputs(7, 1, 1, 3).describe())


def test_a_mechanism_that_nobody_entered_is_refused_not_guessed():
    with pytest.raises(Invalid, match="the mechanism is a ThreeOutputs, expected one of WindowMechanism"):
        noise_of(ThreeOutputs(7, 1, 1, 3), THETA, None)
