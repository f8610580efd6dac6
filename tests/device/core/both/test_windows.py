"""What was drawn in a window of time, under any campaigns: changed slot lengths, wrong clocks, pauses, lost files."""

from rig import DAY, SLOT, START, Device, make_campaign
from stream_rig import rule, stream_campaign

from undertone_device.core import pauses
from undertone_device.core.ledger import in_ticks
from undertone_device.core.reporter import Reporter
from undertone_shared.errors import Refused
from undertone_shared.off_board import intake

WEEK = 7 * DAY


def whole(seconds, epoch, **changes):
    """A campaign with slots of ``seconds`` from ``epoch`` on, long enough for every test."""
    return make_campaign(
        slot_seconds=seconds, cycle=1, epoch=epoch, last_slot=(START + 300 * DAY) // seconds, **changes
    )


def slots_of(reports):
    return [intake.unpack(report).slot for report in reports]


# --- where a counter's value begins


def told_after_a_change(long, short, began, pause=b"", **policy):
    """Return (first, last) of each value drawn after slots of ``short`` seconds replaced slots of ``long`` seconds.

    These are the seconds of the value's first and last reading, counted from ``began``. Before the change, four slots
    of ``long`` seconds pass from ``began`` on. Each has one reading, early in the slot.
    """
    device = Device(now=began, slot_seconds=short, measures=["counter"], boots_per_day=1000, **policy)
    device.storage.files["pause"] = pause
    told = []
    readings = [0]

    def release(campaign, slot, value):
        if value:
            told.append((readings[-1] - value, readings[-1]))
        return Reporter._release(device.reporter, campaign, slot, value)

    device.reporter._release = release

    def pass_slot(campaign):
        device.accept(campaign)
        device.reporter.close_slot(device.now)
        device.pass_time(60)
        readings.append(device.now - began)
        device.reporter.observe(readings[-1], device.now)
        device.pass_time(campaign.slot_seconds - 60)
        device.accept(campaign)
        device.reporter.close_slot(device.now)

    current = whole(long, began, measure="counter")
    for _ in range(3):
        pass_slot(current)
    following = whole(short, device.now + short, measure="counter")
    device.accept(following)
    pass_slot(current)
    changed = len(told)
    for _ in range(12):
        pass_slot(following)
    return told[changed:]


