"""Sums by ulab equal the loop's: against a stand-in that has ulab's names only, and its float32."""

import random
from types import SimpleNamespace

import numpy
import pytest

from undertone_device import slot_value


@pytest.fixture
def ulab(monkeypatch):
    """What ulab.numpy offers for this, in single precision as on most boards."""
    calls = []

    def vector(samples):
        calls.append(len(samples))
        return numpy.array(list(samples), dtype=numpy.float32)

    names = SimpleNamespace(
        array=vector, sum=lambda v: numpy.float32(v.sum(dtype=numpy.float32)), max=numpy.max, min=numpy.min
    )
    monkeypatch.setattr(slot_value, "_ulab", names)
    return calls


def test_sums_are_exact_whatever_the_size_of_the_samples(ulab):
    rng = random.Random(1)
    for bits in range(1, 30):
        samples = [rng.randint(-(1 << bits), 1 << bits) for _ in range(48)]
        assert slot_value.total(samples) == sum(samples)
    assert len(ulab) == 29


def test_short_buffers_do_not_pay_for_a_vector(ulab):
    assert slot_value.total([1, 2, 3]) == 6
    assert ulab == []
