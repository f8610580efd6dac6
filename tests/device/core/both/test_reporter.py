"""The core of the reporter with an injected clock: what it reports, what it refuses, and what survives a reboot."""

from rig import DAY, SHARP, SLOT, START, Counting, Device, Memory, hybrid, make_campaign, sharp_campaign, square_wave

from undertone_device.core.campaign_files import NAMES
from undertone_device.core.ledger import Ledger
from undertone_device.core.units import epsilon_units
from undertone_shared import report as reports
from undertone_shared.entropy import Entropy
from undertone_shared.errors import Invalid, Refused
from undertone_shared.off_board import intake, issue
from undertone_shared.scalar import Cohort, ReportRule


def refusal(device, campaign, issued_at=None):
    """The reason for which the device refuses this campaign, or None."""
    try:
        device.accept(campaign, issued_at)
    except Refused as error:
        return error.reason
    return None


class CutAfter(Memory):
    """Storage of a device whose power fails once, just after the file ``name`` is written."""

    def __init__(self, name):
        super().__init__()
        self.last = name

    def write(self, name, data):
        super().write(name, data)
        if name == self.last:
            self.last = None
            raise OSError("power")


def running(campaign=None, **policy):
    device = Device(now=START - SLOT, **policy)
    device.accept(campaign or make_campaign())
    device.reporter.close_slot(device.now)
    # The device booted in the middle of a slot, as far as it knows, so it does not report for this slot.
    assert device.slot() is None
    return device


def test_a_slot_gives_one_report_and_only_after_its_end():
    device = running()
    device.pass_time(10)
    device.reporter.observe(7, device.now)
    assert device.reporter.close_slot(device.now) is None
    device.pass_time(SLOT - 10)
    report = intake.unpack(device.reporter.close_slot(device.now))
    assert report.slot == START // SLOT
    assert report.kind == reports.REPORT
    assert report.fingerprint == make_campaign().fingerprint
    assert device.reporter.close_slot(device.now) is None
    assert len(device.reporter.outbox) == 1


