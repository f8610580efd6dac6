"""`undertone campaign succeed` makes the next campaign for the same devices, and limits what they spend in both."""

import json
import threading
import time
from pathlib import Path

import pytest

from support.command import undertone
from undertone_aggregator.base.durations import utc
from undertone_aggregator.campaign.binding import changes, open_campaign
from undertone_aggregator.campaign.handover import read_handover
from undertone_aggregator.campaign.preview import epochs_of
from undertone_aggregator.server.folder import Home
from undertone_aggregator.server.history import history
from undertone_aggregator.store.inventory import refused_keys
from undertone_aggregator.store.store import open_store
from undertone_operate.changes.succession import succeed
from undertone_operate.fleet.join_codes import parse_code
from undertone_operate.join.joining import Joining
from undertone_shared.errors import Invalid
from undertone_shared.policy import parse_policy
from undertone_shared.topics import report_topic

CREATE = ("--sensor", "load", "--unit", "Wh", "--bound", "1000", "--epsilon", "1")
# A campaign of some 60 days of half-hours.
PLAN = ("--set", "report_slots=2880", "--set", "rounds=[48]", "--set", "epoch_slots=336")


def run(*words: object, code: int = 0) -> str:
    done = undertone(*map(str, words))
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def begin(home: Home, name: str, now: int) -> int:
    """Issue the first epoch; return the Unix second at which the campaign ends."""
    config = home.config(name)
    with open_store(config.store_url, campaign=name) as store:
        open_campaign(store, config.campaign, config.stream)
        epoch = epochs_of(config).first(now)
        store.add_epoch(epoch)
    return epoch.campaign.end


def followed(home: Home, campaign: str) -> str:
    """Return the campaign to which all devices go, because all have agreed to it."""
    entry = read_handover(home.folder, campaign)["all"]
    agreed = {
        json.loads(path.read_text(encoding="utf-8"))["agreed"]
        for path in home.fleet(campaign).glob("devices/*/policy.json")
    }
    assert set(entry["agreed"]) == agreed
    (name,) = entry["campaigns"]
    return str(name)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    folder = tmp_path / "home"
    run("init", folder)
    run("campaign", "create", folder, "power", *CREATE, *PLAN)
    run("devices", "add", 3, "--home", folder)
    run("devices", "revoke", "power-003", "--home", folder)
    return Home(folder)


def test_the_next_campaign_has_the_devices_of_the_old_one(home: Home) -> None:
    end = begin(home, "power", int(time.time()))
    said = run("campaign", "succeed", home.folder, "power", "power-2", "--set", "epsilon=0.5")
    assert "3 of 3 devices move to the new campaign by themselves" in said
    config = home.config("power-2")
    plan = config.campaign
    assert (plan.succeeds, plan.start, plan.report_slots, str(plan.epsilon)) == ("power", end, 2880, "1/2")
    assert epochs_of(config).first(int(time.time())).campaign.epoch == end
    assert home.fleet("power-2") == home.fleet("power") == config.fleet
    assert followed(home, "power") == "power-2"
    settings = json.loads((home.fleet("power") / "devices/power-001/device.json").read_text(encoding="utf-8"))
    assert settings["campaigns"] == ["power", "power-2"]
    rules = (home.broker / "access").read_text(encoding="utf-8")
    for device, known in (("power-001", True), ("power-002", True), ("power-003", False)):
        for name in ("power", "power-2"):
            assert (report_topic(config.broker.prefix, name, device) in rules) == known
    with open_store(config.store_url, campaign="power-2") as store:
        assert store.devices()["power-003"].state == "revoked"
        assert len(refused_keys(store.devices().values())) == 1
    assert "power-2" in history(home.folder, "power")[-1].what
    names = {
        row["name"]
        for row in json.loads(run("devices", "list", "--home", home.folder, "--campaign", "power-2", "--json"))
    }
    assert names == {"power-001", "power-002", "power-003"}
    run("devices", "revoke", "power-002", "--home", home.folder, "--campaign", "power-2")
    assert "power-002" not in (home.broker / "access").read_text(encoding="utf-8")
    moved = ("devices", "move", "power-001", "--home", home.folder, "--campaign", "power", "--to", "power-2")
    assert "same devices" in run(*moved, code=2)


def test_after_an_extension_the_next_campaign_begins_at_the_later_end(home: Home) -> None:
    """This holds also before the server has issued an epoch with that end, and while θ is still being learnt."""
    end = begin(home, "power", int(time.time()))
    run("campaign", "extend", home.folder, "power", "--by", "2d")
    said = run("campaign", "succeed", home.folder, "power", "power-2")
    assert home.config("power-2").campaign.start == end + 2 * 86400
    assert f"power-2 starts at {utc(end + 2 * 86400)}; power ends at {utc(end + 2 * 86400)}" in said


