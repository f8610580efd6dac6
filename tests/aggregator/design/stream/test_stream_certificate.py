"""certify --message certifies a stream campaign by the budget of all reports of the stream."""

import json

import pytest
from typer.testing import CliRunner

from support import server
from undertone.app import app
from undertone_aggregator.campaign.epoch_source import EpochMeans
from undertone_aggregator.campaign.stream_rounds import StreamRounds, stream_rule
from undertone_aggregator.counts.partial import Partial
from undertone_aggregator.design.stream.certificate import certify_stream
from undertone_aggregator.settings.config import StreamPlan
from undertone_shared.errors import Invalid


def certify(*words):
    return CliRunner().invoke(app, ["certify", *map(str, words)])


def campaign_file(tmp_path, *, epsilon, **stream):
    rounds = StreamRounds(
        server.plan(epsilon=epsilon), StreamPlan(**stream), EpochMeans(server.SEED, lambda *_: Partial())
    )
    path = tmp_path / "campaign.json"
    path.write_bytes(bytes(rounds.first(server.FIRST).campaign.body))
    return path


@pytest.mark.parametrize("mechanism", ["gaussian", "one-bit", "direct"])
@pytest.mark.parametrize("epsilon", [0.5, 1, 4])
def test_a_legal_stream_is_certified_with_its_own_numbers(tmp_path, mechanism, epsilon):
    path = campaign_file(tmp_path, mechanism=mechanism, epsilon=epsilon)
    result = certify("--message", path, "--epsilon", epsilon, "--json")
    assert result.exit_code == 0, result.output
    (facts,) = json.loads(result.stdout)
    assert facts["mechanism"].endswith("stream")
    assert 0.98 * epsilon <= facts["epsilon_achieved"] <= epsilon
    assert facts["rho_of_one_chain_exact"] <= facts["rho_of_one_chain"] <= facts["rho"]
    assert facts["rho_of_one_chain_exact"] > 0.9 * facts["rho_of_one_chain"]
    assert (facts["epsilon_of_one_report"] is not None) == (mechanism == "one-bit")
    assert "all reports of a device" in facts["guarantee"]


def test_a_stream_above_its_cap_is_refused(tmp_path):
    path = campaign_file(tmp_path, mechanism="gaussian", epsilon=1)
    result = certify("--message", path, "--epsilon", 0.9)
    assert result.exit_code == 1
    assert "expected ε of at most 0.9" in result.stderr
    assert certify("--message", path, "--epsilon", 0.9, "--delta", 1e-4).exit_code == 0
    text = certify("--message", path, "--epsilon", 1).stdout
    assert "event level" not in text
    assert "(ε, δ) = (" in text


def test_a_delta_out_of_range_is_refused():
    rule = stream_rule(server.plan(epsilon=1), StreamPlan())
    with pytest.raises(Invalid, match="delta is 2"):
        certify_stream(rule, "1", 2.0)
