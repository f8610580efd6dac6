"""A home compared with the others: what its device hears, what it keeps, and what leaves the home because of it."""

import json
from typing import Any

import pytest

from undertone_device.host.others import FILE, Comparison, Others
from undertone_device.mqtt.packets import ACKED, CONNECTED, DENIED, LOST, MESSAGE

SLOT = 1800
DAY = 86400
TOPIC = "undertone/v2/load/aggregate/all/filtered"


class Memory:
    """Storage in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def write(self, name: str, data: bytes) -> None:
        self.files[name] = bytes(data)

    def delete(self, name: str) -> None:
        self.files.pop(name, None)


class Campaign:
    """The attributes of a campaign that a comparison needs."""

    def __init__(self, measure: str = "sum", slot_seconds: int = SLOT, name: str = "load") -> None:
        self.measure, self.slot_seconds, self.name = measure, slot_seconds, name


class Config:
    """The attributes of a configuration that are used to hear published means."""

    def __init__(self, **groups: str) -> None:
        self.prefix = "undertone/v2"
        self.campaigns: tuple[str, ...] = ("load",)
        self.successors: tuple[str, ...] = ()
        self.groups = groups


SUM = Campaign()


def published(slot: int, mean: float, error: float = 5.0, **fields: Any) -> bytes:
    message = {"slot": slot, "kind": "report", "estimate": mean, "low": mean - error, "high": mean + error}
    return json.dumps({**message, **fields}).encode()


@pytest.fixture
def kept() -> Memory:
    return Memory()


@pytest.fixture
def comparison(kept: Memory) -> Comparison:
    return Comparison(kept)  # type: ignore[arg-type]


def test_a_slots_own_value_is_that_of_its_measure(comparison: Comparison) -> None:
    for slot in (10, 11, 12):
        for second in (0, 900):
            comparison.add(SUM, 100 + slot, slot * SLOT + second, 0)  # type: ignore[arg-type]
        comparison.hear(SUM, published(slot, 200.0))  # type: ignore[arg-type]
    answer = comparison.summary(13 * SLOT, 0)
    assert answer is not None
    # Perhaps slot 10 was entered after its beginning, so its sum may be incomplete. The value of slot
    # 12 is not known before a sample of a later slot comes.
    assert answer["newest"] == {
        **{"start": 11 * SLOT, "end": 12 * SLOT, "slots": 1},
        **{"own": 222_000, "mean": 200_000, "low": 195_000, "high": 205_000},
    }
    assert answer["others"]["start"] == 12 * SLOT


def test_spans_are_over_the_slots_that_both_sides_know(comparison: Comparison) -> None:
    now = 20 * DAY
    evening = now - 6 * 3600
    for slot in range((now - 8 * DAY) // SLOT, now // SLOT):
        comparison.put(SUM, slot, 300)  # type: ignore[arg-type]
        if slot % 2:
            comparison.hear(SUM, published(slot, 200.0))  # type: ignore[arg-type]
    answer = comparison.summary(now, evening)
    assert answer is not None
    # Half of the slots have a mean: 5 of the ten in an evening, and 168 of the 336 in a week. The measure is a sum, so
    # the values of these slots are added up.
    assert (answer["evening"]["slots"], answer["evening"]["own"], answer["evening"]["mean"]) == (
        5,
        1_500_000,
        1_000_000,
    )
    assert (answer["evening"]["low"], answer["evening"]["high"]) == (975_000, 1_025_000)
    assert (answer["week"]["slots"], answer["week"]["own"]) == (168, 168 * 300_000)


def test_means_of_a_mean_do_not_add_up(comparison: Comparison) -> None:
    mean = Campaign("mean")
    for slot in (10, 11):
        comparison.put(mean, slot, 20 + slot)  # type: ignore[arg-type]
        comparison.hear(mean, published(slot, 20.0))  # type: ignore[arg-type]
    answer = comparison.summary(12 * SLOT, 0)
    assert answer is not None
    assert (answer["week"]["own"], answer["week"]["mean"], answer["week"]["low"]) == (30_500, 20_000, 15_000)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"\xff",
        b"null",
        published(10, 5.0, kind="model"),
        published(10, 5.0, kind="absent"),
        published(10, 5.0, low=None),
        published(10, 5.0, low=9.0),
        published(10, 5.0, low="0"),
        published(10, 5.0, high=[9]),
        b'{"slot": 1e999, "kind": "report", "estimate": 1, "low": 0, "high": 2}',
        b'{"slot": 10, "kind": "report", "estimate": NaN, "low": 0, "high": 2}',
        b'{"slot": 10, "kind": "report", "estimate": 1, "low": 0, "high": 1e999}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_mean_is_ignored(comparison: Comparison, payload: bytes) -> None:
    comparison.hear(SUM, payload)  # type: ignore[arg-type]
    assert comparison.summary(11 * SLOT, 0) is None


def test_a_comparison_survives_a_restart_and_keeps_a_week(comparison: Comparison, kept: Memory) -> None:
    for slot in range(1, 20 * 48):
        comparison.hear(SUM, published(slot, 200.0))  # type: ignore[arg-type]
    again = Comparison(kept)  # type: ignore[arg-type]
    assert again.summary(0, 0) == comparison.summary(0, 0)
    assert len(json.loads(kept.files[FILE])["all"]) == 7 * 48
    kept.files[FILE] = b"{broken"
    assert Comparison(kept).summary(0, 0) is None  # type: ignore[arg-type]


def test_off_keeps_and_hears_nothing(comparison: Comparison, kept: Memory) -> None:
    comparison.put(SUM, 10, 300)  # type: ignore[arg-type]
    comparison.hear(SUM, published(10, 200.0))  # type: ignore[arg-type]
    comparison.switch(False)
    comparison.put(SUM, 11, 300)  # type: ignore[arg-type]
    comparison.hear(SUM, published(11, 200.0))  # type: ignore[arg-type]
    assert comparison.summary(12 * SLOT, 0) is None
    assert json.loads(kept.files[FILE]) == {
        **{"on": False, "group": "all", "measure": "sum", "seconds": SLOT},
        **{"own": [], "all": []},
    }
    assert Comparison(kept).on is False  # type: ignore[arg-type]


def test_another_measurement_begins_anew(comparison: Comparison) -> None:
    comparison.put(SUM, 10, 300)  # type: ignore[arg-type]
    comparison.hear(SUM, published(10, 200.0))  # type: ignore[arg-type]
    comparison.hear(Campaign("mean"), published(11, 200.0))  # type: ignore[arg-type]
    answer = comparison.summary(12 * SLOT, 0)
    assert answer is not None
    assert answer["newest"] is None


class Line:
    """A transport that records what is asked of it, and returns events."""

    def __init__(self) -> None:
        self.oversized = 0
        self.reached = False
        self.places = [("broker", 1883)]
        self.configured = ("broker", 1883)
        self.asked: list[str] = []
        self.events: list[Any] = []

    def connect(self) -> None:
        self.asked.append("connect")

    def subscribe(self, topic: str) -> None:
        self.asked.append(f"subscribe {topic}")

    def publish(self, topic: str, payload: bytes) -> int:
        self.asked.append(f"publish {topic}")
        return 1

    def poll(self, milliseconds: int) -> list[Any]:
        events, self.events = self.events, []
        return events

    def close(self) -> None:
        self.asked.append("close")


def test_a_subscription_is_all_that_is_sent(comparison: Comparison) -> None:
    line = Line()
    others = Others(line, Config(), comparison)  # type: ignore[arg-type]
    others.campaign = SUM  # type: ignore[assignment]
    others.connect()
    assert others.poll(0) == []
    line.events = [(CONNECTED,)]
    assert others.poll(0) == [(CONNECTED,)]
    message = (MESSAGE, TOPIC, memoryview(published(10, 200.0)), True)
    line.events = [message, (ACKED, 1), (MESSAGE, "undertone/v2/load/config", b"x", True), (DENIED, TOPIC)]
    # The device's own client gets only messages of its own topics.
    assert [event[0] for event in others.poll(0)] == [ACKED, MESSAGE]
    assert line.asked == ["connect", f"subscribe {TOPIC}"]
    assert comparison.summary(11 * SLOT, 0) is not None
    line.events = [(LOST, "gone")]
    line.reached = True
    assert others.poll(0) == [(LOST, "gone")]
    assert others.reached
    others.connect()
    line.events = [(CONNECTED,)]
    others.poll(0)
    others.poll(0)
    assert line.asked[-2:] == ["connect", f"subscribe {TOPIC}"]
    assert (others.places, others.configured, others.oversized) == (line.places, line.configured, 0)


def test_off_does_not_subscribe(comparison: Comparison) -> None:
    comparison.switch(False)
    line = Line()
    others = Others(line, Config(), comparison)  # type: ignore[arg-type]
    others.connect()
    line.events = [(CONNECTED,)]
    others.poll(0)
    others.poll(0)
    assert line.asked == ["connect"]
    comparison.switch(True)
    others.poll(0)
    assert line.asked == ["connect", f"subscribe {TOPIC}"]


def test_a_home_in_a_group_hears_the_mean_of_its_group(comparison: Comparison, kept: Memory) -> None:
    line = Line()
    config = Config(load="north")
    others = Others(line, config, comparison)  # type: ignore[arg-type]
    others.campaign = SUM  # type: ignore[assignment]
    connect(others, line)
    north = TOPIC.replace("/all/", "/north/")
    assert line.asked == ["connect", f"subscribe {north}"]
    line.events = [(MESSAGE, north, published(10, 200.0), True), (MESSAGE, TOPIC, published(11, 500.0), True)]
    assert [event[1] for event in others.poll(0)] == [TOPIC]
    assert (comparison.group, other_mean(comparison)) == ("north", 200_000)
    assert Comparison(kept).group == "north"  # type: ignore[arg-type]


def test_after_a_hand_over_a_home_compares_with_all_homes_of_the_next_campaign(comparison: Comparison) -> None:
    """Only the server knows the home's group in the next campaign."""
    line = Line()
    config = Config(load="north")
    others = Others(line, config, comparison)  # type: ignore[arg-type]
    others.campaign = SUM  # type: ignore[assignment]
    connect(others, line)
    north, heat = TOPIC.replace("/all/", "/north/"), TOPIC.replace("/load/", "/heat/")
    line.events = [(MESSAGE, north, published(10, 200.0), True)]
    others.poll(0)
    config.campaigns = ("load", "heat")
    config.successors = ("heat",)
    connect(others, line)
    assert line.asked[-2:] == [f"subscribe {north}", f"subscribe {heat}"]
    others.campaign = Campaign(name="heat")  # type: ignore[assignment]
    # Means of the former campaign that still come are no means of the next campaign.
    line.events = [(MESSAGE, heat, published(11, 500.0), True), (MESSAGE, north, published(12, 200.0), True)]
    assert others.poll(0) == []
    assert (comparison.group, other_mean(comparison)) == ("all", 500_000)
    # A device that came back to its first campaign does not know its group either.
    config.successors = ("load",)
    connect(others, line)
    assert line.asked[-2:] == [f"subscribe {TOPIC}", f"subscribe {heat}"]


def connect(others: Others, line: Line) -> None:
    """Connect, and subscribe to the published means."""
    others.connect()
    line.events = [(CONNECTED,)]
    others.poll(0)
    others.poll(0)


def other_mean(comparison: Comparison) -> int:
    """Return the mean of the other homes that is shown, in thousandths."""
    answer = comparison.summary(20 * SLOT, 0)
    assert answer is not None
    mean: int = answer["others"]["mean"]
    return mean