def test_a_third_campaign_follows_the_second(home: Home) -> None:
    end = begin(home, "power", 1_800_000_000)
    run("campaign", "succeed", home.folder, "power", "power-2")
    begin(home, "power-2", end - 86400)
    run("campaign", "succeed", home.folder, "power-2", "power-3")
    assert home.fleet("power-3") == home.fleet("power")
    assert followed(home, "power-2") == "power-3"
    assert set(home.fleets()) == {"power", "power-2", "power-3"}


def test_what_a_device_may_spend_in_its_life_counts_over_both(home: Home) -> None:
    begin(home, "power", 1_800_000_000)
    said = run("campaign", "succeed", home.folder, "power", "power-2", "--preview")
    assert "the policies of 3 devices allow fewer in a life" in said
    assert "nothing was written" in said
    assert home.names() == ["power"]
    run("devices", "add", 1, "--home", home.folder, "--successors", 1)
    first, fourth = (
        json.loads((home.fleet("power") / f"devices/power-{n}/policy.json").read_text(encoding="utf-8"))
        for n in ("001", "004")
    )
    assert fourth == first | {"lifetime": 2 * first["lifetime"], "agreed": fourth["agreed"]}
    run("devices", "add", 1, "--home", home.folder, "--successors", 1)
    fifth = json.loads((home.fleet("power") / "devices/power-005/policy.json").read_text(encoding="utf-8"))
    assert fifth == fourth, "the plan is the model, and not a device whose lifetime was multiplied already"
    said = run("campaign", "succeed", home.folder, "power", "power-2", "--preview")
    assert "the policies of 3 devices allow fewer" in said, "the lifetimes of the fourth and the fifth suffice"
    assert "--successors" in run("devices", "add", 1, "--home", home.folder, "--successors", -1, code=2)


def test_a_larger_bound_than_the_policies_allow_is_named(home: Home) -> None:
    begin(home, "power", 1_800_000_000)
    bound = home.config("power").campaign.bound
    wider = ("campaign", "succeed", home.folder, "power", "power-2", "--preview", "--set")
    said = run(*wider, f"bound={2 * bound}")
    assert f"the campaign's bound is {2 * bound}, but the policies of 3 devices allow only a smaller theta" in said
    assert "a smaller theta" not in run(*wider, f"bound={bound}")


def test_policies_that_refuse_it_are_asked_first(home: Home) -> None:
    begin(home, "power", 1_800_000_000)
    dearer = ("campaign", "succeed", home.folder, "power", "power-2", "--set", "epsilon=2")
    assert "3 of 3 known policies refuse this" in run(*dearer, code=2)
    assert home.names() == ["power"]
    path = home.fleet("power") / "devices/power-001/policy.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"handover": False}), encoding="utf-8")
    said = run(*dearer, "--although-refused")
    assert "0 of 3 devices move to the new campaign by themselves" in said
    assert "2 of 3 devices do not move: the new campaign is outside what their households have agreed to" in said
    assert "agreed" not in read_handover(home.folder, "power")["all"]
    assert home.names() == ["power", "power-2"]


@pytest.mark.parametrize("change", ["epsilon=2", "bound=2000", "slot_seconds=900"])
def test_new_devices_and_links_of_a_campaign_that_old_policies_refuse_get_a_policy_of_its_plan(
    home: Home, change: str
) -> None:
    begin(home, "power", 1_800_000_000)
    theirs = home.fleet("power") / "devices/power-001/policy.json"
    agreed = theirs.read_bytes()
    settings = home.folder / "server.toml"
    before, heading, after = settings.read_text(encoding="utf-8").partition("[join]\n")
    joining = 'listen = "127.0.0.1:8444"\nurl = "http://127.0.0.1:8444"\n'
    after = after.replace("insecure = false", "insecure = true", 1)
    settings.write_text(before + heading + joining + after, encoding="utf-8")
    options = ("--set", change, "--set", f"report_slots={5760 if 'slot' in change else 2880}")
    run("campaign", "succeed", home.folder, "power", "power-2", *options, "--although-refused")
    run("devices", "add", 1, "--home", home.folder, "--campaign", "power-2")
    link = run("join", "create", "--home", home.folder, "--campaign", "power-2").strip()
    new = parse_policy((home.fleet("power-2") / "devices/power-2-004/policy.json").read_bytes())
    code = parse_code(link.rpartition("#")[2].partition(".")[0])
    offered = parse_policy(json.dumps(Joining(home).offer(code)["policy"]).encode())
    campaign = epochs_of(home.config("power-2")).first(int(time.time())).campaign
    for policy in (new, offered):
        policy.check_campaign(campaign)
        assert policy.theta[1] == home.config("power-2").campaign.bound
    assert theirs.read_bytes() == agreed, "nobody changes what a household has"


