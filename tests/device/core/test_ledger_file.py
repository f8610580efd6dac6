"""The stored form of the ledger does not change, and any other bytes count as a lost ledger."""

import hashlib
import random
from bisect import bisect_left

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rig import Memory

from undertone_device.core.ledger import FILE, GROUPS, Ledger
from undertone_device.core.spent import drawn_since, month

# A ledger of version 3 with two reports. Devices have stored this form, so it must not change.
FROZEN = bytes.fromhex(
    "55544c33"  # UTL3
    "6ae6d800"  # spent_until 1793513472
    "6ae58680"  # last_epoch
    "0001e240"  # uptime
    "0000002a"  # sequence
    "00005117"  # day
    "0002"  # boots
    "0002"  # reports in the outbox
    "a1b2c3d4e5f60718"  # current campaign
    "0000000000000000"  # next campaign
    "00000017"  # rho_period
    "00009301"  # rho
    "00010000"  # rho_since
    "00000003"  # window
    "00011111"  # window_until
    "0011"  # reports of the stream in the window
    "0002"  # chains in the window
    "0000000002a00000"  # ever: 42 reports of epsilon 1
    "0000000000009301"  # ever_rho
    "6ae58600"  # began
    "6ae58601"  # handover
    # sums
    "0002"  # groups
    "0001"  # the newest group
    "00000001"  # draws that fill a group
    "00000001"  # draws in the newest group
    "00000000"  # reserved
    "00000000"  # units of each reserved draw
    "00005117"  # day
)
FROZEN += bytes(4 * (0x5117 % 31)) + bytes.fromhex("00a00000") + bytes(4 * (30 - 0x5117 % 31))
FROZEN += bytes.fromhex("6ae6ca00 0001e000 6ae6d0f8 0001e240") + bytes(8 * 46)
SUMS_END = len(FROZEN)
FROZEN += bytes.fromhex(
    "0201a1b2c3d4e5f60718000f2f0a0000002a000000000029 0201a1b2c3d4e5f60718000f2f0b0000000700000000002a"
)
FROZEN += hashlib.sha256(FROZEN).digest()[:8]


def load(data):
    storage = Memory()
    storage.files[FILE] = data
    return storage, Ledger(storage, 96)


def test_the_frozen_bytes_are_read_and_written_back_alike():
    storage, ledger = load(FROZEN)
    assert SUMS_END == 624
    assert not ledger.lost
    assert (ledger.spent_until, ledger.last_epoch) == (0x6AE6D800, 0x6AE58680)
    assert (ledger.uptime, ledger.sequence, ledger.day, ledger.boots) == (123456, 42, 0x5117, 2)
    assert (ledger.current, ledger.next) == (bytes.fromhex("a1b2c3d4e5f60718"), bytes(8))
    assert [ledger.outbox[i] for i in range(2)] == [FROZEN[624:648], FROZEN[648:672]]
    assert (ledger.rho_period, ledger.rho, ledger.rho_since) == (0x17, 0x9301, 0x10000)
    assert (ledger.window, ledger.window_until, ledger.reports, ledger.chains) == (3, 0x11111, 17, 2)
    assert (ledger.ever, ledger.ever_rho, ledger.began) == (42 << 20, 0x9301, 0x6AE58600)
    assert ledger.handover == 0x6AE58601
    ledger.sums.limit(2, ledger.spent_until, ledger.uptime)
    assert month(ledger.sums, 0x5117, 0) == 10 << 20
    assert drawn_since(ledger.sums, 0) == 2
    assert drawn_since(ledger.sums, 0x6AE6D0F8) == 1
    ledger.write(ledger.spent_until, 0, 0)
    assert storage.files[FILE] == FROZEN


def test_reserved_reports_count_as_drawn():
    storage, ledger = load(FROZEN)
    ledger.sums.limit(2, ledger.spent_until, ledger.uptime)
    ledger.write(ledger.spent_until + 3600, 5, 1000)
    again = load(storage.files[FILE])[1]
    assert (again.reports, again.chains) == (22, 2)
    assert (again.spent_until, again.sequence) == (ledger.spent_until + 3600, 47)
    assert again.ever == ledger.ever + 5000
    again.sums.limit(2, again.spent_until, again.uptime)
    assert month(again.sums, 0x5117, 0) == (10 << 20) + 5000
    # The whole cap of two counts as drawn at the end of what was reserved.
    assert drawn_since(again.sums, again.spent_until) == 2


def test_reserved_reports_count_on_the_utc_day_that_they_end_on():
    storage, ledger = load(b"")
    ledger.sums.limit(48, 0, 0)
    ledger.write(20800 * 86400, 5, 1000)
    again = load(storage.files[FILE])[1].sums
    again.limit(48, 20800 * 86400, 0)
    # The 31 days up to the 30th day after the draw contain it. The 31 days up to the 31st day do not.
    assert (month(again, 20830, 0), month(again, 20831, 0)) == (5000, 0)


def test_another_cap_counts_the_old_one_as_spent():
    for most in (1, 3, 47, 49, 1000, 1 << 24):
        ledger = load(FROZEN)[1]
        ledger.sums.limit(most, ledger.spent_until, ledger.uptime)
        assert most - most // 48 <= drawn_since(ledger.sums, ledger.spent_until) <= most
        assert not ledger.sums.permits(ledger.spent_until + 86399, ledger.uptime + 86400, 86400, 0)
        assert not ledger.sums.permits(ledger.spent_until + 86400, ledger.uptime + 9999, 86400, 10000)
        assert ledger.sums.permits(ledger.spent_until + 86400, ledger.uptime + 10000, 86400, 10000)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.integers(1, 400), st.integers(1, 300), st.integers(0, 1 << 30))
