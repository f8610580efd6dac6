"""Undertone: time series from many small devices under local differential privacy, over MQTT.

For an analyst: ``undertone.open_store(path)`` gives a `Results` with estimates, ranges, quantiles, arrays and a
DataFrame. It needs the extra ``aggregator`` (``frame``: pandas, in ``all``); a plain install is the device alone, so
nothing is imported before it is asked for.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from undertone_aggregator.estimate.distribution import Quantile as Quantile
    from undertone_aggregator.estimate.query import Results as Results
    from undertone_aggregator.estimate.query import open_store as open_store
    from undertone_aggregator.estimate.ranges import RangeEstimate as RangeEstimate
    from undertone_aggregator.estimate.reconstruct import Estimate as Estimate

_PLACES = {
    "Estimate": "estimate.reconstruct",
    "Quantile": "estimate.distribution",
    "RangeEstimate": "estimate.ranges",
    "Results": "estimate.query",
    "open_store": "estimate.query",
}

__all__ = ["Estimate", "Quantile", "RangeEstimate", "Results", "open_store"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'undertone' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"undertone_aggregator.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