def test_a_campaign_has_one_successor(home: Home) -> None:
    begin(home, "power", 1_800_000_000)
    run("campaign", "succeed", home.folder, "power", "power-2")
    assert "power-2 succeeds power already" in run("campaign", "succeed", home.folder, "power", "power-3", code=2)
    assert followed(home, "power") == "power-2"
    assert "delete power-2 first" in run("campaign", "delete", home.folder, "power", code=2)
    run("campaign", "delete", home.folder, "power-2")
    assert "power-3" in run("campaign", "succeed", home.folder, "power", "power-3")


def test_of_two_operators_at_once_one_is_refused(home: Home) -> None:
    begin(home, "power", 1_800_000_000)
    both, outcomes = threading.Barrier(2), {}

    def operate(new: str) -> None:
        both.wait()
        try:
            outcomes[new] = succeed(home, "power", new, {})
        except Invalid as refused:
            outcomes[new] = str(refused)

    threads = [threading.Thread(target=operate, args=(new,)) for new in ("power-2", "power-3")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = (new for new, outcome in outcomes.items() if isinstance(outcome, list))
    (refusal,) = (outcome for outcome in outcomes.values() if isinstance(outcome, str))
    assert f"{winner} succeeds power already" in refusal
    assert home.names() == ["power", winner]
    assert followed(home, "power") == winner


def test_what_has_no_successor_is_named(home: Home) -> None:
    assert "has not begun" in run("campaign", "succeed", home.folder, "power", "power-2", code=2)
    begin(home, "power", 1_800_000_000)
    assert "'power'" in run("campaign", "succeed", home.folder, "power", "power", code=2)
    run("campaign", "retire", home.folder, "power")
    assert "retired" in run("campaign", "succeed", home.folder, "power", "power-2", code=2)


def test_a_campaign_is_not_retired_before_its_successor_has_begun(home: Home) -> None:
    begin(home, "power", 1_800_000_000)
    run("campaign", "succeed", home.folder, "power", "power-2")
    retire = ("campaign", "retire", home.folder, "power")
    assert "power-2 succeeds power and has not begun" in run(*retire, code=2)
    assert "power is set to retired" in run(*retire, "--although-waiting")
    begin(home, "power-2", 1_900_000_000)
    run("campaign", "succeed", home.folder, "power-2", "power-3")
    begin(home, "power-3", 2_000_000_000)
    assert "power-2 is set to retired" in run("campaign", "retire", home.folder, "power-2")


def test_a_campaign_cannot_change_whom_it_succeeds(home: Home) -> None:
    begin(home, "power", 1_800_000_000)
    config = home.config("power", home.file("power").read_text(encoding="utf-8") + 'succeeds = "heat"\n')
    with open_store(config.store_url, campaign="power") as store:
        (change,) = changes(store.meta(), config.campaign, config.stream)
    assert (change.name, change.allowed) == ("succeeds", False)


def test_a_campaign_for_another_purpose_asks_every_household_again(home: Home) -> None:
    begin(home, "power", 1_800_000_000)
    said = run("campaign", "succeed", home.folder, "power", "power-2", "--about", "How the heat pumps run")
    assert "0 of 3 devices move to the new campaign by themselves" in said
    assert "3 devices do not" in said
    assert read_handover(home.folder, "power")["all"] == {"campaigns": ["power-2"]}


@pytest.mark.parametrize("change", ["sensor", "measure", "unit"])
def test_another_kind_of_measurement_asks_every_household_again(home: Home, change: str) -> None:
    begin(home, "power", 1_800_000_000)
    values = {"sensor": "gas", "measure": "max", "unit": "kWh"}
    succeed_ = ("campaign", "succeed", home.folder, "power", "power-2", "--set", f"{change}={values[change]}")
    assert f"({change}: " in run(*succeed_, code=2)
    assert "0 of 3 devices move" in run(*succeed_, "--although-refused")


def test_who_has_joined_by_a_code_goes_on_inside_what_was_agreed_to_and_no_further(home: Home) -> None:
    from undertone_operate.fleet.agreements import agreements, is_inside
    from undertone_operate.join.offer import offered_policy

    config = home.config("power")
    model = (home.fleet("power") / "devices/power-001/policy.json").read_text(encoding="utf-8")
    policy = parse_policy(offered_policy(config, model, "The town", "noise", 1_800_000_000).encode())
    assert is_inside(policy, [("The town", "noise")])
    assert not is_inside(policy, [("The town", "heat"), ("The country", "noise"), ("", "")])
    assert agreements(home, "power") == [("", "")]
    end = begin(home, "power", 1_800_000_000)
    # The time that the households agreed to ends after this campaign, and before another one of this length would end.
    assert 0 < policy.until - end < end - 1_800_000_000
