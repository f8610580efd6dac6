"""Membership in the cohort is spread evenly over (slot of the cycle, device)."""

import numpy as np
from scipy.stats import chi2

from undertone_shared.schedule import Schedule

CYCLE, DEVICES, SEEDS, STRIDE = 48, 4000, 40, 19
# The chance of a false alarm in each tested tail of a chi-square, if seeds were drawn at random. The seeds are fixed.
FALSE_ALARM = 1e-6


def test_membership_in_a_day_is_flat_over_slots_and_seeds():
    """Each device is asked once in 19 successive slots.

    Under each seed, 4,000 devices are spread over 19 cells at random.
    """
    slots = np.arange(990_000, 990_000 + STRIDE)
    statistic = 0.0
    for number in range(SEEDS):
        schedule = Schedule(bytes([number]) * 16, 1, STRIDE)
        places = np.array([schedule.place(f"meter-{i}") for i in range(DEVICES)])
        counts = np.count_nonzero((slots[:, None] + places) % STRIDE == 0, axis=1)
        assert counts.sum() == DEVICES
        statistic += float(((counts - DEVICES / STRIDE) ** 2).sum() / (DEVICES / STRIDE))
    assert chi2.ppf(FALSE_ALARM, SEEDS * (STRIDE - 1)) < statistic < chi2.isf(FALSE_ALARM, SEEDS * (STRIDE - 1))


def test_turns_and_membership_are_independent():
    """Devices fill the 7 x 5 places of `Schedule.place` evenly: a turn says nothing of the turn in the cohort."""
    schedule = Schedule(bytes(16), 7, 5)
    places = np.array([schedule.place(f"meter-{i}") for i in range(35 * 1000)])
    counts = np.bincount(places, minlength=35)
    assert ((counts - 1000) ** 2 / 1000).sum() < chi2.isf(FALSE_ALARM, 34)


def test_every_device_is_asked_at_every_hour_equally_often():
    schedule = Schedule(bytes(range(16)), 1, STRIDE)
    for i in range(200):
        place = schedule.place(f"meter-{i}")
        hours = [slot % CYCLE for slot in range(CYCLE * STRIDE) if schedule.is_member(place, slot)]
        assert sorted(hours) == list(range(CYCLE))
