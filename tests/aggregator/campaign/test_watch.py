"""Each alarm comes once, when its trouble begins, and never without the trouble."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from undertone_aggregator.campaign.binding import RETIRED, RUNNING
from undertone_aggregator.campaign.state import OVER, CampaignState
from undertone_aggregator.campaign.watch import Look, Watch

ALL_COUNTED = {"received": 1000, "counted": 1000}
NOW = 1_800_000_000
RUNS = CampaignState(RUNNING, ready=True, newest=NOW, due=NOW - 86400, end=NOW + 10**8)
FINE = Look(float(NOW), 100.0, ALL_COUNTED, 1 << 40, RUNS)


def later(look: Look, seconds: float = 60.0, **changes: object) -> Look:
    return replace(look, now=look.now + seconds, ticks=look.ticks + seconds, **changes)  # type: ignore[arg-type]


def rung(looks: list[Look]) -> list[list[str]]:
    watch = Watch(slot_seconds=1800, settle_slots=2)
    return [[event for event, _ in watch.look(look)] for look in looks]


def test_a_quiet_campaign_rings_nothing() -> None:
    more = later(FINE, outcomes={"received": 1100, "counted": 1080, "late": 20})
    assert rung([replace(FINE, state=replace(RUNS, newest=None, due=NOW)), FINE, more]) == [[], [], []]


def more(look: Look, **outcomes: int) -> dict[str, int]:
    return {name: look.outcomes.get(name, 0) + outcomes.get(name, 0) for name in {**look.outcomes, **outcomes}}


def well(look: Look) -> Look:
    """A look without any trouble, a minute after another look."""
    state = replace(RUNS, newest=int(look.now) + 60)
    return later(look, free=FINE.free, waiting=None, outcomes=more(look, received=100, counted=100), state=state)


@pytest.mark.parametrize(
    ("event", "trouble"),
    [
        ("silent", lambda look: later(look, 6 * 1800)),
        ("disk", lambda look: later(look, free=1 << 20)),
        # Spark does not run: reports come in, but no slot has any counts yet.
        ("uncounted", lambda look: later(look, 6 * 1800, waiting=900.0)),
        ("clock", lambda look: replace(later(look), now=look.now + 3600)),
        ("refused", lambda look: later(look, outcomes=more(look, received=100, counted=70, other_campaign=30))),
        ("conflict", lambda look: later(look, outcomes=more(look, received=10, counted=9, conflict=1))),
        ("strays", lambda look: later(look, state=replace(look.state, strays=50))),
    ],
)
def test_each_trouble_rings_once_and_again_after_it_was_gone(event: str, trouble: Callable[[Look], Look]) -> None:
    looks = [FINE]
    for follow in (trouble, trouble, well, trouble):
        looks.append(follow(looks[-1]))
    assert rung(looks) == [[], [event], [], [], [event]]


def test_a_campaign_that_never_got_a_report_rings_and_a_retired_one_does_not() -> None:
    never = replace(FINE, state=replace(RUNS, newest=None, due=NOW))
    assert rung([never, later(never, 5 * 1800), later(never, 7 * 1800)]) == [[], [], ["silent"]]
    retired = replace(FINE, state=replace(RUNS, state=RETIRED))
    assert rung([retired, later(retired, 90 * 86400)]) == [[], []]


def test_reports_that_wait_for_spark_are_no_silence() -> None:
    slow = replace(FINE, state=replace(RUNS, newest=NOW))
    assert rung([slow, later(slow, 6 * 1800, waiting=300.0), later(slow, 7 * 1800, waiting=0.0)]) == [
        [],
        [],
        ["silent"],
    ]


def test_a_machine_that_slept_is_no_moved_clock() -> None:
    for seconds, says in ((3600, True), (-3600, False)):
        watch = Watch(slot_seconds=1800, settle_slots=2)
        watch.look(FINE)
        jumped = watch.look(replace(later(FINE), now=FINE.now + seconds))
        assert [("or the machine slept" in sentence) for event, sentence in jumped if event == "clock"] == [says]


def test_what_is_over_is_said_once() -> None:
    watch = Watch(slot_seconds=1800, settle_slots=2)
    watch.look(FINE)
    full = later(FINE, free=1 << 20, outcomes={"received": 1010, "counted": 1009, "conflict": 1})
    watch.look(full)
    assert watch.over == []
    fine = later(full, free=1 << 40)
    watch.look(fine)
    assert watch.over == ["the disk with the server's data has only 1 MB of free space"], (
        "a conflict is a momentary event, so its end is not said"
    )
    watch.look(later(fine))
    assert watch.over == []


def test_nothing_is_expected_of_a_retired_campaign_but_its_disk_is_the_servers() -> None:
    retired = replace(FINE, state=replace(RUNS, state=RETIRED))
    refused = {"received": 1100, "counted": 1000, "revoked": 100, "conflict": 3}
    assert rung([retired, later(retired, outcomes=refused)]) == [[], []]
    assert rung([retired, later(retired, free=1 << 20)]) == [[], ["disk"]]


def test_devices_of_another_version_ring_until_they_are_back() -> None:
    straying = replace(FINE, state=replace(RUNS, strays=50))
    assert rung([straying, later(straying), later(FINE)]) == [["strays"], [], []]
    retired = replace(straying, state=replace(straying.state, state=RETIRED))
    assert rung([retired]) == [[]]


def test_a_campaigns_end_is_foreseen_twice_and_is_no_alarm() -> None:
    watch = Watch(slot_seconds=1800, settle_slots=2)
    found = []
    for days in (100, 59, 58, 6, 5, -1):
        end = int(FINE.now) + days * 86400 + 60
        state = replace(RUNS, due=end - 365 * 86400, end=end, state=OVER if days < 0 else RUNNING)
        look = replace(FINE, state=state)
        assert watch.look(look) == []
        found.append([event for event, _ in watch.notices(look)])
    assert found == [[], ["ending"], [], ["ending"], [], ["ended"]]


def test_a_short_campaign_is_announced_less_early_or_not_at_all() -> None:
    end = int(FINE.now) + 86400
    for days, noticed in ((10, None), (30, 7), (100, 7), (365, 7)):
        assert replace(RUNS, due=end - days * 86400, end=end).notice(FINE.now) == noticed
    end = int(FINE.now) + 50 * 86400
    for days, noticed in ((100, None), (365, 60)):
        assert replace(RUNS, due=end - days * 86400, end=end).notice(FINE.now) == noticed


@pytest.mark.parametrize("state", [RETIRED, OVER])
def test_a_campaign_that_has_ended_does_not_end_again(state: str) -> None:
    assert replace(RUNS, state=state, end=int(FINE.now) + 86400).ending(FINE.now) == ""


def test_a_certificate_that_ends_rings_60_and_7_days_before() -> None:
    looks = [
        replace(FINE, certificates={"broker/server.crt": int(FINE.now) + days * 86400 + 60, "tls/ca.crt": 1 << 40})
        for days in (60, 59, 58, 6, -1)
    ]
    assert rung(looks) == [[], ["certificate"], [], ["certificate"], []]


def test_of_an_authority_that_ends_no_command_is_named_that_does_not_help() -> None:
    ends = {name: int(FINE.now) + 5 * 86400 for name in ("broker/server.crt", "tls/ca.crt")}
    server, authority = (alarm[1] for alarm in Watch(1800, 2).look(replace(FINE, certificates=ends)))
    assert server.endswith("run undertone authority renew, or put a new certificate there")
    assert "no command renews an authority" in authority
    assert "undertone authority renew" not in authority


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (5 * 86400, "ends in 5 days"),
        (86400, "ends in 1 day"),
        (3600, "ends in less than a day"),
        (-1, "has ended"),
        (-86400, "has ended"),
    ],
)
def test_a_certificate_that_has_ended_is_named_so(left: int, words: str) -> None:
    ((_, sentence),) = Watch(1800, 2).look(replace(FINE, certificates={"broker/server.crt": int(FINE.now) + left}))
    assert sentence.startswith(f"the certificate in broker/server.crt {words}: ")
