"""The threshold round of a stream: one Square Wave report of each device, a θ from all of them, then the stream."""

import json
from fractions import Fraction

import pytest

from support import server
from support.refusal import refused
from undertone_aggregator.campaign.collection import guarantee_of
from undertone_aggregator.campaign.epoch_source import EpochMeans
from undertone_aggregator.campaign.preview import end_of
from undertone_aggregator.campaign.stream_rounds import StreamRounds, round_length, stream_rule
from undertone_aggregator.counts.epochs import REPORT_PHASE, THRESHOLD_PHASE, Timeline
from undertone_aggregator.counts.partial import Partial
from undertone_aggregator.design import Budget
from undertone_aggregator.design.stream import rho_for
from undertone_aggregator.design.stream.integers import release_variance
from undertone_aggregator.settings.config import CampaignPlan, Config, StreamPlan, parse_config
from undertone_operate.fleet.device_files import make_policy, stream_policy
from undertone_shared.policy import Policy
from undertone_shared.report import COHORT
from undertone_shared.stream import GAUSSIAN, StreamRule
from undertone_simulator.fast.simulated import Simulated
from undertone_simulator.fast.simulation import Simulation
from undertone_simulator.readings import populations

CYCLE, SLOTS, DEVICES = 48, 48, 400
NOW = 1_798_416_000


def config(folder, *, epsilon="4", campaign="", **stream: object) -> Config:
    options = {"reports": SLOTS, "round_slots": 48, "round_epsilon": "0.5", **stream}
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in options.items() if value is not None)
    text = f"""\
[campaign]
name = "load"
sensor = "load"
unit = "Wh"
bound = 10000
slot_seconds = 1800
cycle = {CYCLE}
epsilon = "{epsilon}"
report_slots = {SLOTS}
collect = "stream"
{campaign}
[stream]
{lines}"""
    return parse_config(text, folder)


def rounds(made: Config) -> StreamRounds:
    assert made.stream is not None
    return StreamRounds(made.campaign, made.stream, EpochMeans(server.SEED, lambda *_: Partial()))


def simulated(plan: CampaignPlan, stream: StreamPlan) -> Simulated:
    readings = populations.households(DEVICES, 4, 1)
    return Simulation(plan, readings, DEVICES, 1, stream=stream).run()


@pytest.mark.slow
def test_each_device_sends_one_square_wave_report_and_then_its_stream(tmp_path):
    made = config(tmp_path)
    ours = simulated(made.campaign, made.stream)
    first, second = ours.timeline.epochs
    assert (first.phase, second.phase) == (THRESHOLD_PHASE, REPORT_PHASE)
    length = round_length(made.campaign, made.stream)
    assert first.campaign.last_slot - first.campaign.first_slot + 1 == first.campaign.schedule.stride == length
    counts = [int(counts.sum()) for key, counts in ours.partial.items() if key.kind == COHORT]
    assert sum(counts) == DEVICES
    assert isinstance(second.campaign.rule, StreamRule)
    assert 200 < second.campaign.rule.theta < 4000, "the bound is 10000"
    assert second.campaign.first_slot > first.campaign.last_slot + made.campaign.settle_slots
    assert len(ours.compared()) == SLOTS


def test_the_stream_has_what_the_round_leaves_of_epsilon(tmp_path):
    made = config(tmp_path)
    assert made.stream.budget(made.campaign.epsilon) == Budget.parse("3.5", made.stream.delta)
    rho = rho_for(GAUSSIAN, Budget.parse("3.5", made.stream.delta))
    assert stream_rule(made.campaign, made.stream).charge() <= rho
    assert rounds(made).first(NOW).campaign.cohort.mechanism.permits(Budget(Fraction(1, 2)).cap)


