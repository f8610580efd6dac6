"""Every bit is flipped in messages without a checksum: of MQTT, and of Home Assistant.

If a character outside the number changes, there is no reading or the true one. If a character of the number changes,
the reading may be wrong: the declared range bounds it. A source that is asked, such as a file or a command, can be read
twice, and then a difference of the two readings is noticed.
"""

import sys

import pytest

from support.refusal import refused, told
from undertone_device.host.sources import network
from undertone_device.host.sources.network import number_in
from undertone_device.host.sources.source import Plausible, SensorSource, parse_sample
from undertone_shared.errors import Invalid

RANGE = (0, 20_000)
# (payload, field, scale, reading, the number as it stands in the payload)
PAYLOADS = {
    "zigbee2mqtt": (b'{"energy": 12.345, "linkquality": 90}', "energy", (1000, 1), 12345, b"12.345"),
    "tasmota": (b'{"Time":"2026-11-21T22:00:00","ENERGY":{"Total":9.5}}', "ENERGY.Total", (1000, 1), 9500, b"9.5"),
    "statestream": (b"7042", None, (1, 1), 7042, b"7042"),
    "home-assistant": (b'{"entity_id": "sensor.e", "state": "1234"}', "state", (1, 1), 1234, b"1234"),
}


class Fixed(SensorSource):
    """A source that gives one payload after another."""

    def __init__(self, payloads, field, scale):
        self._payloads = list(payloads)
        self._of = (field, scale)

    def sample(self, now):
        return number_in(self._payloads.pop(0), *self._of)


def flips(payload):
    """(position of a byte, the payload with one bit of this byte flipped), for every bit."""
    for position in range(8 * len(payload)):
        damaged = bytearray(payload)
        damaged[position >> 3] ^= 1 << (position & 7)
        yield position >> 3, bytes(damaged)


def reading_of(source):
    try:
        return source.read(0)
    except ValueError:
        assert source.trouble.startswith("no sample: ")
        return None


@pytest.mark.parametrize("name", PAYLOADS)
def test_only_a_digit_becomes_another_reading_and_only_within_the_range(name):
    payload, field, scale, true, number = PAYLOADS[name]
    digits = range(payload.index(number), payload.index(number) + len(number))
    others = []
    for position, damaged in flips(payload):
        reading = reading_of(Plausible(Fixed([damaged], field, scale), RANGE))
        if reading not in (None, true):
            assert position in digits, damaged
            assert RANGE[0] <= reading <= RANGE[1]
            others.append(reading)
    # A digit that changes within the range is not noticed.
    assert others
    # Without a range, the source accepts at least as many wrong readings.
    unbounded = [reading_of(Plausible(Fixed([damaged], field, scale))) for _, damaged in flips(payload)]
    assert len([reading for reading in unbounded if reading not in (None, true)]) >= len(others)


@pytest.mark.parametrize("name", PAYLOADS)
@pytest.mark.parametrize("second", [False, True])
def test_no_bit_of_one_of_two_reads_gives_another_reading(name, second):
    payload, field, scale, true, _ = PAYLOADS[name]
    for _, damaged in flips(payload):
        answers = [payload, damaged] if second else [damaged, payload]
        assert reading_of(Plausible(Fixed(answers, field, scale), twice=True)) in (None, true)


def test_a_file_and_a_command_are_read_twice(opened, tmp_path):
    (tmp_path / "meter").write_text("42\n", encoding="utf-8")
    count = tmp_path / "count"
    print_once = f"import pathlib; p = pathlib.Path({str(count)!r}); print(len(p.read_text())); p.write_text('xx')"
    count.write_text("x", encoding="utf-8")
    assert opened(kind="file", path=str(tmp_path / "meter"), twice=True).read(0) == 42
    command = opened(kind="command", command=[sys.executable, "-c", print_once], twice=True, timeout_seconds=600)
    with pytest.raises(ValueError, match="differ"):
        command.read(0)
    assert command.read(0) == 2


def test_a_range_holds_for_what_arrives_and_what_is_asked(opened, tmp_path):
    (tmp_path / "meter").write_text("42", encoding="utf-8")
    meter = opened(kind="file", path=str(tmp_path / "meter"), range=[0, 41])
    with refused(0, 41, error=ValueError):
        meter.read(0)
    assert told(meter.trouble, "no sample", 0, 41)
    (tmp_path / "meter").write_text("41", encoding="utf-8")
    assert (meter.read(0), meter.trouble) == (41, "")


def test_why_a_read_failed_is_said_until_the_next_read(opened, tmp_path):
    meter = opened(kind="file", path=str(tmp_path / "meter"))
    with pytest.raises(OSError, match="meter"):
        meter.read(0)
    # The loop reads the source once in a slot, and asks in every round whether anything has arrived. Asking does not
    # clear the trouble.
    assert meter.arrived() == []
    assert meter.trouble.startswith("no sample: ")
    (tmp_path / "meter").write_text("42", encoding="utf-8")
    assert (meter.read(0), meter.arrived(), meter.trouble) == (42, [], "")


def test_what_arrives_outside_the_range_is_said_until_something_better_comes():
    class Arriving(SensorSource):
        polled = False

        def __init__(self):
            self._batches = [[5, 99], [], [7]]

        def arrived(self):
            return self._batches.pop(0)

    source = Plausible(Arriving(), (0, 10))
    assert source.arrived() == [5]
    assert told(source.trouble, "no sample", 0, 10)
    assert source.arrived() == []
    assert source.trouble
    assert source.arrived() == [7]
    assert source.trouble == ""


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"range": [5, 4]}, r"source.range is \[5, 4\], expected the list \[lowest, highest\]"),
        ({"range": [5]}, "source.range is not a list of 2 integers"),
        ({"range": "5"}, "source.range is not a list"),
        ({"twice": 1}, "source.twice is 1, expected true or false"),
    ],
)
def test_wrong_fields_are_named(opened, fields, sentence):
    with pytest.raises(Invalid, match=sentence):
        opened(kind="file", path="meter", **fields)


def test_what_arrives_by_itself_is_not_read_twice(opened):
    with pytest.raises(Invalid, match="twice"):
        opened(kind="constant", value=1, twice=True)
    assert "twice" not in network.KINDS["mqtt"].optional


@pytest.mark.parametrize("text", ["7431.5", "7431x"])
def test_no_reading_is_quoted_where_the_status_and_the_log_would_hold_it(text):
    source = Plausible(Quoting(text))
    with pytest.raises(ValueError, match="a sample is no integer"):
        source.read(0)
    assert "7431" not in source.trouble


class Quoting(SensorSource):
    def __init__(self, text):
        self._text = text

    def sample(self, now):
        return parse_sample(self._text)
