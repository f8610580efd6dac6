"""Memory of the most recently used results of costly pure functions of histograms.

One decision about θ asks for the same posterior several times: for the next round's edges, for θ under a first and a
second variance, for the times of day. Equal histograms give equal results, so a result may be kept.
"""

import hashlib
import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from undertone_aggregator.threshold.counts import CohortCounts, ReportCounts

P = ParamSpec("P")
T = TypeVar("T")
# Number of results that are kept for each function: `_KEPT` for a function of all histograms together, such as a
# posterior, and `_KEPT_OF_HISTOGRAMS` for a function of a single one. One decision about θ needs no more.
_KEPT = 4
_KEPT_OF_HISTOGRAMS = 48


def remembered(function: Callable[P, T], keep: int = _KEPT) -> Callable[P, T]:
    """Keep the ``keep`` most recently used results of a pure function of histograms and numbers; threads may share it.

    The results are shared, so no caller may change them. An error is not kept.
    """
    results: dict[object, T] = {}
    lock = threading.Lock()

    @wraps(function)
    def recall(*args: P.args, **kwargs: P.kwargs) -> T:
        key = (*map(_content, args), *((name, _content(kwargs[name])) for name in sorted(kwargs)))
        with lock:
            if key in results:
                results[key] = results.pop(key)
                return results[key]
        result = function(*args, **kwargs)
        with lock:
            results[key] = result
            while len(results) > keep:
                del results[next(iter(results))]
        return result

    return recall


def remembered_for_each(function: Callable[P, T]) -> Callable[P, T]:
    """Keep results as `remembered` does, of a function of a single histogram. There is room for all results of one
    decision.
    """
    return remembered(function, _KEPT_OF_HISTOGRAMS)


def _content(value: object) -> object:
    """Return a value that is equal for equal arguments. For a histogram, it depends on the content and not on the
    object.
    """
    if isinstance(value, CohortCounts):
        window = value.mechanism
        return (window.a, window.b, window.window, window.stride, window.levels, value.edges, _digest(value.counts))
    if isinstance(value, ReportCounts):
        return value.theta, _digest(value.positions), _digest(value.rows), _digest(value.counts)
    if isinstance(value, (list, tuple)):
        return tuple(map(_content, value))
    return value


def _digest(numbers: ArrayLike) -> bytes:
    # The key of a result holds a hash in place of the numbers, which would take megabytes for each epoch.
    array = np.asarray(numbers, dtype=np.float64)
    return hashlib.sha256(repr(array.shape).encode() + array.tobytes()).digest()