def test_the_guarantee_states_both_together(tmp_path):
    made = config(tmp_path)
    stated = guarantee_of(Timeline(rounds(made).planned(NOW)), made.budget)
    assert (stated.level, stated.budget) == ("user", made.budget)
    assert "(ε, δ) = (4, 1e-05) for all reports of a device" in stated.sentence
    assert "of this ε, 0.5 is for the one report that finds theta" in stated.sentence
    assert stated.certificate is None, "Gaussian reports have no largest ratio"
    during = guarantee_of(Timeline([rounds(made).first(NOW)]), made.budget)
    assert "ε = 0.5 for the one report of a device in this round" in during.sentence


def test_the_policy_allows_one_report_beside_the_stream(tmp_path):
    made = config(tmp_path)
    fields = make_policy(made.campaign, insecure=True, **stream_policy(made))
    policy = Policy(fields)
    round_epoch, stream_epoch = rounds(made).planned(NOW)
    for epoch in (round_epoch, stream_epoch):
        policy.check_campaign(epoch.campaign)
    policy.check_succession(
        stream_epoch.campaign, round_epoch.campaign, round_epoch.campaign.epoch, stream_epoch.campaign.epoch - 1800
    )
    p, q = policy.cap
    assert Fraction(p, q) <= Fraction(*Budget(Fraction(1, 2)).cap)
    report = [mechanism for _, mechanism in round_epoch.campaign.rule.mechanisms]
    assert [mechanism.permits(policy.cap) for mechanism in report] == [True]
    without = make_policy(config(tmp_path, round_slots=None, round_epsilon=None).campaign, insecure=True)
    assert fields["lifetime"] < without["lifetime"] / 50, "one report, where single readings would have 48 a day"


def test_a_round_in_which_nobody_reports_is_repeated(tmp_path):
    source = rounds(config(tmp_path))
    first = source.first(NOW)
    due = source.due(Timeline([first]), NOW)
    again = source.next(Timeline([first]), due)
    assert again.phase == THRESHOLD_PHASE
    assert again.campaign.first_slot > first.campaign.last_slot
    assert source.last_slot(Timeline([first])) == source.learning_ends(Timeline([first])) // 1800 + SLOTS - 1


def test_a_campaign_does_not_end_with_its_round(tmp_path):
    made = config(tmp_path)
    first, stream = rounds(made).planned(NOW)
    assert end_of(made, [first]) == stream.campaign.end > first.campaign.end
    assert end_of(made, [first, stream]) == stream.campaign.end


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"round_epsilon": None}, ("stream.round_slots", 48, "both")),
        ({"round_slots": None}, ("stream.round_epsilon", "both")),
        ({"theta": 900}, ("stream.theta", 900, "round_slots")),
        ({"dimension": 2}, ("stream.dimension", 2, 1)),
    ],
)
def test_what_contradicts_a_round_is_refused(options, facts, tmp_path):
    with refused(*facts):
        config(tmp_path, **options)


def test_a_round_leaves_something_for_the_stream(tmp_path):
    with refused("stream.round_epsilon", 4, "campaign.epsilon"):
        rounds(config(tmp_path, round_epsilon="4"))


@pytest.mark.parametrize(("share", "reuse"), [(0, 0), (0.5, 128), (0.75, 192), (0.999, 255)])
def test_the_share_of_the_noise_that_is_used_again_is_an_option(share, reuse, tmp_path):
    made = config(tmp_path, share=share)
    rule, best = stream_rule(made.campaign, made.stream), stream_rule(made.campaign, config(tmp_path).stream)
    assert rule.reuse == reuse
    rho = rho_for(GAUSSIAN, made.stream.budget(made.campaign.epsilon))
    assert max(rule.charge(), best.charge()) <= rho
    assert release_variance(rule) >= release_variance(best), "the plan's own share has the least variance"


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"share": 1}, ("stream.share", 1, "below 1")),
        ({"share": 0.5, "mechanism": "direct"}, ("stream.share", "direct", "independent")),
    ],
)
def test_a_share_that_does_not_apply_is_refused(options, facts, tmp_path):
    with refused(*facts):
        config(tmp_path, **options)
