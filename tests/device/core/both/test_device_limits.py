"""What a device counts, to the last second, byte and unit: rests after boots and losses, files, and reserved slots."""

import sys

from rig import DAY, SLOT, START, Device, Memory, make_campaign
from stream_rig import rule, stream_campaign

from undertone_device.core import pause_span, pauses
from undertone_device.core.guard import BEGUN
from undertone_device.core.ledger import BUILT, GROUPS, RING, Ledger, Sums, in_ticks
from undertone_device.core.slot_value import SlotValue
from undertone_device.core.spent import drawn_since, month
from undertone_device.core.stream_state import Chain, VectorValue
from undertone_device.core.units import epsilon_units
from undertone_shared.errors import Invalid, Refused
from undertone_shared.off_board import intake

LAST = (START + 300 * DAY) // SLOT
UNITS = epsilon_units(2, 1)


def beginning(**policy):
    campaign = make_campaign(last_slot=LAST)
    device = Device(now=START - SLOT, boots_per_day=1000, **policy)
    device.accept(campaign)
    device.reporter.close_slot(device.now)
    return device, campaign


def by_seconds(seconds, **policy):
    """A device whose slots last ``seconds``, and its campaign."""
    device = Device(now=START - seconds, slot_seconds=seconds, reports_per_period=DAY // seconds, **policy)
    campaign = make_campaign(slot_seconds=seconds, cycle=1, last_slot=(START + 9 * DAY) // seconds)
    device.accept(campaign)
    device.reporter.close_slot(device.now)
    return device, campaign


# --- a boot, and a lost ledger


def test_a_boot_waits_its_rest_and_the_second_that_uptime_may_be_off():
    device, _ = by_seconds(1, rest_seconds=31)
    while True:
        device.pass_time(1)
        report = device.reporter.close_slot(device.now)
        if report is not None:
            break
    # The device booted a second before the start. A slot may open 32 s after the boot.
    assert intake.unpack(report).slot - START == 31


def test_a_lost_ledger_waits_a_whole_rest_of_ticks_whatever_the_clock_says():
    device, campaign = beginning(rest_seconds=DAY)
    while device.slot() is None:
        device.accept(campaign)
    del device.storage.files["ledger"]
    device.boot()
    since = device.ticks.now
    for _ in range(400):
        device.pass_time(SLOT // 4, clock=SLOT)
        device.accept(campaign)
        if device.reporter.close_slot(device.now) is not None:
            break
    else:
        raise AssertionError(device.reporter.paused)
    assert device.ticks.now - since >= in_ticks(DAY) * 1000


def test_how_often_a_ledger_began_is_counted():
    device, campaign = beginning()
    assert device.storage.files[BEGUN] == b"1"
    for losses in (b"2", b"3"):
        del device.storage.files["ledger"]
        device.boot()
        device.accept(campaign)
        assert device.storage.files[BEGUN] == losses


def test_a_new_ledger_counts_nothing():
    ledger = Ledger(Memory(), 96)
    for name in (
        "spent_until last_epoch began uptime sequence day boots rho_period rho rho_since window window_until reports "
        "chains ever ever_rho"
    ).split():
        assert getattr(ledger, name) == 0, name
    assert ledger.lost and not ledger.urgent
    for index in (-1, 0, 1):
        try:
            ledger.outbox[index]
        except IndexError:
            continue
        raise AssertionError(index)


def test_no_clock_is_right_before_november_2026():
    assert BUILT == (20454 + 304) * DAY, "1 January 2026 is day 20454"


# --- a device that sleeps


def test_a_sleeper_draws_again_after_nine_tenths_of_a_slot():
    for milliseconds, paused in ((900 * SLOT - 1, "rate"), (900 * SLOT, None)):
        device, campaign = beginning()
        device.pass_time(2 * SLOT)
        assert device.reporter.run_once(3, device.now) is not None
        device.pass_time(SLOT)
        device.boot(asleep=milliseconds)
        device.accept(campaign)
        device.reporter.run_once(3, device.now)
        assert device.reporter.paused == paused


# --- a server that is away


def test_a_server_is_away_for_a_day_and_as_long_as_a_report_is_taken():
    # A server accepts a report for two days or 96 slots, whichever is longer. A device goes on for that time and a day.
    for seconds, days in ((SLOT, 3), (SLOT // 2, 3), (2 * SLOT, 5)):
        device, _ = by_seconds(seconds)
        accepted = device.reporter.accepted
        device.pass_time(days * DAY)
        device.reporter.close_slot(device.now)
        assert accepted.agrees(device.now)
        device.pass_time(1)
        device.reporter.close_slot(device.now)
        assert not accepted.agrees(device.now)


def test_a_message_that_comes_again_is_no_news_of_the_time():
    device, campaign = beginning()
    issued_at = device.now
    device.pass_time(DAY)
    device.accept(campaign, issued_at)
    device.pass_time(2 * DAY + 1)
    device.reporter.close_slot(device.now)
    assert not device.reporter.accepted.agrees(device.now)


def test_a_message_may_be_a_day_from_the_clock_and_the_clock_as_old_as_the_firmware():
    for now, ahead, paused in (
        (BUILT, 0, None),
        (BUILT - 1, 0, "clock"),
        (BUILT + DAY, DAY, None),
        (BUILT + DAY, -DAY, None),
        (BUILT + DAY, DAY + 1, "clock"),
        (BUILT + DAY, -DAY - 1, "clock"),
    ):
        device = Device(now=now)
        campaign = make_campaign(epoch=BUILT + 2 * DAY, last_slot=(BUILT + 9 * DAY) // SLOT)
        try:
            assert device.accept(campaign, now + ahead) and paused is None
        except Refused as refused:
            assert refused.reason == paused, (now, ahead)


def test_a_damaged_campaign_that_came_again_is_on_file_and_its_time_counts():
    device, campaign = beginning()
    name = "campaign-" + campaign.fingerprint.hex()
    body = device.storage.files[name]
    del device.storage.files[name]
    device.boot()
    device.storage.broken = True
    try:
        device.accept(campaign_of(body))
    except Refused as refused:
        assert refused.reason == "storage"
    else:
        raise AssertionError("accepted")
    assert device.reporter.campaign is None
    device.storage.broken = False
    assert device.accept(campaign_of(body)) is True
    assert device.storage.files[name] == body
    assert device.reporter.accepted.agrees(device.now)


def campaign_of(body):
    """The campaign that has this body."""
    campaign = make_campaign(last_slot=LAST)
    assert campaign.body == body
    return campaign


# --- a clock that was wrong


def test_what_was_spent_ahead_is_given_back_beyond_a_day_and_a_block_and_not_before():
    for ahead in (DAY + 60, DAY + 61):
        device, _ = beginning(rest_seconds=DAY, write_seconds=60)
        guard, ledger = device.reporter.guard, device.reporter.ledger
        now = device.now + 9
        ledger.spent_until = now + ahead
        guard._return(now)
        assert ledger.spent_until == (now if ahead > DAY + 60 else now + ahead)
    # Before the next draw, a rest in ticks and one second more must pass. No slot is reserved any more.
    assert guard.rested(ledger.uptime + 1 + in_ticks(DAY))
    assert not guard.rested(ledger.uptime + in_ticks(DAY))
    guard.write()
    assert Ledger(device.storage, 96).sequence == ledger.sequence
    assert "undertone_device.core.reset" not in sys.modules


def test_what_a_device_without_ticks_or_with_streams_spent_ahead_stays_spent():
    for policy in ({"rest_by": "clock"}, {"stream": {"rho": 1 << 20, "period_seconds": DAY}}):
        device, _ = beginning(**policy)
        ledger = device.reporter.ledger
        ledger.spent_until = device.now + 9 * DAY
        device.reporter.guard._return(device.now)
        assert ledger.spent_until == device.now + 9 * DAY, policy


# --- reserved slots


def test_what_is_reserved_counts_as_drawn_until_it_is():
    device, _ = by_seconds(30, write_seconds=90)
    device.pass_time(30)
    device.reporter.close_slot(device.now)
    for drawn in (1, 2, 3):
        device.pass_time(30)
        assert device.reporter.close_slot(device.now) is not None
        again = Device(storage=device.storage, slot_seconds=30, reports_per_period=DAY // 30)
        ledger = again.reporter.ledger
        # Three slots are reserved at once. From the first draw on, the stored ledger counts all three as drawn.
        assert (ledger.sequence, ledger.ever, device.reporter.ledger.sequence) == (3, 3 * UNITS, drawn)
        assert month(ledger.sums, START // DAY, ledger.ever) == 3 * UNITS
        assert drawn_since(ledger.sums, START) == 3
    device.reporter.guard.write()
    assert Ledger(device.storage, 96).sequence == 3
    assert "undertone_device.core.units" not in sys.modules


# --- a pause


def test_the_ledger_is_written_in_a_pause_as_often_as_the_policy_says_and_not_before():
    device, _ = by_seconds(30, write_seconds=60)
    begins = START + 300
    device.storage.files["pause"] = b"%d %d" % (begins, begins + 3000)
    while device.now < begins + 60:
        device.pass_time(30)
        device.reporter.close_slot(device.now)
    before = device.storage.writes
    for _ in range(40):
        device.pass_time(30)
        assert device.reporter.close_slot(device.now) is None
    assert device.reporter.paused == "pause"
    assert 19 <= device.storage.writes - before <= 20
    # A pause in the distant future does not make the device write.
    device, _ = by_seconds(30, write_seconds=DAY)
    device.storage.files["pause"] = b"%d %d" % (START + 7 * DAY, START + 8 * DAY)
    device.pass_time(30)
    device.reporter.close_slot(device.now)
    device.pass_time(30)
    assert device.reporter.close_slot(device.now) is not None
    writes = device.storage.writes
    for _ in range(100):
        device.pass_time(30)
        device.reporter.close_slot(device.now)
    assert device.storage.writes == writes


def test_a_pauses_edges_to_the_second():
    day, rest = DAY, 3 * SLOT
    assert pauses.ENDLESS == (1 << 32) - 1
    # The cases: a pause is asked for within a slot or at its edge, begins at once or later, with or without a rest, and
    # has an end or none.
    assert pauses.begin(START + 1, SLOT, 0, False, 0) == (START + SLOT, pauses.ENDLESS)
    assert pauses.begin(START, SLOT, 0, False, 1) == (START, START + SLOT)
    assert pauses.begin(START, SLOT, rest, False, 1) == (START + rest, START + 2 * rest)
    assert pauses.begin(START + 1, SLOT, rest, True, 1) == (START + 1, START + day + SLOT)
    assert pauses.begin(START, SLOT, 2 * day, True, day) == (START, START + 2 * day)
    assert pauses.begin(START, SLOT, 0, True, 1) == (START, START + day)
    assert pauses.begin(START, SLOT, 0, True, day + 1) == (START, START + day + SLOT)
    pause = (START, START + day)
    for now, ended in (
        (START - 1, (0, 0)),
        (START, (START, START + SLOT)),
        (START + SLOT, (START, START + SLOT)),
        (START + SLOT + 1, (START, START + 2 * SLOT)),
        (START + day - 1, pause),
        (START + day, (0, 0)),
    ):
        assert pauses.end(pause, now, SLOT, 0) == ended, now
    assert pauses.end(pause, START, SLOT, rest) == (START, START + rest)
    assert pauses.end((START, START + SLOT), START, SLOT, rest) == (START, START + SLOT)


def test_a_pause_that_is_asked_for_in_another_one_makes_one_of_both():
    """The pause lasts from the earlier beginning to the later end; a pause that is over is forgotten."""
    now, day = START + SLOT, 86400
    running, waiting = (START, START + day), (START + day, START + 2 * day)
    for pause, more, both in (
        (running, (now, now + SLOT), running),
        (running, waiting, (START, START + 2 * day)),
        (waiting, (now, now + SLOT), (now, START + 2 * day)),
        ((START - day, now + 1), waiting, (START - day, START + 2 * day)),
        ((START - day, now), waiting, waiting),
        ((0, 0), waiting, waiting),
    ):
        assert pauses.extend(pause, more, now) == both


def covered(span, pause, begin, end, now, opened, uptime):
    return span.covers(b"%d %d" % pause, START + begin, START + end, START + now, opened, uptime)


def test_a_pause_covers_what_it_touches_to_the_second_by_the_clock():
    pause = (START + 100, START + 200)
    for begin, end, touched in ((50, 100, False), (50, 101, True), (199, 260, True), (200, 260, False)):
        span = pause_span.PauseSpan(Memory(), False)
        assert covered(span, pause, begin, end, end, 0, 10) == touched, (begin, end)
    assert not covered(pause_span.PauseSpan(Memory(), False), (START + 100, START + 100), 50, 150, 150, 0, 10)


def test_a_pause_is_counted_in_ticks_to_the_second():
    # At uptime 1000, the device sees a pause that begins now and lasts 320 s. It then counts 310 s of ticks (31/32 of
    # 320 s), whatever the clock says about later slots.
    for opened, uptime, touched in ((1309, 1400, True), (1310, 1400, False)):
        storage = Memory()
        span = pause_span.PauseSpan(storage, True)
        assert covered(span, (START, START + 320), -60, 0, 0, 940, 1000) is False, "the slot ends as the pause begins"
        assert storage.files[pause_span.COUNT] == b"%d %d 1000 1310 1000" % (START, START + 320)
        assert covered(span, (START, START + 320), 5000, 5060, 5060, opened, uptime) == touched
        # After a restart, the count goes on.
        again = pause_span.PauseSpan(storage, True)
        assert covered(again, (START, START + 320), 5000, 5060, 5060, opened, uptime) == touched
    # By the clock, the pause begins in 64 s. By the ticks, it begins after 64 s, 1/32 of that, and a second.
    storage = Memory()
    covered(pause_span.PauseSpan(storage, True), (START + 64, START + 384), -60, 0, 0, 940, 1000)
    assert storage.files[pause_span.COUNT] == b"%d %d 1067 1374 1000" % (START + 64, START + 384)


def test_only_its_owner_shortens_a_pause_that_has_begun():
    storage = Memory()
    span = pause_span.PauseSpan(storage, True)
    covered(span, (START, START + 3200), -60, 0, 0, 940, 1000)
    # By the clock, the pause is over, but by the ticks it goes on. The owner then prolongs the pause by 32 s, shortens
    # it to 64 s from now, and ends it.
    assert covered(span, (START, START + 3200), 9000, 9060, 9060, 1040, 1100)
    for until, now, ends in ((3232, 100, 4131), (164, 100, 1164), (150, 300, 1100)):
        covered(span, (START, START + until), now - 60, now, now, 1040, 1100)
        assert storage.files[pause_span.COUNT] == b"%d %d 1000 %d 1000" % (START, START + until, ends), until
    # The count begins anew for a pause with another beginning, or if the stored count is by another ledger's uptime.
    covered(span, (START + 400, START + 720), 340, 400, 400, 1340, 1400)
    assert storage.files[pause_span.COUNT] == b"%d %d 1400 1710 1400" % (START + 400, START + 720)
    covered(span, (START + 400, START + 721), 340, 400, 400, 0, 1399)
    assert storage.files[pause_span.COUNT] == b"%d %d 1399 1710 1399" % (START + 400, START + 721)


def test_before_a_pause_every_look_at_the_clock_brings_it_forward_or_its_end_back():
    pause = (START + 1000, START + 1320)
    for opened, uptime, touched in ((1200, 1331, False), (1200, 1332, True), (2269, 2300, True), (2270, 2300, False)):
        span = pause_span.PauseSpan(Memory(), True)
        # The clock is read three times at uptime 1000 and shows another time each time: the pause begins in 640, 320
        # and 960 s.
        for now in (360, 680, 40):
            covered(span, pause, now - 60, now, now, 940, 1000)
        assert covered(span, pause, 5000, 5060, 5060, opened, uptime) == touched, (opened, uptime)


def test_a_cap_whose_counts_are_lost_comes_back_as_it_may_have_been_spent():
    """After the loss, the last slots count as drawn, in whole groups and up to the cap.

    So no period has more draws than the cap, even a period that began before the loss.
    """
    for cap, groups in ((1, 1), (5, 5), (96, 48), (100, 33)):
        sums, size, period = Sums(memoryview(bytearray(RING + 8 * GROUPS))), cap // groups, 300 * SLOT
        sums.limit(cap, 0, 0)
        sums.fill(START, 0, SLOT)
        spent = [START - SLOT * back for back in range(groups * size, 0, -1)]
        ends = spent[size - 1 :: size]
        # These slots count as drawn in whole groups.
        for group in range(groups):
            assert drawn_since(sums, ends[group]) == (groups - group) * size
            assert drawn_since(sums, ends[group] + 1) == (groups - group - 1) * size
        for start in range(START, START + 2 * period, SLOT):
            # A new group of draws may begin one period after the end of the group that comes ``groups`` groups before
            # it.
            drawn = len(spent) - groups * size
            allowed = start - ends[drawn // size] >= period if drawn % size == 0 else True
            assert sums.permits(start, 0, period, 0) == allowed, (cap, start)
            if allowed:
                sums.add(start, 0)
                spent.append(start)
                if len(spent) % size == 0:
                    ends.append(start)
            assert len([1 for other in spent if other > start - period]) <= cap


# --- streams


def streaming(stream, period=400 * DAY):
    device = Device(now=START - SLOT, stream={"rho": 1 << 30, "period_seconds": period, "dimension": stream.dimension})
    device.accept(stream_campaign(stream))
    device.reporter.close_slot(device.now)
    return device, device.reporter.guard.rule_states["stream"]


def test_a_chain_goes_on_over_fewer_missed_slots_than_restart_it():
    for lag in (1, 3):
        stream = rule(lag=lag, chains=3, restart=2)
        _, state = streaming(stream)
        state._chains[0] = kept = Chain(5, (0,), (0,), 99)
        goes_on = [state._chain(stream, 0, 99 + lag * step) is kept for step in (1, 2, 3, 4)]
        assert goes_on == [True, True, False, False], lag
        assert state._chain(stream, 1, 99 + lag) is None


def test_a_period_of_ticks_is_counted_from_when_its_sum_began():
    _, state = streaming(rule(), DAY)
    ledger = state.ledger
    cost = rule().charge()
    ledger.rho = ledger.rho_period = 0
    sums = []
    for day, uptime in ((20, 1000), (22, 1000 + in_ticks(DAY)), (24, 999 + 2 * in_ticks(DAY))):
        ledger.uptime = uptime
        campaign = stream_campaign(rule(), epoch=START + day * DAY, last_slot=START // SLOT + day * 48 + 47)
        state.charge(campaign, START + day * DAY)
        sums.append((ledger.rho // cost, ledger.rho_since))
    assert sums == [(1, 1000), (1, 1000 + in_ticks(DAY)), (2, 1000 + in_ticks(DAY))]


def test_the_last_second_of_a_campaign_is_of_its_last_period():
    _, state = streaming(rule(), DAY)
    for last, period in ((START + DAY - 1, START // DAY), (START + DAY, START // DAY + 1)):
        state.ledger.rho = state.ledger.rho_period = 0
        state.charge(stream_campaign(rule(), slot_seconds=1, last_slot=last), START)
        assert state.ledger.rho_period == period


def test_every_slot_of_a_long_window_is_drawn():
    device, _ = streaming(rule(renewal=96))
    device.slot()
    assert [device.slot() is not None for _ in range(5)] == [True] * 5


def test_a_sample_of_several_coordinates_is_taken_whole_or_not():
    value = VectorValue([SlotValue("last"), SlotValue("last")])
    value.add_many([(1, 2), (3, 4)], 0)
    try:
        value.add((5, 6.5), 0)
    except Invalid:
        pass
    assert value.close(0) == (3, 4)