def test_no_period_ever_holds_more_draws_than_the_cap(most, seconds, seed):
    gaps = random.Random(seed).choices(range(1, 51), k=500)
    sums = load(b"")[1].sums
    sums.limit(most, 0, 0)
    start, drawn = 1, []
    for gap in gaps:
        start += gap
        if sums.permits(start, start, seconds, 0):
            sums.add(start, start)
            drawn.append(start)
    assert drawn
    for number, first in enumerate(drawn):
        assert bisect_left(drawn, first + seconds) - number <= most


def test_a_lost_cap_counts_one_draw_in_each_slot_before_and_ticks_of_nine_tenths():
    start, uptime, seconds, ever = 10**9, 10**8, 1800, 1 << 31
    for most in (1, 2, 48, 100, 1000):
        sums = load(b"")[1].sums
        sums.limit(most, 0, 0)
        sums.fill(start, uptime, seconds)
        # Draws are counted in at most GROUPS groups of equal size. There is room for a new group once the last draw of
        # the oldest group is a period old.
        size = -(-most // GROUPS)
        oldest = ((most // size - 1) * size + 1) * seconds
        period = 2 * most * seconds
        assert not sums.permits(start - oldest + period - 1, ever, period, 0)
        assert sums.permits(start - oldest + period, ever, period, 0)
        assert not sums.permits(ever, uptime - oldest * 9 // 10 + period - 1, 0, period)
        assert sums.permits(ever, uptime - oldest * 9 // 10 + period, 0, period)


def test_a_lost_cap_of_a_clock_that_begins_in_1970_counts_from_its_first_second_and_tick():
    """A stored second of 0 means that nothing was drawn, so a lost cap must not begin at 0."""
    sums, ever = load(b"")[1].sums, 1 << 31
    sums.limit(1, 0, 0)
    sums.fill(5, 5, 1800)
    assert not sums.permits(86400, ever, 86400, 0)
    assert sums.permits(86401, ever, 86400, 0)
    assert not sums.permits(ever, 86399, 0, 86400)
    assert sums.permits(ever, 86400, 0, 86400)


def test_a_draw_in_every_slot_is_never_refused_by_a_cap_of_all_slots():
    for most in (1, 2, 24, 48):
        sums = load(b"")[1].sums
        sums.limit(most, 0, 0)
        for slot in range(1, 500):
            assert sums.permits(slot * 1800, slot * 1800, most * 1800, most * 1800)
            sums.add(slot * 1800, slot * 1800)


def test_reports_of_several_dimensions_come_back_whole():
    storage = Memory()
    ledger = Ledger(storage, 4, 32)
    wide = bytes.fromhex("0202a1b2c3d4e5f60718000f2f0a0000002a00010000000900000007fffffff9")
    ledger.outbox.append(wide)
    ledger.outbox.append(wide[:1] + b"\1" + wide[2:18] + b"\0\0" + wide[20:24])
    ledger.write(1, 0, 0)
    outbox = Ledger(storage, 4, 32).outbox
    assert [len(outbox[i]) for i in range(2)] == [32, 24]
    assert outbox[0] == wide
    assert outbox.remove(outbox[1])
    assert outbox.remove(wide)
    assert Ledger(storage, 4).lost


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(st.binary(max_size=200))
def test_any_other_bytes_are_a_lost_ledger(data):
    _, ledger = load(data)
    assert ledger.lost
    assert ledger.spent_until == 0
    assert len(ledger.outbox) == 0


def test_any_flipped_bit_and_any_torn_end_is_a_lost_ledger():
    for position in range(len(FROZEN)):
        assert load(FROZEN[:position])[1].lost
        for bit in range(8):
            data = bytearray(FROZEN)
            data[position] ^= 1 << bit
            assert load(bytes(data))[1].lost


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 1000)), min_size=1, max_size=60))
def test_a_month_is_the_sum_of_its_31_days(steps):
    sums = load(b"")[1].sums
    sums.limit(48, 0, 0)
    day, spent = 20_000, {}
    for gap, units in steps:
        day += gap
        spent[day] = spent.get(day, 0) + units
        sums.spend(day, units)
        for today in (day, day + 1, day + 30, day + 31):
            assert month(sums, today, 0) == sum(n for past, n in spent.items() if today - 31 < past)


def test_reports_of_a_window_are_counted_to_65535_and_stay_there():
    storage, ledger = load(b"")
    ledger.reports = 0xFFFF
    ledger.write(0, 59, 0)
    assert load(storage.files[FILE])[1].reports == 0xFFFF


def test_a_ledger_claims_its_storage_before_it_reads_it():
    asked = []

    class Claimed(Memory):
        def claim(self):
            asked.append("claim")

        def read(self, name):
            asked.append(name)
            return super().read(name)

    Ledger(Claimed(), 96)
    assert asked == ["claim", FILE]


def test_a_month_after_any_gap_holds_no_older_day():
    for gap in range(1, 70):
        sums = load(b"")[1].sums
        sums.limit(48, 0, 0)
        for day in range(20_000, 20_031):
            sums.spend(day, 1)
        today = 20_030 + gap
        sums.spend(today, 100)
        assert month(sums, today, 0) == 100 + max(31 - gap, 0), gap