def test_a_counter_tells_nothing_of_a_pause_when_slots_become_shorter():
    # The first value of a slot of half a day must not begin with the last reading of a slot of a week, which was taken
    # before the pause.
    began = (START // WEEK + 1) * WEEK
    pause = (3 * WEEK + DAY, 4 * WEEK - DAY)
    told = told_after_a_change(WEEK, DAY // 2, began, b"%d %d" % (began + pause[0], began + pause[1]))
    assert len(told) >= 8
    for base, last in told:
        assert not (base < pause[1] and last > pause[0]), (base, last)
        assert last - base <= DAY, "a value of two slots at most"


def test_a_rest_by_the_clock_holds_when_slots_become_shorter():
    # The last slot that lasts a day ends after four days, and was drawn. The next value must begin at least a rest
    # later.
    rest = 4 * SLOT
    told = told_after_a_change(DAY, SLOT, START, rest_seconds=rest, rest_by="clock")
    assert len(told) >= 1
    for base, _ in told:
        assert base >= 4 * DAY + rest, base


# --- the sliding cap


def test_the_cap_of_a_period_holds_when_slot_lengths_change():
    for rest_by in ("ticks", "clock"):
        caps = {"period_seconds": 3600, "reports_per_period": 2, "rest_by": rest_by}
        device = Device(now=START - 900, slot_seconds=900, **caps)
        short = whole(900, START + 900)
        # The slots of the next campaign last half an hour, so that an hour has no more of them than the cap.
        long = whole(1800, START + 10800)
        device.accept(short)
        device.reporter.close_slot(device.now)
        starts = []
        for _ in range(40):
            if device.now == START + 7200:
                device.accept(long)
            device.pass_time(900)
            report = device.reporter.close_slot(device.now)
            if report is not None:
                report = intake.unpack(report)
                starts.append(report.slot * (900 if report.fingerprint == short.fingerprint else 1800))
        assert len(starts) > 8
        for i in range(len(starts) - 2):
            assert starts[i + 2] - starts[i] >= 3600, [start - START for start in starts]


# --- clocks


def beginning(**policy):
    campaign = make_campaign(last_slot=(START + 300 * DAY) // SLOT)
    device = Device(now=START - SLOT, **policy)
    device.accept(campaign)
    device.reporter.close_slot(device.now)
    return device, campaign


def test_a_wrong_answer_of_a_time_server_draws_nothing_that_lies_ahead():
    for days in (2, 20):
        device, campaign = beginning()
        assert len([1 for _ in range(10) if device.slot()]) >= 9
        # The clock is wrong for two slots and then right, while the server is honest.
        for ahead in (days * DAY, 0, -days * DAY):
            device.pass_time(SLOT, SLOT + ahead)
            report = device.reporter.close_slot(device.now)
            if report is not None:
                assert (intake.unpack(report).slot + 1) * SLOT <= device.now
        device.accept(campaign)
        device.reporter.close_slot(device.now)
        assert len([1 for _ in range(10) if device.slot()]) >= 8, days


def test_a_clock_and_a_server_that_lied_silence_nobody_for_longer_than_a_day():
    device, campaign = beginning()
    for _ in range(4):
        device.slot()
    honest = device.now
    device.now += 100 * DAY
    for _ in range(6):
        device.accept(campaign, device.now)
        device.slot()
    ledger = device.reporter.ledger
    assert device.reporter.ledger.spent_until > honest + 99 * DAY
    before = (ledger.ever, ledger.sequence)
    device.now = honest + 6 * SLOT
    device.accept(campaign, device.now)
    device.reporter.close_slot(device.now)
    slots = slots_of([report for report in [device.slot() for _ in range(40)] if report])
    assert len(slots) > 24, device.reporter.paused
    assert slots == sorted(set(slots))
    assert ledger.sequence == before[1] + len(slots)
    assert ledger.ever > before[0]


def test_what_returns_after_a_wrong_clock_still_rests_by_the_ticks():
    device, campaign = beginning(rest_seconds=DAY, boots_per_day=1000)
    drawn_at = []
    for step in range(2000):
        # The clock is wrong by a hundred days for 200 steps, then right for 200 steps, and so on.
        if step % 200 == 0:
            device.now += 100 * DAY if step % 400 == 0 else -100 * DAY
        device.accept(campaign, device.now)
        if device.slot() is not None:
            drawn_at.append(device.ticks.now)
    assert len(drawn_at) > 20
    for i in range(1, len(drawn_at)):
        assert drawn_at[i] - drawn_at[i - 1] >= in_ticks(DAY) * 1000


def test_a_server_that_is_away_for_two_days_loses_no_report():
    device, _ = beginning()
    assert len([1 for _ in range(97) if device.slot()]) == 96, "the device goes on without a message"
    for _ in range(2 * 48):
        device.slot()
    assert device.reporter.paused == "clock", "the server would not accept these reports any more"


# --- pauses


def test_a_lying_clock_does_not_end_a_pause():
    for lie in (2 * DAY, 10 * DAY):
        for boots in (False, True):
            device, campaign = beginning()
            for _ in range(4):
                device.slot()
            pause = pauses.begin(device.now, SLOT, 0, False, DAY)
            device.storage.files["pause"] = b"%d %d" % pause
            passed = 0
            drawn = 0
            for step in range(120):
                if step == 3:
                    device.now += lie
                if boots and step in (5, 20, 21):
                    device.boot()
                device.accept(campaign, device.now)
                report = device.slot()
                passed += SLOT
                drawn += report is not None
                # The first slots were measured before the pause began.
                assert report is None or step < 2 or passed - 2 * SLOT >= in_ticks(DAY), (lie, boots, step)
            assert drawn > 40, (lie, boots, drawn)


def test_a_clock_that_jumps_before_a_pause_was_ever_seen_does_not_skip_it():
    for lie in (2 * DAY, 10 * DAY):
        device, campaign = beginning()
        for _ in range(4):
            device.slot()
        device.pass_time(600)
        device.reporter.close_slot(device.now)
        # The pause begins at once, in the middle of a slot. Before a slot ends, the clock jumps beyond the pause.
        pause = pauses.begin(device.now, SLOT, 0, True, DAY)
        device.storage.files["pause"] = b"%d %d" % pause
        device.now += lie
        device.reporter.close_slot(device.now)
        assert device.reporter.paused == "clock"
        drawn = 0
        for passed in range(0, 3 * DAY, SLOT):
            device.accept(campaign, device.now)
            report = device.slot()
            drawn += report is not None
            assert report is None or passed >= in_ticks(DAY), (lie, passed)
        assert drawn > 40, (lie, drawn)


def test_a_slot_that_ends_as_a_pause_begins_is_reported():
    device, _ = beginning()
    for _ in range(4):
        device.slot()
    edge = device.now // SLOT * SLOT + SLOT
    device.storage.files["pause"] = b"%d %d" % (edge, edge + DAY)
    assert device.slot() is not None
    assert device.slot() is None
    assert device.reporter.paused == "pause"


def test_a_pause_that_a_device_slept_through_is_over_when_its_owner_says_so():
    device, campaign = beginning()
    for _ in range(4):
        device.slot()
    pause = pauses.begin(device.now, SLOT, 0, False, 3 * DAY)
    device.storage.files["pause"] = b"%d %d" % pause
    for _ in range(4):
        device.slot()
    # The device is off for five days. By its ticks, only two hours of the pause's three days have passed then.
    device.now += 5 * DAY
    device.boot()
    device.accept(campaign, device.now)
    device.reporter.close_slot(device.now)
    assert [device.slot() for _ in range(4)] == [None] * 4
    assert device.reporter.paused == "pause"
    device.storage.files["pause"] = b"%d %d" % pauses.end(pause, device.now, SLOT, 0)
    assert [1 for _ in range(4) if device.slot()] != []


# --- a lost file


def test_a_campaign_whose_file_is_damaged_is_taken_again_and_no_other():
    for which in ("current", "next"):
        device, newest = beginning()
        for _ in range(4):
            device.slot()
        if which == "next":
            newest = make_campaign(epoch=START + DAY, last_slot=(START + 200 * DAY) // SLOT)
            device.accept(newest)
        name = "campaign-" + newest.fingerprint.hex()
        device.storage.files[name] = device.storage.files[name][:-9] + b"#########"
        sequence = device.reporter.ledger.sequence
        device.boot()
        other = make_campaign(epoch=newest.epoch, last_slot=(START + 100 * DAY) // SLOT, default=7)
        for wrong in (other, make_campaign(name="other", epoch=newest.epoch, default=8)):
            try:
                device.accept(wrong)
            except Refused as refused:
                assert refused.reason in ("epoch_rollback", "sensor_busy"), refused.reason
            else:
                raise AssertionError(which)
        again = make_campaign(epoch=newest.epoch, last_slot=newest.last_slot)
        assert again.fingerprint == newest.fingerprint
        assert device.accept(again) is True
        assert device.accept(again) is False
        assert device.reporter.ledger.sequence == sequence
        device.reporter.close_slot(device.now)
        device.slot()
        assert device.slot() is not None, device.reporter.paused


# --- the lifetime


def test_what_all_streams_may_ever_cost_ends_them():
    # The campaign has ten days with one window each. All are charged when the campaign is accepted.
    daily = rule(renewal=48)
    cost = 10 * daily.charge()
    stream = {"rho": 4 * daily.charge(), "period_seconds": DAY, "lifetime": 2 * cost}
    device = Device(now=START - SLOT, stream=stream, epoch_seconds=DAY)
    said = []
    for number in range(3):
        epoch = START + 2 * DAY * number
        campaign = stream_campaign(daily, epoch=epoch, last_slot=epoch // SLOT + 10 * 48 - 1)
        try:
            device.accept(campaign)
            said.append(None)
        except Refused as refused:
            said.append(refused.reason)
        assert device.reporter.ledger.ever_rho == min(number + 1, 2) * cost
        for _ in range(2 * 48):
            device.slot()
            device.accept(campaign) if said[-1] is None else None
    assert said == [None, None, "rho"]
    # The whole lifetime may have been spent before the ledger was lost.
    del device.storage.files["ledger"]
    device.boot()
    try:
        device.accept(campaign)
    except Refused as refused:
        assert refused.reason == "rho"
    else:
        raise AssertionError("accepted")
