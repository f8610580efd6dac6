"""Streams in the reporter: chains, counts, costs, reboots, renewal.

Readings and noise are never written to the storage.
"""

from rig import DAY, SLOT, START, Counting, Device, square_wave
from stream_rig import rule, stream_campaign

from undertone_device.core.ledger import in_ticks
from undertone_device.core.slot_value import SlotValue
from undertone_device.core.stream_state import VectorValue
from undertone_device.core.units import epsilon_units
from undertone_shared import report as reports
from undertone_shared.entropy import Entropy
from undertone_shared.errors import Invalid, Refused
from undertone_shared.off_board import intake, issue
from undertone_shared.scalar import Cohort
from undertone_shared.schedule import Schedule


def running(stream, storage=None, rho=1 << 20, period=400 * DAY, entropy=None, **policy):
    allowed = {"rho": rho, "period_seconds": period, "dimension": stream.dimension}
    device = Device(storage=storage, now=START - SLOT, entropy=entropy, stream=allowed, **policy)
    device.accept(stream_campaign(stream))
    reading = 40 if stream.dimension == 1 else (40,) * stream.dimension
    device.reporter.close_slot(device.now)
    assert device.slot(reading) is None
    return device


def refusal(device, campaign):
    try:
        device.accept(campaign)
    except Refused as error:
        return error.reason
    return None


def chain(report):
    return intake.unpack(report).chain


def reboot(device, slots=1):
    """Boot in the middle of a slot, which is then not reported, and let ``slots`` slots pass."""
    device.boot()
    device.accept(device.campaign)
    device.reporter.close_slot(device.now)
    for _ in range(slots):
        device.slot()


def test_a_stream_reports_every_slot_with_its_chain_index():
    for stream in (rule(), rule(law="one-bit", noise=[8200, 1100000])):
        device = running(stream)
        for i in range(1, 20):
            report = intake.unpack(device.slot())
            assert (report.kind, report.chain, len(report.values)) == (reports.STREAM, i, 1)
            assert report.slot == START // SLOT + i - 1


def test_the_stream_stops_when_its_reports_are_spent():
    device = running(rule(reports=5))
    for _ in range(5):
        assert device.slot() is not None
    assert device.slot() is None
    assert device.reporter.paused == "reports"


def test_a_reboot_starts_a_chain_and_the_last_one_is_counted():
    device = running(rule())
    device.campaign = stream_campaign(rule())
    assert [chain(device.slot()) for _ in range(3)] == [1, 2, 3]
    reboot(device)
    assert [chain(device.slot()) for _ in range(2)] == [1, 2]
    reboot(device)
    assert device.slot() is None
    assert device.reporter.paused == "chains"


def test_reports_drawn_before_a_reboot_stay_spent():
    device = running(rule(reports=6))
    device.campaign = stream_campaign(rule(reports=6))
    for _ in range(4):
        device.slot()
    reboot(device)
    assert [device.slot() is None for _ in range(3)] == [False, False, True]
    assert device.reporter.paused == "reports"


