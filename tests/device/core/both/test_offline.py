"""A device without a connection for a week: what it draws, what it keeps, and when it goes on."""

from rig import DAY, SLOT, START, Device, make_campaign

from undertone_shared.off_board import intake

# docs/firmware.md states both: the half-hours drawn after the server's last message, and the reports that are kept.
DRAWN = 144
KEPT = 96


def lonely_week():
    """Return a device that hears nothing for a week after its campaign began, and the slots of its reports."""
    device = Device(now=START - SLOT)
    device.accept(make_campaign())
    device.reporter.close_slot(device.now)
    device.slot()
    device.accept(make_campaign())
    drawn = []
    while device.now < START + 7 * DAY:
        report = device.slot()
        if report is not None:
            drawn.append(intake.unpack(report).slot)
    return device, drawn


def test_a_device_offline_reports_for_three_days_and_keeps_the_newest_two():
    device, drawn = lonely_week()
    assert drawn == list(range(START // SLOT, START // SLOT + DRAWN))
    assert device.reporter.paused == "clock"
    assert len(device.reporter.outbox) == KEPT
    assert intake.unpack(device.reporter.outbox[0]).slot == drawn[-KEPT]


def test_all_that_a_device_kept_offline_is_too_late_for_the_server():
    device, drawn = lonely_week()
    # The server counts a report until two days after its slot.
    assert (drawn[-1] + 1) * SLOT < device.now - 2 * DAY


def test_a_device_offline_goes_on_with_the_next_message_of_the_server():
    device, _ = lonely_week()
    device.accept(make_campaign())
    assert device.slot() is not None


def test_a_week_off_spends_what_was_drawn_and_no_more():
    device, drawn = lonely_week()
    assert device.reporter.ledger.sequence == len(drawn)
