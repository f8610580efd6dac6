"""Each alarm rings when its trouble begins, once, and never without it."""

from dataclasses import replace

import pytest

from undertone_aggregator.watch import Look, Watch

ALL_COUNTED = {"received": 1000, "counted": 1000}
FINE = Look(1_800_000_000.0, 100.0, ALL_COUNTED, newest=999_999, free=1 << 40, end=1_900_000_000)


def later(look: Look, seconds: float = 60.0, **changes: object) -> Look:
    return replace(look, now=look.now + seconds, ticks=look.ticks + seconds, **changes)  # type: ignore[arg-type]


def rung(looks: list[Look]) -> list[list[str]]:
    watch = Watch(slot_seconds=1800, settle_slots=2)
    return [[event for event, _ in watch.look(look)] for look in looks]


def test_a_quiet_campaign_rings_nothing() -> None:
    more = later(FINE, outcomes={"received": 1100, "counted": 1080, "late": 20})
    assert rung([replace(FINE, newest=None), FINE, more]) == [[], [], []]


@pytest.mark.parametrize(
    ("event", "trouble"),
    [
        ("silent", later(FINE, 6 * 1800)),
        ("disk", later(FINE, free=1 << 20)),
        ("ended", later(FINE, end=1_700_000_000)),
        ("clock", replace(later(FINE), now=FINE.now + 3600)),
        ("refused", later(FINE, outcomes={"received": 1100, "counted": 1070, "other_campaign": 30})),
        ("conflict", later(FINE, outcomes={"received": 1010, "counted": 1009, "conflict": 1})),
    ],
)
def test_each_trouble_rings_once_and_again_after_it_was_gone(event: str, trouble: Look) -> None:
    watch = Watch(slot_seconds=1800, settle_slots=2)
    watch.look(FINE)
    first = [name for name, _ in watch.look(trouble)]
    assert event in first
    assert set(first) <= {event, "silent"}, "a clock that jumped a day may also look silent"
    if event in ("disk", "ended", "silent"):
        assert event not in dict(watch.look(later(trouble)))
    fine = later(FINE, newest=FINE.newest, outcomes=trouble.outcomes)
    watch.look(replace(fine, ticks=trouble.ticks + fine.now - trouble.now))
    assert event not in watch._ringing
