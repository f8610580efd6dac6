"""Compares rows of estimates, which may have nan. nan is not equal to itself."""

from collections.abc import Iterable
from dataclasses import astuple
from math import isnan

from undertone_aggregator.estimate.estimates import Estimate


def alike(some: Iterable[Estimate], others: Iterable[Estimate]) -> bool:
    """Return True if the rows have equal fields, where nan equals nan.

    Whether dataclasses with the same nan object are equal depends on the version of Python.
    """
    return list(map(_comparable, some)) == list(map(_comparable, others))


def _comparable(row: Estimate) -> tuple[object, ...]:
    return tuple("nan" if isinstance(value, float) and isnan(value) else value for value in astuple(row))