def test_reports_of_a_day_have_consecutive_slots():
    device = running()
    slots = []
    for _ in range(48):
        slots.append(intake.unpack(device.slot()).slot)
        device.accept(make_campaign())  # the server publishes it again
    assert slots == list(range(START // SLOT, START // SLOT + 48))


def test_a_sensor_without_samples_reports_the_public_default():
    for default, symbol in ((300, 1), (100, 0)):
        device = running(sharp_campaign(default=default), cap=SHARP)
        for _ in range(3):
            device.pass_time(SLOT)
            assert intake.unpack(device.reporter.close_slot(device.now)).values == (symbol,)


def test_everybody_is_in_the_cohort_of_a_threshold_epoch():
    device = Device(now=START - SLOT)
    device.accept(make_campaign(cohort=Cohort(square_wave()), report=None))
    device.reporter.close_slot(device.now)
    device.slot()
    assert intake.unpack(device.slot()).kind == reports.COHORT


def test_a_late_sample_counts_for_the_next_slot():
    for default, late, symbols in ((0, 300, [0, 1]), (300, 0, [1, 0])):
        device = running(sharp_campaign(default=default), cap=SHARP)
        device.pass_time(SLOT + 5)
        device.reporter.observe(late, device.now)
        drawn = [intake.unpack(device.reporter.close_slot(device.now))]
        device.pass_time(SLOT)
        drawn.append(intake.unpack(device.reporter.close_slot(device.now)))
        assert [report.slot for report in drawn] == [START // SLOT, START // SLOT + 1]
        assert [report.values[0] for report in drawn] == symbols


def test_a_slot_entered_after_a_jump_of_the_clock_is_not_reported():
    device = running()
    device.pass_time(SLOT // 2, clock=5 * SLOT)
    assert device.reporter.close_slot(device.now) is not None  # the slot that the jump cut short is drawn once
    device.pass_time(SLOT)
    assert device.reporter.close_slot(device.now) is None
    device.pass_time(SLOT)
    assert device.reporter.close_slot(device.now) is not None


def test_floats_and_huge_integers_are_not_samples():
    device = running()
    for sample in (1.5, "3", None, 1 << 30):
        try:
            device.reporter.observe(sample, device.now)
        except Invalid as error:
            assert "sample" in str(error)
        else:
            raise AssertionError("accepted")


# --- every interval is drawn at most once


def test_a_reboot_does_not_draw_an_interval_again_and_sends_the_same_bytes():
    device = running()
    report = device.slot()
    device.boot()
    assert device.reporter.outbox[0] == report
    device.accept(make_campaign())
    assert device.reporter.run_once(5, device.now) is None
    assert device.reporter.paused == "spent"


def test_a_clock_set_back_pauses_until_it_has_caught_up():
    device = running()
    device.slot()
    device.now -= 2 * SLOT
    device.reporter.close_slot(device.now)
    device.slot()
    assert device.slot() is None
    assert device.reporter.paused == "spent"


def test_a_clock_that_runs_fast_is_held_to_the_rate_of_the_ticks():
    device = running()
    drawn = 0
    for _ in range(20):
        device.pass_time(SLOT // 10, clock=SLOT)
        drawn += device.reporter.close_slot(device.now) is not None
    # Twenty slots passed by the clock, and two by the ticks.
    assert drawn <= 3
    assert device.reporter.paused == "rate"


def test_a_slot_closed_late_does_not_lose_the_next_one():
    device = running()
    device.slot()
    device.pass_time(SLOT + SLOT // 4)
    assert device.reporter.close_slot(device.now) is not None
    device.pass_time(SLOT - SLOT // 4)
    assert device.reporter.close_slot(device.now) is None
    assert device.reporter.paused == "rate"
    device.pass_time(SLOT // 4)
    assert device.reporter.close_slot(device.now) is not None


def test_boots_that_draw_are_limited_per_day():
    device = running(boots_per_day=2)
    drawn = 0
    for _ in range(4):
        device.boot()
        device.accept(make_campaign())
        device.reporter.close_slot(device.now)
        device.slot()
        drawn += device.slot() is not None
    assert drawn == 2
    assert device.reporter.paused == "boots"


def test_waking_from_a_sleep_that_kept_count_is_no_boot():
    device = running(boots_per_day=1)
    assert device.slot() is not None
    device.pass_time(SLOT)
    device.boot(asleep=SLOT * 1000)
    device.accept(make_campaign())
    assert device.reporter.run_once(3, device.now) is not None


def test_a_one_shot_device_draws_once_per_wake():
    device = running(one_shot=True)
    for _ in range(6):
        device.pass_time(SLOT)
        device.boot()
        device.accept(make_campaign())
        assert device.reporter.run_once(3, device.now) is not None
        device.pass_time(SLOT)
        assert device.reporter.run_once(3, device.now) is None
        assert device.reporter.paused == "one_shot"


def test_reports_per_period_are_limited():
    device = running(reports_per_period=3)
    for _ in range(3):
        assert device.slot() is not None
    assert device.slot() is None
    assert device.reporter.paused == "period"


def test_a_lost_ledger_costs_data_never_privacy():
    device = running(reports_per_period=12)
    for _ in range(6):
        device.slot()
    device.storage.files["ledger"] = b"UTL2 torn"
    device.boot()
    device.accept(make_campaign())
    # Perhaps this slot was drawn before the ledger was lost.
    assert device.reporter.run_once(3, device.now) is None
    # All twelve reports of a day may have been drawn, as late as the ticks allow, so they count as drawn. The first
    # stops counting when it is a day old.
    assert device.used() == 12
    device.reporter.close_slot(device.now)
    waited = 0
    while device.slot() is None:
        waited += 1
    assert 35 <= waited <= 37, waited
    # A new device has no ledger that could be lost, so it draws at once.
    device = running(reports_per_period=12)
    assert device.slot() is not None


def test_a_power_cut_while_a_ledger_begins_is_no_loss():
    for last in ("ledger", "begun"):
        device = Device(storage=CutAfter(last), now=START - SLOT, lifetime=1 << 30)
        assert refusal(device, make_campaign()) == "storage"
        device.boot()
        device.accept(make_campaign())
        device.reporter.close_slot(device.now)
        device.slot()
        assert device.slot() is not None, last
        del device.storage.files["ledger"]
        device.boot()
        device.accept(make_campaign())
        device.pass_time(DAY)
        device.accept(make_campaign())
        device.reporter.close_slot(device.now)
        device.slot()
        assert device.slot() is None
        assert device.reporter.paused == "lifetime"


def test_nothing_leaves_when_the_ledger_cannot_be_written():
    device = running()
    device.storage.broken = True
    assert device.slot() is None
    assert device.reporter.paused == "storage"
    assert len(device.reporter.outbox) == 0
    device.storage.broken = False
    assert device.slot() is not None


def test_broken_entropy_pauses():
    device = running()
    device.reporter.entropy = Entropy(bytes)
    assert device.slot() is None
    assert device.reporter.paused == "entropy"


def test_a_slot_writes_the_ledger_once_and_an_acknowledgement_writes_nothing():
    """docs/firmware.md computes from this how long flash lasts."""
    device = running()
    for _ in range(3):
        writes = device.storage.writes
        device.reporter.acked(device.slot())
        assert device.storage.writes == writes + 1
    assert len(device.storage.files["ledger"]) == 656
    for _ in range(100):
        device.slot()
    assert len(device.storage.files["ledger"]) == 2936


# --- slots that are shorter than the policy's time between writes


def test_short_slots_are_reserved_in_blocks_and_a_reboot_forfeits_the_block():
    device = Device(now=START - 2, slot_seconds=1, reports_per_period=DAY)
    device.accept(make_campaign(slot_seconds=1, last_slot=START + DAY))
    device.reporter.close_slot(device.now)
    for _ in range(3):
        device.pass_time(1)
        device.reporter.close_slot(device.now)
    writes = device.storage.writes
    for _ in range(50):
        device.pass_time(1)
        assert device.reporter.close_slot(device.now) is not None
    assert device.storage.writes == writes
    device.boot()
    assert device.reporter.ledger.spent_until > device.now
    for _ in range(20):
        device.pass_time(1)
        device.reporter.close_slot(device.now)
    device.accept(make_campaign(slot_seconds=1, last_slot=START + DAY))
    device.reporter.close_slot(device.now)
    device.pass_time(1)
    report = device.reporter.close_slot(device.now)
    assert intake.unpack(report).slot >= START + 60


def test_what_was_reserved_at_another_campaigns_price_is_not_drawn_from():
    # The power may fail after any report, so the cost of a report is in the file before the report leaves.
    unit = epsilon_units(2, 1)
    device = Device(now=START - 2, slot_seconds=1, reports_per_period=DAY, lifetime=1 << 40)
    cheap = {"cohort": Cohort(square_wave(1001, 1000)), "report": ReportRule(0, 300, hybrid(1001, 1000))}
    device.accept(make_campaign(slot_seconds=1, cycle=1, last_slot=START + DAY, **cheap))
    device.accept(make_campaign(slot_seconds=1, cycle=1, epoch=START + 10, last_slot=START + DAY))
    dear = 0
    for _ in range(40):
        device.pass_time(1)
        report = device.reporter.close_slot(device.now)
        if report is not None:
            dear += intake.unpack(report).slot >= START + 10
            assert Ledger(device.storage, 96).ever >= dear * unit
    assert dear > 20


# --- the outbox


def test_acknowledged_reports_leave_the_outbox_in_any_order():
    device = running()
    drawn = [device.slot() for _ in range(5)]
    device.reporter.acked(drawn[2])
    device.reporter.acked(drawn[0])
    outbox = device.reporter.outbox
    assert [outbox[i] for i in range(len(outbox))] == [drawn[1], drawn[3], drawn[4]]


def test_a_full_outbox_drops_the_oldest_and_counts_it():
    device = running(reports_per_period=1000)
    drawn = []
    for _ in range(100):
        device.accept(make_campaign())
        drawn.append(device.slot())
    outbox = device.reporter.outbox
    assert device.reporter.dropped == 4
    assert [outbox[i] for i in range(len(outbox))] == drawn[-96:]


# --- campaigns


def test_the_same_campaign_again_only_moves_issued_at_forward():
    device = running()
    assert device.accept(make_campaign(), device.now + 50) is False
    assert device.accept(make_campaign(), 0) is False
    assert device.slot() is not None


def test_a_forged_issued_at_does_not_outlast_the_next_message():
    device = running()
    assert device.accept(make_campaign(), 0xFFFFFFFF) is False
    assert device.slot() is not None, "a time that agrees with the clock is kept"
    device.accept(make_campaign(), device.now + DAY // 2)
    device.accept(make_campaign(), device.now)
    device.pass_time(0, clock=DAY + DAY // 4)
    device.slot()
    assert device.slot() is not None, "a time that agrees only moves forward"
    device.boot()
    device.slot()
    for issued_at, paused in ((0xFFFFFFFF, "clock"), (7, "clock"), (device.now, None)):
        device.accept(make_campaign(), issued_at)
        device.slot()
        assert device.reporter.paused == paused


def test_a_clock_that_was_wrong_needs_no_other_message_once_it_is_right():
    device = running()
    device.boot()
    right = device.now
    device.now -= 3 * DAY
    device.accept(make_campaign(), right)
    device.now += 3 * DAY
    device.slot()
    assert device.slot() is not None


def test_a_campaign_under_another_ones_topic_is_refused():
    device = running()
    following = make_campaign(epoch=START + DAY)
    for campaign in (make_campaign(), following):
        try:
            device.reporter.accept(issue.pack(campaign, device.now), device.now, "other")
        except Refused as refused:
            assert refused.reason == "topic"
        else:
            raise AssertionError("accepted")
    assert device.reporter.following is None
    assert device.reporter.accept(issue.pack(following, device.now), device.now, "load") is True


def test_paused_says_at_once_that_there_is_a_campaign():
    device = Device(now=START - SLOT)
    device.reporter.close_slot(device.now)
    assert device.reporter.paused == "no_campaign"
    device.accept(make_campaign())
    assert device.reporter.paused is None


def test_reports_keep_their_campaigns_name_through_reboots_and_successors():
    device = Device(now=START - SLOT)
    device.accept(make_campaign(last_slot=START // SLOT + 9))
    device.slot()
    old = device.slot()
    device.pass_time(10 * SLOT)
    device.accept(make_campaign(name="other", epoch=START + DAY))
    device.boot()
    assert device.reporter.campaign_of(old) == "load"
    device.pass_time(START + DAY - SLOT - device.now)
    device.accept(make_campaign(name="other", epoch=START + DAY))
    device.slot()
    new = device.slot()
    for _ in range(2):
        assert [device.reporter.campaign_of(report) for report in (old, new)] == ["load", "other"]
        assert len([name for name in device.storage.files if name.startswith("campaign-")]) == 1
        device.boot()
    for damaged in (b"", b"[]", b"7", b"[1]", b'{"00":3}', b'{"00":"a/b"}', b"\xff", b'"ab"'):
        device.storage.files[NAMES] = damaged
        device.boot()
        assert [device.reporter.campaign_of(report) for report in (old, new)] == [None, "other"]


def test_campaigns_beyond_the_policy_are_refused_with_a_reason_and_the_last_good_one_is_kept():
    device = running()
    later = START + DAY
    offers = [
        ("epsilon", make_campaign(epoch=later, report=ReportRule(0, 300, hybrid(2001, 1000)))),
        ("epsilon", make_campaign(epoch=later, cohort=Cohort(square_wave(3, 1)))),
        ("theta", make_campaign(epoch=later, bound=5000, report=ReportRule(0, 2000, hybrid()))),
        ("slot_seconds", make_campaign(epoch=later, slot_seconds=900, last_slot=(later + DAY) // 900)),
        ("sensor", make_campaign(epoch=later, sensor="water")),
        ("measure", make_campaign(epoch=later, measure="max")),
        ("sensor_busy", make_campaign(epoch=later, name="other")),
        ("duration", make_campaign(epoch=later, last_slot=(later + 500 * DAY) // SLOT)),
        ("epoch_rollback", make_campaign(epoch=START, unit="kWh")),
        ("epoch_rollback", make_campaign(epoch=START - SLOT)),
        ("epoch_too_soon", make_campaign(epoch=START + SLOT)),
        ("epoch_ahead", make_campaign(epoch=START + 9 * DAY)),
        ("ended", make_campaign(epoch=START - 2 * DAY, last_slot=(START - DAY) // SLOT)),
    ]
    before = device.reporter.campaign
    for reason, campaign in offers:
        assert refusal(device, campaign) == reason, reason
    assert device.reporter.campaign is before and device.reporter.following is None
    assert device.reporter.refusals["epsilon"] == 2
    assert device.slot() is not None


def test_the_next_epoch_begins_at_its_own_slot():
    device = running()
    following = make_campaign(epoch=START + DAY, report=ReportRule(0, 500, hybrid()))
    assert device.accept(following) is True
    assert refusal(device, make_campaign(epoch=START + 3 * DAY)) == "epoch_pending"
    for _ in range(48):
        assert intake.unpack(device.slot()).fingerprint == make_campaign().fingerprint
        device.accept(following)  # the server publishes it again
    report = intake.unpack(device.slot())
    assert report.fingerprint == following.fingerprint
    assert report.slot == (START + DAY) // SLOT


def test_both_campaigns_survive_a_reboot():
    device = running()
    following = make_campaign(epoch=START + DAY, report=ReportRule(0, 500, hybrid()))
    device.accept(following)
    device.boot()
    assert device.reporter.campaign.report.theta == 300
    assert device.reporter.following.report.theta == 500


def test_a_clock_that_disagrees_with_issued_at_by_more_than_a_day_draws_nothing():
    device = Device(now=START - SLOT)
    assert refusal(device, make_campaign(), device.now - DAY - 1) == "clock"
    assert refusal(device, make_campaign(), device.now + DAY + 1) == "clock"
    device = running()
    device.pass_time(10, clock=2 * DAY)
    assert device.reporter.close_slot(device.now) is None
    assert device.reporter.paused == "clock"


def test_a_boot_waits_for_a_fresh_campaign_before_it_draws():
    device = running()
    device.slot()
    device.boot()
    device.reporter.close_slot(device.now)
    device.slot()
    assert device.slot() is None
    assert device.reporter.paused == "clock"
    device.accept(make_campaign())
    assert device.slot() is not None


def test_no_clock_before_the_firmware_is_believed():
    device = Device(now=SLOT)
    assert refusal(device, make_campaign()) == "clock"


def test_a_campaign_for_which_there_is_no_memory_may_come_again():
    device = running()
    successor = make_campaign(epoch=START + DAY)
    write = device.storage.write
    for name in ("campaign-", "ledger"):

        def full(file, data, name=name):
            if file.startswith(name):
                raise MemoryError
            write(file, data)

        device.storage.write = full
        assert refusal(device, successor) == "storage"
    device.storage.write = write
    assert refusal(device, successor) is None
    assert device.reporter.following is not None


def test_messages_that_are_no_campaign_are_invalid_and_counted():
    device = running()
    good = issue.pack(make_campaign(epoch=START + DAY), device.now)
    for message in (b"", good[:11], good[:-1], good + b" ", b"XXXX" + good[4:], good[:12] + b"[" + good[13:]):
        try:
            device.reporter.accept(message, device.now)
        except Invalid:
            continue
        raise AssertionError(message[:20])
    assert device.reporter.refusals["invalid"] == 6


def test_a_slots_reading_is_truncated_before_it_is_drawn():
    device = Device(now=START - SLOT, cap=SHARP)
    device.accept(sharp_campaign())
    device.reporter.close_slot(device.now)
    device.slot()
    for reading, symbol in ((5000, 1), (300, 1), (100, 0), (0, 0), (-5, 0)):
        assert intake.unpack(device.slot(reading)).values == (symbol,)


def test_a_buffer_of_samples_counts_as_its_samples_do():
    device = Device(now=START - SLOT, cap=SHARP)
    # Without a campaign, there is no slot in which these readings could count.
    device.reporter.observe([1, 2], device.now)
    device.accept(sharp_campaign())
    device.reporter.close_slot(device.now)
    device.slot()
    for samples, symbol in (([150, 100, 50], 1), ([60, 40], 0), ([300], 1)):
        device.reporter.observe(samples, device.now)
        device.pass_time(SLOT)
        assert intake.unpack(device.reporter.close_slot(device.now)).values == (symbol,)


def test_a_sleeper_may_hand_over_all_samples_of_its_slot():
    device = Device(now=START - SLOT, cap=SHARP)
    device.accept(sharp_campaign())
    device.pass_time(2 * SLOT)
    for samples, symbol in (([150, 100, 50], 1), (bytes([60, 40]), 0)):
        device.pass_time(SLOT)
        assert intake.unpack(device.reporter.run_once(samples, device.now)).values == (symbol,)


def test_nothing_is_drawn_after_the_last_slot():
    device = Device(now=START - SLOT)
    device.accept(make_campaign(last_slot=START // SLOT + 2))
    device.reporter.close_slot(device.now)
    device.slot()
    slots = [intake.unpack(report).slot - START // SLOT for report in (device.slot() for _ in range(3))]
    assert slots == [0, 1, 2]
    for _ in range(40):
        assert device.slot() is None
        assert device.reporter.paused == "ended"
    assert device.reporter.run_once(3, device.now) is None
    assert len(device.reporter.outbox) == 3


def test_the_last_slot_may_end_with_the_policys_duration_and_no_later():
    days = 30
    last = (START + days * DAY) // SLOT - 1
    device = Device(now=START - SLOT, duration_seconds=days * DAY)
    assert refusal(device, make_campaign(last_slot=last + 1)) == "duration"
    assert refusal(device, make_campaign(last_slot=last)) is None


def test_an_extended_campaign_goes_on_under_the_same_limits():
    """The server issues a new epoch with the same rule and a later end, as `Rounds.reissued` does."""
    end = START + 3 * DAY
    first = make_campaign(last_slot=end // SLOT - 1)

    def extended(epoch, days):
        return make_campaign(epoch=epoch, last_slot=(end + days * DAY) // SLOT - 1)

    def draw_until(device, moment, campaign):
        """Give the device the campaign in every slot until a moment; return the slots that the device draws."""
        slots = []
        while device.now < moment:
            report = device.slot()
            device.accept(campaign)
            slots += [] if report is None else [intake.unpack(report).slot]
        return slots

    drawn = []
    for lifetime in (0, 4 * 48):
        device = Device(now=START - SLOT, duration_seconds=3 * DAY, lifetime=lifetime * epsilon_units(2, 1))
        device.accept(first)
        slots = draw_until(device, START + DAY - 2 * SLOT, first)
        assert refusal(device, extended(START + DAY - SLOT, 0)) == "epoch_too_soon"
        assert refusal(device, extended(START + DAY, 2)) == "duration"
        once, twice = extended(START + DAY, 1), extended(START + 2 * DAY, 2)
        slots += draw_until(device, START + 2 * DAY - SLOT, once)
        slots += draw_until(device, twice.end, twice)
        assert slots == sorted(set(slots)), "no slot is drawn twice"
        drawn.append(slots)
    first_slot = START // SLOT
    assert drawn[0] == list(range(first_slot, first_slot + 5 * 48))
    assert drawn[1] == list(range(first_slot, first_slot + 4 * 48)), "the lifetime ends the reports"


def test_theta_reaches_the_bound_and_no_further():
    assert make_campaign(bound=300).report.theta == 300
    try:
        make_campaign(bound=299)
    except Invalid as error:
        assert "bound" in str(error)
    else:
        raise AssertionError("accepted")


def test_an_ordinary_campaign_under_a_policy_with_streams():
    device = Device(now=START - SLOT, stream={"rho": 1, "period_seconds": DAY})
    device.accept(make_campaign())
    device.reporter.close_slot(device.now)
    device.slot()
    report = intake.unpack(device.slot())
    assert (report.kind, len(report.values), report.chain) == (reports.REPORT, 1, 0)
    assert device.reporter.ledger.rho == device.reporter.ledger.ever_rho == 0
    assert device.reporter.ledger.ever > 0


def test_a_reading_that_is_no_integer_is_never_released():
    for seed in range(20):
        source = Counting()
        source.salt = b"%d" % seed
        device = Device(now=START - SLOT, entropy=Entropy(source))
        device.accept(make_campaign())
        device.pass_time(2 * SLOT)
        for sample in (1.5, "3", (3,)):
            try:
                device.reporter.run_once(sample, device.now)
            except Invalid as error:
                assert "integer" in str(error)
            else:
                raise AssertionError(sample)
        assert len(device.reporter.outbox) == 0
