"""The rest, sliding caps, lifetime and pause in the real reporter, with honest and hostile clocks."""

import sys

from rig import DAY, SLOT, START, Device, make_campaign, make_policy
from stream_rig import rule, stream_campaign

from undertone_device.core.ledger import in_ticks
from undertone_device.core.reporter import Reporter
from undertone_device.core.units import epsilon_units
from undertone_shared.errors import Invalid, Refused
from undertone_shared.off_board import intake

WRAP = 1 << 30
# MicroPython makes fewer steps of the same search, because CPython makes all of them.
STEPS = 600 if sys.implementation.name == "micropython" else 3000


def resting(seconds, **policy):
    device = Device(now=START - SLOT, rest_seconds=seconds, boots_per_day=1000, **policy)
    device.accept(CAMPAIGN)
    device.reporter.close_slot(device.now)
    return device


# The campaign lasts long enough for all tests, and is made once because devices get it thousands of times.
CAMPAIGN = make_campaign(last_slot=(START + 300 * DAY) // SLOT - 1)


def steps(values):
    """The differences of neighbouring values."""
    return [values[i] - values[i - 1] for i in range(1, len(values))]


def drawn(device, slots, tell=True):
    """The slots that the device draws during ``slots`` slots of an honest clock, relative to the start.

    With ``tell``, the device hears its server after each slot.
    """
    result = []
    for _ in range(slots):
        report = device.slot()
        if report is not None:
            result.append(intake.unpack(report).slot - START // SLOT)
        if tell:
            device.accept(CAMPAIGN)
    return result


def test_31_of_32_seconds_have_to_be_counted_and_no_less():
    for seconds in (0, 1, 31, 32, 33, 63, 64, 1055, 1056, 3600, DAY, 366 * DAY):
        assert 32 * (in_ticks(seconds) - 1) < 31 * seconds <= 32 * in_ticks(seconds), seconds


def test_no_interval_is_closer_than_the_rest_to_the_last_one():
    for hours in (1, 3, 24):
        slots = drawn(resting(hours * 3600), 150)
        w = hours * 2
        assert len(slots) >= 100 // (w + 1)
        # After the boot, a rest of ticks passes before the first draw. Then the device draws as soon as the rest is
        # over.
        assert slots[0] >= w - 1
        assert steps(slots) == [w + 1] * (len(slots) - 1)


def test_without_rest_every_slot_is_drawn():
    assert drawn(resting(0), 40) == list(range(39))


def test_a_boot_waits_a_whole_rest_of_ticks():
    device = resting(3 * 3600)
    while not drawn(device, 1):
        pass
    for _ in range(8):
        # The device runs for two hours after each boot, so a whole rest never passes in one boot.
        device.boot()
        device.accept(CAMPAIGN)
        device.reporter.close_slot(device.now)
        assert drawn(device, 4) == []
    assert device.reporter.paused == "rest"
    assert drawn(device, 10) != []


def test_six_days_of_rest_and_a_counter_that_comes_round():
    rest = 6 * DAY
    device = Device(now=START - SLOT, rest_seconds=rest, slot_seconds=SLOT)
    device.ticks.now = WRAP - 5 * SLOT * 1000
    # The device reads the counter when it boots.
    storage, ticks = device.storage, device.ticks
    device.boot()
    device.ticks.now = 0
    assert device.storage is storage and device.ticks is not ticks
    device.accept(CAMPAIGN)
    device.reporter.close_slot(device.now)
    slots = drawn(device, 48 * 45)
    assert steps(slots) == [6 * 48 + 1] * 6
    assert device.ticks.now > 3 * WRAP


def test_ticks_that_come_round_while_nothing_is_reported_do_not_shorten_the_rest():
    device = resting(DAY)
    while not drawn(device, 1):
        pass
    # For sixteen days, the device does not hear its server. It reports in the first three of them. The last thirteen,
    # in which nothing is reported, are longer than one round of the counter.
    for slot in range(16 * 48):
        device.pass_time(SLOT)
        assert device.reporter.close_slot(device.now) is None or slot < 3 * 48
    device.accept(CAMPAIGN)
    device.reporter.close_slot(device.now)
    assert drawn(device, 3) != []


def test_a_hostile_clock_gets_one_report_in_a_rest_of_ticks():
    # In each step, ``tempo`` seconds pass by the ticks, and the clock moves on by a slot or by half a slot.
    rest = DAY
    for tempo in (1, 10, SLOT, 4 * SLOT):
        device = resting(rest)
        times = []
        for step in range(STEPS):
            device.pass_time(tempo, clock=SLOT if step % 3 else SLOT // 2)
            if step % 50 == 0:
                device.accept(CAMPAIGN, device.now)
            report = device.reporter.close_slot(device.now)
            if report is not None:
                times.append(device.ticks.now)
        assert min(steps(times) + [in_ticks(rest) * 1000]) >= in_ticks(rest) * 1000, tempo
        assert (len(times) > 1) == (tempo >= SLOT), tempo


def test_a_slot_stretched_from_just_after_a_draw_is_not_reported():
    # The rest is measured up to the opening of a slot, not up to its draw.
    device = resting(DAY)
    while not drawn(device, 1):
        pass
    # The open slot began when the last one was drawn. The clock stands still for two days, and then moves on by a slot.
    device.pass_time(2 * DAY, clock=0)
    device.reporter.close_slot(device.now)
    device.pass_time(0, clock=SLOT)
    # The server confirms the wrong clock. Otherwise, the ticks would show that the clock stood still.
    device.accept(CAMPAIGN)
    assert device.reporter.close_slot(device.now) is None
    assert device.reporter.paused == "rest"


def test_a_clock_set_forward_alone_does_not_pass_the_rest():
    device = resting(DAY)
    while not drawn(device, 1):
        pass
    device.pass_time(SLOT, clock=DAY - SLOT)
    device.accept(CAMPAIGN)
    device.reporter.close_slot(device.now)
    device.slot()
    assert device.slot() is None
    assert device.reporter.paused == "rest"


def test_two_campaigns_share_the_rest():
    device = resting(DAY)
    slots = drawn(device, 100)
    following = make_campaign(epoch=START + 3 * DAY, default=1, last_slot=(START + 300 * DAY) // SLOT - 1)
    device.accept(following)
    for _ in range(150):
        report = device.slot()
        device.accept(following)
        if report is not None:
            slots.append(intake.unpack(report).slot - START // SLOT)
    assert device.reporter.campaign.fingerprint == following.fingerprint
    assert steps(slots) == [49] * (len(slots) - 1)


def test_a_sleeper_with_a_counter_rests_through_its_sleep():
    device = resting(DAY)
    while not drawn(device, 1):
        pass
    since = 0
    slots = [device.reporter.ledger.spent_until // SLOT - 1]
    for _ in range(120):
        device.pass_time(SLOT)
        since += SLOT * 1000
        device.boot(asleep=since)
        device.accept(CAMPAIGN)
        report = device.reporter.run_once(3, device.now)
        if report is not None:
            since = 0
            slots.append(intake.unpack(report).slot)
    assert steps(slots) == [49, 49]


def test_a_sleeper_without_a_counter_must_say_that_it_trusts_the_clock():
    for fields in ({"one_shot": True, "rest_by": "ticks"}, {"rest_by": "sun"}, {"rest_seconds": 6 * DAY + 1}):
        try:
            Device(**fields)
        except Invalid as error:
            assert "rest" in str(error)
        else:
            raise AssertionError(fields)
    device = resting(DAY, one_shot=True)
    assert device.policy.rest_by == "clock"
    slots = []
    for _ in range(150):
        device.pass_time(SLOT)
        device.boot()
        device.accept(CAMPAIGN)
        report = device.reporter.run_once(3, device.now)
        if report is not None:
            slots.append(intake.unpack(report).slot)
    assert len(slots) == 3
    assert steps(slots) == [49, 49]


def test_streams_are_refused_where_there_is_rest():
    device = Device(now=START - SLOT, rest_seconds=DAY, stream={"rho": 1 << 30, "period_seconds": DAY})
    try:
        device.accept(stream_campaign(rule()))
    except Refused as refused:
        assert refused.reason == "rest"
    else:
        raise AssertionError("accepted")


# --- sliding caps


def told_by_a_counter(rest, silent, pause=b""):
    """(first reading, last reading) of each value that was drawn.

    A reading is the number of seconds since the device began. In the slots of ``silent``, there is no reading.
    """
    device = Device(now=START - SLOT, rest_seconds=rest, boots_per_day=1000, measures=["counter"])
    device.storage.files["pause"] = pause
    device.accept(make_campaign(measure="counter", last_slot=(START + 300 * DAY) // SLOT - 1))
    told = []
    readings = [0]

    def release(campaign, slot, value):
        if value:
            told.append((readings[-1] - value, readings[-1]))
        return Reporter._release(device.reporter, campaign, slot, value)

    device.reporter._release = release
    for step in range(100):
        for _ in range(2):
            device.pass_time(SLOT // 2 - 7)
            device.reporter.close_slot(device.now)
            if step not in silent:
                readings.append(device.now - START + SLOT)
                device.reporter.observe(readings[-1], device.now)
        device.pass_time(14)
    return told


def test_a_counters_value_reaches_back_over_no_silence_and_its_base_leaves_the_rest():
    """A value covers less than two slots, and its first reading comes at least a rest after the last value's end."""
    rest = 4 * SLOT
    for silent in ((), (5,), (5, 6, 7, 8, 9), tuple(range(3, 100, 7))):
        told = told_by_a_counter(rest, silent)
        assert len(told) >= 5, told
        for i in range(len(told)):
            begin, end = told[i]
            assert end - begin < 2 * SLOT, (silent, told)
            assert i == 0 or begin >= told[i - 1][1] + rest, (silent, told)


def test_four_a_day_is_four_in_any_day():
    # A cap by calendar days would allow eight reports in three and a half hours around midnight, with an honest clock.
    device = resting(0, reports_per_period=4)
    device.pass_time(DAY - 4 * SLOT)
    device.accept(CAMPAIGN)
    device.reporter.close_slot(device.now)
    slots = drawn(device, 20 * 48)
    assert len(slots) == 80
    for i in range(len(slots) - 4):
        assert slots[i + 4] - slots[i] >= 48


def test_a_day_of_every_slot_fits_its_cap_of_every_slot():
    device = resting(0, reports_per_period=48)
    assert len(drawn(device, 480)) == 479


def test_a_clock_that_lies_with_the_server_does_not_refill_the_cap():
    # In this attack, the clock moves by a day while two slots pass by the ticks. The cap of four a day still holds.
    device = resting(0, reports_per_period=4)
    reports = 0
    for _ in range(24):
        device.pass_time(0, clock=DAY - 2 * SLOT)
        device.accept(CAMPAIGN, device.now)
        device.reporter.close_slot(device.now)
        reports += len(drawn(device, 2))
    assert reports == 4
    # Booting does not help the attacker either.
    for _ in range(6):
        device.boot()
        device.pass_time(0, clock=DAY)
        device.accept(CAMPAIGN, device.now)
        device.reporter.close_slot(device.now)
        reports += len(drawn(device, 2))
    assert reports == 4


# --- sums


def test_units_are_the_ceiling_of_the_logarithm():
    assert epsilon_units(1, 1) == 0
    assert epsilon_units(2721, 1001) == 1 << 20
    assert epsilon_units(2564, 347) == 2097151
    assert epsilon_units(2, 1) == 726818  # 2^20 ln 2 = 726817.498
    assert epsilon_units(1 << 62, 1) == 45062685


def test_what_was_spent_ever_survives_reboots_and_ends_a_lifetime():
    unit = epsilon_units(2, 1)
    device = resting(0, lifetime=10 * unit + unit - 1)
    assert len(drawn(device, 8)) == 7
    device.boot()
    device.accept(CAMPAIGN)
    device.reporter.close_slot(device.now)
    assert len(drawn(device, 20)) == 3
    assert device.reporter.paused == "lifetime"
    assert device.reporter.ledger.ever == 10 * unit
    assert device.reporter.ledger.sequence == 10
    device.boot()
    assert device.reporter.ledger.ever == 10 * unit
    device.pass_time(40 * DAY)
    device.accept(CAMPAIGN, device.now)
    assert drawn(device, 20) == []


# --- a household's pause


def test_a_pause_covers_every_slot_that_it_touches_and_no_other():
    device = resting(0)
    device.storage.files["pause"] = b"%d %d" % (START + 10 * SLOT + 1, START + 12 * SLOT)
    assert drawn(device, 20) == [slot for slot in range(19) if slot not in (10, 11)]
    for torn in (b"soon", b"1", b""):
        device.storage.files["pause"] = torn
        assert (drawn(device, 1) == []) == (torn != b"")


def test_no_counter_tells_what_was_consumed_in_a_pause():
    # The readings count seconds from one slot before the start.
    begin, end = 11 * SLOT, 14 * SLOT
    pause = b"%d %d" % (START + 10 * SLOT, START + 13 * SLOT)
    for silent in ((), (12, 13), (11, 12, 13, 14)):
        told = told_by_a_counter(0, silent, pause)
        assert len(told) > 40
        assert [value for value in told if value[0] < end and value[1] > begin] == [], silent


def test_a_pause_is_the_same_whatever_was_read():
    taken = []
    for reading in (0, 1000):
        device = resting(0)
        device.storage.files["pause"] = b"%d %d" % (START + 3 * SLOT, START + 5 * SLOT)
        slots = []
        for _ in range(12):
            report = device.slot(reading)
            slots.append(None if report is None else intake.unpack(report).slot)
        taken.append(slots)
    assert taken[0] == taken[1]


def test_a_cap_of_every_slot_leaves_none_out_however_short_they_are():
    for seconds, slots in ((900, 200), (300, 600)):
        device = Device(now=START - seconds, slot_seconds=seconds, reports_per_period=DAY // seconds)
        short = make_campaign(slot_seconds=seconds, cycle=DAY // seconds, last_slot=START // seconds + 1000)
        device.accept(short)
        device.reporter.close_slot(device.now)
        device.pass_time(seconds)
        device.reporter.close_slot(device.now)
        for slot in range(slots):
            device.pass_time(seconds)
            assert device.reporter.close_slot(device.now) is not None, (seconds, slot, device.reporter.paused)
            if slot % 50 == 0:
                device.accept(short)


def test_a_lifetime_is_spent_to_its_last_unit():
    device = resting(0, lifetime=3 * epsilon_units(2, 1))
    assert len(drawn(device, 8)) == 3
    assert device.reporter.paused == "lifetime"


# --- to the second


def by_seconds(**policy):
    """A device whose slots last a second."""
    device = Device(now=START - 1, slot_seconds=1, write_seconds=1, reports_per_period=DAY, **policy)
    device.accept(make_campaign(slot_seconds=1, last_slot=START + DAY))
    device.reporter.close_slot(device.now)
    return device


def test_a_rest_of_ticks_is_that_and_the_second_that_uptime_may_be_off():
    # The steps are 33 s: a slot of a second, a rest of 31 s by the clock and by the ticks, and one second more, because
    # uptime is in whole seconds.
    device = by_seconds(rest_seconds=31)
    slots = []
    for _ in range(200):
        device.pass_time(1)
        report = device.reporter.close_slot(device.now)
        if report is not None:
            slots.append(intake.unpack(report).slot)
    assert steps(slots) == [33] * 5


def test_a_sleeper_rests_that_long_too():
    device = by_seconds(rest_seconds=31)
    slots = []
    since = None
    for _ in range(200):
        device.pass_time(1)
        if since is not None:
            since += 1000
            device.boot(asleep=since)
            device.accept(make_campaign(slot_seconds=1, last_slot=START + DAY))
        report = device.reporter.run_once(3, device.now)
        if report is not None:
            since = 0
            slots.append(intake.unpack(report).slot)
    assert steps(slots) == [33] * 5


def test_a_sleep_is_uptime():
    device = by_seconds()
    device.boot()
    before = device.reporter.ledger.uptime
    device.boot(asleep=1000000999)
    assert device.reporter.ledger.uptime - before == 1000000


def test_a_sleep_counts_once_however_often_the_ledger_is_written_in_it():
    device = Device(now=START - SLOT, reports_per_period=1)
    device.accept(make_campaign())
    began = device.reporter.ledger.uptime
    device.pass_time(2 * SLOT)
    device.reporter.run_once(3, device.now)
    assert len(device.reporter.outbox) == 1
    for wake in range(1, 40):
        device.pass_time(SLOT)
        device.boot(asleep=wake * SLOT * 1000)
        device.reporter.run_once(3, device.now)
        # A server that has the key issues a new epoch at each wake-up. So the device writes its ledger at each wake-up.
        device.accept(make_campaign(epoch=START + wake * SLOT, cycle=1))
        device.reporter.run_once(3, device.now)
        assert began + wake * SLOT <= device.reporter.ledger.uptime <= began + (wake + 2) * SLOT, wake


def test_a_cap_of_every_slot_takes_over_from_another_without_a_gap():
    device = Device(now=START, one_shot=True, reports_per_period=4)
    device.accept(CAMPAIGN)
    device.pass_time(SLOT)
    for most in (4, 4, 48, 48):
        device.policy = make_policy(one_shot=True, reports_per_period=most)
        device.boot()
        device.accept(CAMPAIGN)
        assert device.reporter.run_once(3, device.now) is not None, (most, device.reporter.paused)
        assert device.reporter.ledger.spent_until == device.now
        device.pass_time(SLOT)


def test_no_more_is_reserved_than_the_time_between_writes():
    # ``ahead``: how many slots of 30 s are reserved beyond the one that is drawn, if ``seconds`` lie between two
    # writes.
    for seconds, ahead in ((1, 0), (30, 0), (31, 1), (60, 1), (61, 2), (90, 2)):
        device = Device(now=START - 30, slot_seconds=30, write_seconds=seconds, reports_per_period=DAY // 30)
        device.accept(make_campaign(slot_seconds=30, last_slot=(START + DAY) // 30))
        device.reporter.close_slot(device.now)
        device.pass_time(30)
        device.reporter.close_slot(device.now)
        device.pass_time(30)
        assert device.reporter.close_slot(device.now) is not None
        drawn_until = device.reporter.ledger.spent_until
        device.boot()
        assert device.reporter.ledger.spent_until - drawn_until == 30 * ahead, seconds
        assert device.reporter.ledger.sequence == 1 + ahead


def test_the_ledger_is_written_once_in_the_time_between_writes():
    for seconds, writes in ((30, 12), (60, 6), (90, 4), (120, 3)):
        device = Device(now=START - 30, slot_seconds=30, write_seconds=seconds, reports_per_period=DAY // 30)
        device.accept(make_campaign(slot_seconds=30, last_slot=(START + DAY) // 30))
        drawn = []
        for _ in range(14):
            report = device.reporter.close_slot(device.now)
            if report is not None:
                drawn.append(device.storage.writes)
            device.pass_time(30)
        assert len(drawn[:12]) == 12
        assert drawn[11] - drawn[0] == writes - 1, (seconds, drawn)
