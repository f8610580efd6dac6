"""Turns: with a stride, a device reports only in its own slots and rests in between."""

from rig import DAY, SLOT, START, Device, hybrid, make_campaign

from undertone_shared import report as reports
from undertone_shared.off_board import intake
from undertone_shared.scalar import ReportRule
from undertone_shared.schedule import Schedule


def turning(stride, cohort_stride, **policy):
    device = Device(now=START - SLOT, **policy)
    device.accept(campaign(stride, cohort_stride))
    device.reporter.close_slot(device.now)
    return device


def campaign(stride, cohort_stride):
    return make_campaign(
        schedule=Schedule(bytes(range(16)), stride, cohort_stride),
        report=ReportRule(0, 300, hybrid()),
        last_slot=(START + 300 * DAY) // SLOT - 1,
    )


def play(device, slots):
    """(slot, kind) of each report, and the set of words that say why the device did not report in some slots."""
    made, words = [], set()
    for _ in range(slots):
        # The server repeats its message in every slot.
        device.accept(campaign(49, 5))
        data = device.slot()
        if data is None and device.reporter.paused is not None:
            words.add(device.reporter.paused)
        elif data is not None:
            report = intake.unpack(data)
            made.append((report.slot, report.kind))
    return made, words


def test_a_device_reports_in_its_turns_and_the_cohort_in_turns_of_turns():
    device = turning(49, 5)
    schedule = device.reporter.campaign.schedule
    place = schedule.place("meter-1")
    first = START // SLOT
    made, words = play(device, 49 * 10)
    expected = [
        (slot, reports.COHORT if schedule.is_member(place, slot) else reports.REPORT)
        for slot in range(first, first + 49 * 10)
        if schedule.is_turn(place, slot)
    ]
    assert made == expected
    assert [kind for _, kind in made].count(reports.COHORT) == 2
    assert words == {"turn"}
    assert device.reporter.ledger.sequence == 10


def test_turns_satisfy_a_rest_of_their_length():
    # Between the end of a turn and the start of the next, 48 slots of rest pass.
    device = turning(49, 5, rest_seconds=48 * SLOT)
    made, words = play(device, 49 * 4)
    assert 3 <= len(made) <= 4
    assert {made[i + 1][0] - made[i][0] for i in range(len(made) - 1)} == {49}
    # After the start the device waits for a whole rest of ticks.
    assert words <= {"turn", "rest"}


def test_a_longer_rest_skips_turns():
    device = turning(49, 5, rest_seconds=49 * SLOT)
    made, words = play(device, 49 * 6)
    assert {made[i + 1][0] - made[i][0] for i in range(len(made) - 1)} == {98}
    assert words == {"turn", "rest"}
