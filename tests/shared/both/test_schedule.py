"""The schedule never changes, equals its definition, and spreads devices evenly."""

from undertone_shared.errors import Invalid
from undertone_shared.schedule import Schedule, check_coprime

SEED = bytes(range(16))


def turns(schedule, device, slots):
    place = schedule.place(device)
    return [slot for slot in slots if schedule.is_turn(place, slot)]


def members(schedule, device, slots):
    place = schedule.place(device)
    return [slot for slot in slots if schedule.is_member(place, slot)]


def invalid(function, *arguments):
    try:
        function(*arguments)
    except Invalid as error:
        return str(error)
    raise AssertionError("accepted %r" % (arguments,))


def test_the_rule_is_frozen():
    # Whoever changes these numbers changes who reports when in every campaign in the field.
    schedule = Schedule(SEED, 49, 19)
    assert [schedule.place("meter-%d" % i) for i in range(4)] == [578, 208, 455, 555]
    assert turns(schedule, "meter-1", range(1000000, 1000200)) == [1000029, 1000078, 1000127, 1000176]
    assert members(Schedule(SEED, 1, 19), "meter-1", range(1000000, 1000060)) == [1000002, 1000021, 1000040, 1000059]


def test_the_place_is_the_rule():
    import hashlib

    for stride, cohort in ((1, 1), (1, 19), (49, 1), (49, 19), (3, 0), (1, 0)):
        schedule = Schedule(SEED, stride, cohort)
        for i in range(20):
            device = "meter-%d" % i
            digest = hashlib.sha256(SEED + device.encode()).digest()
            h, second = int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big")
            place = schedule.place(device)
            for slot in range(990000, 990000 + 2 * stride * max(cohort, 1)):
                turn = (slot + h) % stride == 0
                assert schedule.is_turn(place, slot) == turn
                number = (slot + h) // stride
                assert schedule.is_member(place, slot) == (turn and cohort > 0 and (number + second) % cohort == 0)


def test_all_report_or_nobody_does():
    assert members(Schedule(SEED, 1, 1), "meter-1", range(50)) == list(range(50))
    assert members(Schedule(SEED, 1, 0), "meter-1", range(50)) == []
    assert turns(Schedule(SEED, 1, 0), "meter-1", range(50)) == list(range(50))


def test_a_device_walks_through_all_hours():
    schedule = Schedule(SEED, 49, 19)
    for device in ("meter-1", "meter-2"):
        slots = turns(schedule, device, range(0, 48 * 49))
        assert sorted(slot % 48 for slot in slots) == list(range(48))
        slots = members(schedule, device, range(0, 48 * 49 * 19))
        assert sorted(slot % 48 for slot in slots) == list(range(48))


def test_strides_that_do_not_fit_are_refused():
    assert "schedule.seed" in invalid(Schedule, b"short", 1, 1)
    assert "schedule.seed" in invalid(Schedule, "0" * 16, 1, 1)
    assert "schedule.stride is 0" in invalid(Schedule, SEED, 0, 1)
    assert "schedule.cohort_stride is -1" in invalid(Schedule, SEED, 1, -1)
    assert "schedule.cohort_stride is True" in invalid(Schedule, SEED, 1, True)
    assert "divisor in common with the stride 49" in invalid(Schedule, SEED, 49, 21)
    assert "schedule.stride is 6, expected no divisor in common with the cycle 48" in invalid(
        check_coprime, "stride", 6, "cycle", 48
    )
    check_coprime("stride", 49, "cycle", 48)
    check_coprime("cohort_stride", 0, "cycle", 48)


def test_strides_up_to_their_limit_and_no_further():
    largest = 1 << 20
    assert Schedule(SEED, largest, 0).stride == Schedule(SEED, 1, largest).cohort_stride == largest
    assert "schedule.stride is %d" % (largest + 1) in invalid(Schedule, SEED, largest + 1, 0)
    assert "schedule.cohort_stride is %d" % (largest + 1) in invalid(Schedule, SEED, 1, largest + 1)