def test_a_gap_continues_the_chain_unless_a_restart_is_asked_for():
    for restart, following in ((0, [3, 4]), (3, [3, 4]), (1, [3, 1])):
        device = running(rule(restart=restart))
        assert [chain(device.slot()) for _ in range(2)] == [1, 2]
        device.pass_time(SLOT // 10, clock=2 * SLOT)  # one slot is skipped
        device.reporter.close_slot(device.now)
        drawn = [device.slot() for _ in range(3)]
        # First comes the report of the slot that the jump cut short, and then what follows the gap.
        assert [chain(report) for report in drawn if report is not None][:2] == following


def test_interleaved_chains_of_a_lag_share_the_reports():
    device = running(rule(lag=3, chains=3, reports=7))
    assert [chain(device.slot()) for _ in range(7)] == [1, 1, 1, 2, 2, 2, 3]
    assert device.slot() is None


def state(device):
    """The state of the stream, which is the only place where chains are kept."""
    return device.reporter.guard.rule_states["stream"]


def last_point(device):
    """The clipped reading of the newest report."""
    return state(device)._chains[0].point[0] + 500


def test_renewal_gives_a_new_budget_and_a_new_chain_whose_first_value_is_not_clipped():
    device = running(rule(renewal=6, reports=4, chains=1), period=DAY)
    chains = []
    points = []
    for i in range(12):
        report = device.slot(1000 if i >= 3 else 0)
        chains.append(None if report is None else chain(report))
        points.append(last_point(device))
    assert chains == [1, 2, 3, 4, None, None] * 2
    assert device.reporter.paused == "reports"
    assert points == [0, 0, 0, 50, 50, 50] + [1000] * 6


def test_slew_clipping_follows_the_clipped_reading():
    device = running(rule())
    points = []
    for reading in (500, 1000, 1000, 0, 0, 520):
        device.slot(reading)
        points.append(last_point(device))
    assert points == [500, 550, 600, 550, 500, 520]


def test_vectors_are_observed_and_reported_coordinate_by_coordinate():
    device = running(rule(dimension=3))
    report = device.slot((500, 600, 300))
    assert len(report) == 32
    assert len(intake.unpack(report).values) == 3
    assert state(device)._chains[0].point == (0, 100, -200)
    for sample in (500, (1, 2), (1, 2, 3.5)):
        try:
            device.reporter.observe(sample, device.now)
        except Invalid:
            continue
        raise AssertionError(sample)
    device.boot()
    assert device.reporter.outbox[0] == report
    device.reporter.acked(report)
    assert len(device.reporter.outbox) == 0


def test_a_coordinate_may_be_zero_and_none_may_be_missing():
    value = VectorValue([SlotValue("last"), SlotValue("last")])
    assert value.close(0) is None
    value.add((0, 7), 0)
    assert value.close(0) == (0, 7)


def test_a_campaign_is_charged_when_it_is_accepted_and_never_given_back():
    cost = rule().charge()
    device = running(rule(), rho=2 * cost, period=400 * DAY)
    following = stream_campaign(rule(reports=40, chains=1), epoch=START + DAY)
    assert following.rule.charge() < cost
    assert refusal(device, following) is None
    device.pass_time(DAY)
    device.accept(following, device.now)
    device.reporter.close_slot(device.now)
    third = stream_campaign(rule(), epoch=START + 3 * DAY)
    assert refusal(device, third) == "rho"
    assert device.reporter.refusals["rho"] == 1
    device.boot()
    assert refusal(device, third) == "rho"


def test_a_new_period_starts_from_nothing_when_its_length_has_passed_in_ticks():
    cost = rule().charge()
    day = stream_campaign(rule(), last_slot=START // SLOT + 47)
    tomorrow = stream_campaign(rule(), epoch=START + DAY, last_slot=START // SLOT + 95)
    for hours, reason in ((23, "rho"), (24, None)):
        device = Device(now=START - SLOT, stream={"rho": cost, "period_seconds": DAY})
        device.accept(day)
        device.pass_time(hours * 3600)
        device.accept(day)
        device.reporter.close_slot(device.now)
        assert refusal(device, tomorrow) == reason
    # The sum begins anew after a period's length of ticks, to the second.
    for seconds, reason in ((in_ticks(DAY) - 1, "rho"), (in_ticks(DAY), None)):
        device = Device(now=START - SLOT, stream={"rho": cost, "period_seconds": DAY})
        device.accept(day)
        since = device.reporter.ledger.rho_since
        device.pass_time(seconds, clock=DAY)
        device.accept(day)
        device.reporter.close_slot(device.now)
        assert device.reporter.ledger.uptime - since == seconds
        assert refusal(device, tomorrow) == reason
    # This campaign has one slot more, which lies in the next day.
    device = Device(now=START - SLOT, stream={"rho": cost, "period_seconds": DAY})
    device.accept(stream_campaign(rule(), last_slot=START // SLOT + 48))
    assert refusal(device, tomorrow) == "rho"


def test_a_clock_that_lies_with_the_server_spends_a_yearly_budget_once():
    # In this attack, each hour brings another year by the clock and another campaign, and some hours a reboot. The
    # yearly budget is still spent only once.
    cost = rule().charge()
    year = 366 * DAY
    device = Device(now=START - SLOT, stream={"rho": cost, "period_seconds": year})
    device.accept(stream_campaign(rule()))
    for hour in range(24):
        device.ticks.now += 3600 * 1000
        device.now += year
        epoch = device.now // SLOT * SLOT + SLOT
        reason = refusal(device, stream_campaign(rule(), epoch=epoch, last_slot=epoch // SLOT + 480))
        assert reason == "rho", hour
        if hour % 5 == 0:
            device.boot()


def test_a_clock_that_runs_through_windows_is_held_to_one_a_windows_length_and_one_ahead():
    day = 6 * SLOT
    windows = set()
    device = running(rule(renewal=6, reports=6, chains=6), period=DAY, reports_per_period=1000)
    for _ in range(24):
        # Two slots pass by the ticks, and a whole window by the clock.
        device.pass_time(0, clock=day - 2 * SLOT)
        device.accept(stream_campaign(rule(renewal=6, reports=6, chains=6)))
        device.reporter.close_slot(device.now)
        for _ in range(2):
            report = device.slot()
            if report is not None:
                windows.add((intake.unpack(report).slot - START // SLOT) // 6)
    assert 2 <= len(windows) <= 48 * SLOT // (day - day // 32) + 2


def test_a_clock_and_a_server_that_lie_get_in_the_long_run_a_budget_and_one_window_in_31_of_32_parts_of_a_period():
    """By the ticks, 31/32 of a period lie between two campaigns, and each draws a second window ahead of its time.

    A window costs as much as a period allows, and three windows are drawn in the worst period. After a lost ledger, the
    next campaign is accepted only when 31/32 of a period has passed.
    """
    slot, period = 900, DAY
    stream = rule(renewal=period // slot, reports=1, chains=1)
    fields = {"rho": stream.charge(), "period_seconds": period}
    device = Device(now=START - slot, stream=fields, slot_seconds=slot, epoch_seconds=1, lead_seconds=366 * DAY)
    drawn, began = [], device.ticks.now

    def live(campaign):
        device.accept(campaign)
        device.reporter.close_slot(device.now)
        device.pass_time(slot // 2)
        device.reporter.observe(40, device.now)
        device.pass_time(slot - slot // 2)
        if device.reporter.close_slot(device.now) is not None:
            drawn.append((device.ticks.now - began) // 1000)

    for number in range(1, 9):
        # The clock is set to the beginning of the next campaign, long after the last one.
        epoch = START + 10 * number * period
        campaign = stream_campaign(stream, epoch=epoch, last_slot=(epoch + 3 * period) // slot - 1, slot_seconds=slot)
        device.now = epoch - slot
        while refusal(device, campaign) is not None:
            device.pass_time(slot, clock=0)
        for window in range(2):
            device.now = max(device.now, epoch + window * period)
            while len(drawn) < 2 * number - 1 + window:
                live(campaign)
    in_a_period = [len([1 for other in drawn if first <= other < first + period]) for first in drawn]
    assert (max(in_a_period), drawn[-2] - drawn[0]) == (3, 7 * in_ticks(period)), drawn
    device.storage.files["ledger"] = b"torn"
    device.boot()
    device.now += 20 * period
    epoch = (device.now // period + 2) * period
    following = stream_campaign(stream, epoch=epoch, last_slot=(epoch + period) // slot - 1, slot_seconds=slot)
    for seconds, reason in ((0, "rho"), (in_ticks(period) - 1, "rho"), (1, None)):
        device.pass_time(seconds)
        assert refusal(device, following) == reason


def test_the_window_ahead_opens_when_its_length_of_ticks_is_near_to_the_second():
    length = 6 * SLOT
    early = length - in_ticks(length)
    for seconds, paused in ((early - 1, "window"), (early, None)):
        device = running(rule(renewal=6, reports=6, chains=6), period=DAY, reports_per_period=1000)
        device.slot()
        ledger = device.reporter.ledger
        assert (ledger.window, ledger.window_until) == (0, ledger.uptime + length)
        device.pass_time(seconds)
        device.reporter.guard.advance()
        campaign = device.reporter.campaign
        assert state(device).obstacle(campaign, campaign.first_slot + 6) == paused


def test_a_change_of_campaign_is_a_new_chain_with_counts_of_its_own():
    device = running(rule(reports=60, chains=1))
    following = stream_campaign(rule(reuse=200, reports=60, chains=1), epoch=START + DAY)
    device.accept(following)
    last = None
    for _ in range(47):
        last = device.slot()
        device.accept(following)
    assert chain(last) == 47
    assert device.slot() is None  # the old stream has no report for the slot in which it ends
    assert device.reporter.paused == "ended"
    report = intake.unpack(device.slot())
    assert (report.chain, report.fingerprint) == (1, following.fingerprint)


def test_what_follows_a_campaign_whose_file_is_lost_has_counts_of_its_own():
    first = rule(reports=60, chains=1)
    device = running(first, rho=4 * first.charge())
    for _ in range(3):
        device.slot()
    for name in list(device.storage.files):
        if name.startswith("campaign-"):
            del device.storage.files[name]
    device.boot()
    following = stream_campaign(rule(reuse=200, reports=60, chains=1), epoch=START + DAY)
    device.accept(following)
    ledger = device.reporter.ledger
    assert (ledger.reports, ledger.chains, ledger.rho) == (0, 0, first.charge() + following.rule.charge())


def test_a_lost_ledger_spends_the_period_and_a_new_device_is_not_a_lost_one():
    cost = rule().charge()
    device = running(rule(), rho=10 * cost)
    device.slot()
    device.storage.files["ledger"] = b"torn"
    device.boot()
    assert refusal(device, stream_campaign(rule())) == "rho"
    del device.storage.files["ledger"]
    device.boot()
    assert refusal(device, stream_campaign(rule())) == "rho"


def test_nothing_that_was_read_or_drawn_in_secret_is_stored():
    # Two devices have the same public facts but different readings and noise. All reports are acknowledged before the
    # last write, so the files must be equal.
    files = []
    for reading in (0, 1000):
        device = running(rule())
        for _ in range(6):
            report = device.slot(reading)
            device.reporter.acked(report)
        device.accept(stream_campaign(rule(), epoch=START + DAY))
        files.append(device.storage.files)
    assert files[0] == files[1]


def test_no_report_leaves_when_its_chain_cannot_be_counted():
    device = running(rule(), write_seconds=86400)
    assert chain(device.slot()) == 1
    device.storage.broken = True
    # No write is due within the reserved block, so this report leaves.
    assert chain(device.slot()) == 2
    # A new chain is written to the ledger before its first report leaves.
    state(device).forget()
    assert device.slot() is None
    assert device.reporter.paused == "storage"
    device.storage.broken = False
    assert device.slot() is None  # that was the second chain of two
    assert device.reporter.paused == "chains"


def test_a_copy_of_the_memory_shares_no_noise_with_the_original():
    # A snapshot of a virtual machine is restored. The copy's next report has its own noise, whether it
    # is the first of its chain or a later one.
    for chains in (0, 3):
        reports = []
        for salt in (b"\1", b"\2"):
            source = Counting()
            device = running(rule(), entropy=Entropy(source))
            for _ in range(chains):
                device.slot()
            device.pass_time(SLOT // 2)
            device.reporter.observe(40, device.now)
            # The snapshot is taken here. From now on, each copy has its own random bytes.
            source.salt = salt
            device.pass_time(SLOT - SLOT // 2)
            reports.append(intake.unpack(device.reporter.close_slot(device.now)).values)
        assert reports[0] != reports[1]


def test_a_policy_without_streams_refuses_them():
    device = Device(now=START - SLOT)
    assert refusal(device, stream_campaign(rule())) == "stream"
    assert device.reporter.guard.rule_states == {}


def test_corrupt_state_is_a_lost_ledger_or_no_campaign():
    device = running(rule())
    device.slot()
    names = [name for name in device.storage.files if name.startswith("campaign-")]
    body = device.storage.files[names[0]]
    device.storage.files[names[0]] = body.replace(b'"reports":48', b'"reports":49')
    device.boot()
    assert device.reporter.campaign is None
    device.storage.files[names[0]] = body[:-3]
    device.boot()
    assert device.reporter.campaign is None
    message = issue.pack(stream_campaign(rule()), device.now)
    for damaged in (message.replace(b'"slew":50', b'"slew":500'), message.replace(b'"lag":1', b'"lag":-1')):
        try:
            device.reporter.accept(damaged, device.now)
        except Invalid:
            continue
        raise AssertionError("accepted")


def test_a_renewing_stream_ends_with_its_campaign():
    stream = rule(renewal=4, reports=4, chains=2)
    device = Device(now=START - SLOT, stream={"rho": 1 << 30, "period_seconds": DAY})
    device.accept(stream_campaign(stream, last_slot=START // SLOT + 3))
    device.reporter.close_slot(device.now)
    device.slot()
    assert [chain(device.slot()) for _ in range(4)] == [1, 2, 3, 4]
    for _ in range(20):
        assert device.slot() is None
        assert device.reporter.paused == "ended"


def test_no_chain_runs_on_into_the_next_window():
    device = running(rule(lag=2, renewal=4, reports=4, chains=4), period=DAY)
    assert [chain(device.slot()) for _ in range(8)] == [1, 1, 2, 2, 1, 1, 2, 2]


def test_a_shorter_successor_does_not_uncharge_the_periods_of_the_longer_campaign():
    cost = rule().charge()
    device = Device(now=START - SLOT, stream={"rho": 2 * cost, "period_seconds": 10 * DAY})
    # The first campaign is charged to the periods of forty days. The second lasts a day. The third begins after the
    # second, within the periods that the first was charged to.
    assert refusal(device, stream_campaign(rule(), last_slot=START // SLOT + 40 * 48 - 1)) is None
    device.reporter.close_slot(device.now)
    following = stream_campaign(rule(), epoch=START + DAY, last_slot=START // SLOT + 2 * 48 - 1)
    assert refusal(device, following) is None
    until = device.reporter.ledger.rho_period
    assert until == (START + 40 * DAY - 1) // (10 * DAY)
    # Time passes day by day, because the counter of ticks comes round after twelve days. After this loop, more than a
    # period has passed by the ticks.
    for _ in range(25):
        device.pass_time(DAY)
        device.reporter.close_slot(device.now)
    assert device.reporter.ledger.uptime > 20 * DAY
    third = stream_campaign(rule(), epoch=START + 26 * DAY, last_slot=START // SLOT + 27 * 48 - 1)
    assert refusal(device, third) == "rho"


def test_a_period_that_a_campaign_ended_in_goes_on_for_the_next_however_long_it_has_been():
    cost = rule().charge()
    period = START // (100 * DAY)
    # The campaign begins two days before a period's end and ends one day into the next period.
    begin = (period + 1) * 100 * DAY - 2 * DAY
    device = Device(now=begin - SLOT, stream={"rho": cost, "period_seconds": 100 * DAY})
    assert refusal(device, stream_campaign(rule(), epoch=begin, last_slot=(begin + 3 * DAY) // SLOT - 1)) is None
    # Time passes day by day, because of the counter of ticks.
    for _ in range(101):
        device.pass_time(DAY)
        device.reporter.close_slot(device.now)
    later = (device.now // SLOT + 1) * SLOT
    assert later // (100 * DAY) == period + 1 == device.reporter.ledger.rho_period
    assert refusal(device, stream_campaign(rule(), epoch=later, last_slot=later // SLOT + 47)) == "rho"


def test_a_cap_per_report_holds_for_every_single_report():
    # In this attack, a campaign of one slot claims to have 65,535 reports, whose budgets its single report would spend.
    wide = rule(reports=65535)
    campaign = stream_campaign(wide, last_slot=START // SLOT)
    for rho in (1, wide.report_charge() - 1, wide.charge()):
        device = Device(now=START - SLOT, stream={"rho": rho, "period_seconds": DAY, "per_report": True})
        assert refusal(device, campaign) == "rho", rho
    # Of all single reports, the first one of a chain costs most here.
    assert rule().report_charge() == -(-1000 * 1000 * (1 << 20) // (2 * (65000000 - 4)))
    for rho, reason in ((rule().report_charge() - 1, "rho"), (rule().report_charge(), None)):
        device = Device(now=START - SLOT, stream={"rho": rho, "period_seconds": 400 * DAY, "per_report": True})
        assert refusal(device, stream_campaign(rule())) == reason
    # A campaign with as many slots as reports is accepted, and one with one slot less is refused.
    for slots, reason in ((48, None), (47, "rho")):
        allowed = {"rho": rule().report_charge(), "period_seconds": 400 * DAY, "per_report": True}
        device = Device(now=START - SLOT, stream=allowed)
        assert refusal(device, stream_campaign(rule(), last_slot=START // SLOT + slots - 1)) == reason


def test_a_streams_theta_reaches_the_bound_and_no_further():
    assert stream_campaign(rule(), bound=1000).rule.theta == 1000
    try:
        stream_campaign(rule(), bound=999)
    except Invalid as error:
        assert str(error) == "rule.theta is 1000, expected at most the bound 999"
    else:
        raise AssertionError("accepted")


def test_windows_are_counted_from_the_campaigns_first_slot():
    # The number of slots is no multiple of the window's length.
    stream = rule(renewal=4, reports=4, chains=1)
    device = Device(now=START, stream={"rho": 1 << 30, "period_seconds": 400 * DAY, "dimension": 1})
    device.accept(stream_campaign(stream, epoch=START + SLOT))
    device.reporter.close_slot(device.now)
    chains = [chain(report) for report in [device.slot() for _ in range(14)] if report is not None]
    assert chains[:8] == [1, 2, 3, 4, 1, 2, 3, 4]


class Watched(Entropy):
    """Notes how many words the buffer has left when a reading from 0 to 1000 is rounded to the grid."""

    def __init__(self, source):
        Entropy.__init__(self, source)
        self.seen = []

    def below(self, n):
        if n == 1000:
            self.seen.append(self.left)
        return Entropy.below(self, n)


def test_a_reading_is_rounded_with_a_full_buffer_whatever_the_noise_took():
    for stream in (rule(), rule(law="one-bit", noise=[8200, 1100000])):
        entropy = Watched(Counting())
        device = running(stream, entropy=entropy)
        for _ in range(20):
            assert device.slot() is not None
        assert entropy.seen == [64] * 20


def test_every_window_that_a_campaign_begins_counts_for_ever():
    daily = rule(renewal=48)
    for slots, windows in ((1, 1), (48, 1), (49, 2), (96, 2), (97, 3)):
        stream = {"rho": (1 << 32) - 1, "period_seconds": 400 * DAY, "lifetime": windows * daily.charge()}
        campaign = stream_campaign(daily, last_slot=START // SLOT + slots - 1)
        device = Device(now=START - SLOT, stream=stream)
        device.accept(campaign)
        assert device.reporter.ledger.ever_rho == windows * daily.charge(), slots
        stream["lifetime"] -= 1
        assert refusal(Device(now=START - SLOT, stream=stream), campaign) == "rho"


def threshold_round(first):
    """A threshold round of five slots, in which each device has one turn."""
    wave = Cohort(square_wave())
    schedule = Schedule(bytes(16), 5, 1)
    return stream_campaign(None, cohort=wave, epoch=first * SLOT, last_slot=first + 4, schedule=schedule)


def test_a_threshold_round_takes_one_report_of_its_own_epsilon_and_then_the_stream_its_rho():
    stream, one = rule(theta=700), epsilon_units(2, 1)
    allowed = {"rho": stream.charge(), "period_seconds": 400 * DAY, "lifetime": stream.charge()}
    device = Device(now=START - SLOT, stream=allowed, lifetime=one, epoch_seconds=5 * SLOT)
    first = START // SLOT
    device.accept(threshold_round(first))
    device.reporter.close_slot(device.now)
    device.slot()
    drawn = [report for report in [device.slot() for _ in range(5)] if report is not None]
    assert [intake.unpack(report).kind for report in drawn] == [reports.COHORT]
    ledger = device.reporter.ledger
    assert (ledger.ever, ledger.ever_rho) == (one, 0)
    # In a second round, the device reports nothing: the policy allows only one such report.
    device.accept(threshold_round(first + 6))
    assert [device.slot() for _ in range(7)] == [None] * 7
    assert ledger.ever == one
    # Then the stream begins, and spends a budget of its own.
    device.accept(stream_campaign(stream, epoch=(first + 13) * SLOT, last_slot=first + 60))
    drawn = [report for report in [device.slot() for _ in range(4)] if report is not None]
    assert {intake.unpack(report).kind for report in drawn} == {reports.STREAM}
    assert [chain(report) for report in drawn] == list(range(1, len(drawn) + 1))
    ledger = device.reporter.ledger
    assert (ledger.ever, ledger.ever_rho) == (one, stream.charge())


def test_epsilon_that_is_used_up_and_more_stops_no_stream():
    stream = rule()
    device = running(stream, lifetime=epsilon_units(2, 1))
    # After a power failure, a block of reserved draws counts as spent. This may be more than the lifetime's epsilon.
    device.reporter.ledger.ever = 3 * epsilon_units(2, 1)
    assert intake.unpack(device.slot()).kind == reports.STREAM
