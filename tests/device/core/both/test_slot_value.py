"""The value of a slot, computed from the slot's samples by each measure."""

from array import array

from rig import SLOT, START, Ticks, make_campaign

from undertone_device.core.buffers import slot_value, summary
from undertone_device.core.slot_value import OpenSlot, SlotValue
from undertone_shared.errors import Invalid


def value(measure, samples, modulus=0):
    slot = SlotValue(measure, modulus)
    for sample in samples:
        slot.add(sample, 0)
    return slot.close(0)


MEASURES = ("sum", "mean", "last", "max", "duration", "counter")


def test_a_burst_gives_what_its_samples_give_one_by_one():
    for values in ([3], [0, 1], [1, 0], [200, 3, 255, 7], list(range(250)), [0] * 130):
        for kind in (
            list,
            bytes,
            bytearray,
            lambda values: memoryview(bytes(values)),
            lambda values: array("H", values),
        ):
            for measure in MEASURES:
                one, burst = SlotValue(measure), SlotValue(measure)
                for start in (0, 5000):
                    for value in values:
                        one.add(value, start)
                    burst.add_many(kind(values), start)
                    assert burst.close(start + 3000) == one.close(start + 3000), (measure, values)


def test_an_empty_burst_is_no_sample():
    for measure in MEASURES:
        slot = SlotValue(measure)
        slot.add_many(b"", 0)
        assert slot.close(0) is None


def test_a_burst_of_another_type_is_refused():
    for bad in (1.5, "12", {1: 2}, {1}, iter([1]), ["1"], [1.5], [1 << 30], array("f", [1, 2])):
        for measure in MEASURES:
            slot = SlotValue(measure)
            try:
                slot.add_many(bad, 0)
            except Invalid as error:
                assert "expected" in str(error)
            else:
                raise AssertionError(bad)
            assert slot.close(0) is None


def test_the_value_of_a_whole_slot_from_a_buffer():
    samples = [3, -8, 5, 7, 2]
    assert [slot_value(measure, samples) for measure in ("sum", "mean", "max", "last")] == [9, 2, 7, 2]
    assert slot_value("mean", []) is None
    for measure in ("duration", "counter"):
        try:
            slot_value(measure, samples)
        except Invalid as error:
            assert measure in str(error)
        else:
            raise AssertionError(measure)


def test_sum_mean_last_max():
    samples = (3, -8, 5, 7, 2)
    assert value("sum", samples) == 9
    assert value("mean", samples) == 2
    assert value("last", samples) == 2
    assert value("max", samples) == 7
    assert value("max", (-5, -9)) == -5


def test_a_mean_is_rounded_half_up():
    assert value("mean", (1, 2)) == 2
    assert value("mean", (-1, -2)) == -1
    assert value("mean", (1, 1, 2)) == 1


def test_no_sample_no_value():
    for measure in ("sum", "mean", "last", "max", "duration", "counter"):
        assert value(measure, ()) is None


def test_a_slot_starts_from_nothing():
    slot = SlotValue("sum")
    slot.add(5, 0)
    assert slot.close(0) == 5
    slot.add(1, 0)
    assert slot.close(0) == 1


def test_duration_counts_the_seconds_in_the_state_across_slots():
    slot = SlotValue("duration")
    slot.add(1, 1000)
    slot.add(0, 4500)
    slot.add(1, 10000)
    assert slot.close(12000) == 5
    assert slot.close(42000) == 30  # on all the time, though without a sample
    slot.add(0, 43000)
    assert slot.close(50000) == 1
    assert slot.close(60000) is None


def test_a_duration_ends_with_its_slot_however_late_anybody_looks():
    """A machine that was suspended at the end of a slot wakes up hours later. These hours do not belong to the slot."""
    ticks = Ticks()
    ticks.now = (1 << 30) - 700000
    campaign = make_campaign(measure="duration", unit="s", bound=SLOT)
    opened = OpenSlot(0, None)
    opened.open(campaign, START, START, 0, ticks())
    ticks.now += (SLOT - 300) * 1000
    opened.value.add(1, ticks())
    ticks.now += 7200 * 1000
    opened.close(ticks())
    assert opened.finished[2] == 300
    # If the machine looks in time or a little late, the next slot begins where this one ended.
    ticks.now += 5
    opened.open(campaign, START + SLOT, START + SLOT, 0, ticks())
    ticks.now += SLOT * 1000
    opened.close(ticks())
    opened.open(campaign, START + 2 * SLOT, START + 2 * SLOT, 0, ticks())
    ticks.now += SLOT * 1000 + 900
    opened.close(ticks())
    opened.open(campaign, START + 3 * SLOT, START + 3 * SLOT, 0, ticks())
    opened.value.add(0, ticks())
    ticks.now += (SLOT - 1) * 1000
    opened.close(ticks())
    assert opened.finished[2] == 0


def test_duration_survives_the_wrap_of_the_ticks():
    slot = SlotValue("duration")
    slot.add(1, (1 << 30) - 2000)
    assert slot.close(3000) == 5


def test_a_counter_gives_differences_that_share_no_consumption():
    slot = SlotValue("counter", 1000)
    slot.add(900, 0)
    assert slot.close(0) is None  # the first reading only gives the start of the next slot's value
    slot.add(950, 0)
    slot.add(20, 0)
    assert slot.close(0) == 120
    assert slot.close(0) is None
    slot.add(25, 0)
    assert slot.close(0) is None  # the value would reach back over a slot without a reading
    slot.add(28, 0)
    assert slot.close(0) == 3


def test_a_buffer_counts_like_its_samples():
    buffer = array("i", (5, 9, -2, 7, 1, 1, 1, 1, 1, 1))
    for measure in ("sum", "mean", "last", "max"):
        slot = SlotValue(measure)
        slot.add_many(buffer, 0)
        assert slot.close(0) == value(measure, buffer)
    assert summary(buffer)[1] == 25


def test_only_integers_of_thirty_bits_are_samples():
    for sample in (0.5, "1", None, 1 << 30, -(1 << 30)):
        try:
            value("sum", (sample,))
        except Invalid as error:
            assert "a sample is" in str(error)
        else:
            raise AssertionError(sample)


def test_every_sample_of_a_buffer_is_checked():
    for measure in ("sum", "mean", "max", "last", "duration", "counter"):
        for bad in (1.5, 1 << 40, -(1 << 30), None, "3"):
            value = SlotValue(measure)
            try:
                value.add_many([1, bad, 2], 0)
            except Invalid as error:
                # A sample is a reading, so the sentence must not contain it: it may reach a log.
                assert "sample" in str(error) and str(1 << 40) not in str(error)
            else:
                raise AssertionError((measure, bad))
