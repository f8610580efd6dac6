"""Undertone: time series from many small devices under local differential privacy, over MQTT.

For analysts: `certify`, `plan`, `simulate` and `release` do what the commands of the same names do. `open_store`,
`connect` and `open_release` read results. docs/api.md lists what is stable.
The functions need the extra ``aggregator``; `simulate` and `plan` need the extra ``simulator``. A plain install
contains only the device, so the module of a name is imported when the name is first used.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

if TYPE_CHECKING:
    from undertone.api import certify as certify
    from undertone.api import certify_published as certify_published
    from undertone.api import plan as plan
    from undertone.api import simulate as simulate
    from undertone_aggregator import design as mechanisms
    from undertone_aggregator.campaign.results import connect as connect
    from undertone_aggregator.campaign.results import open_results as open_store
    from undertone_aggregator.design.certificate import Certificate as Certificate
    from undertone_aggregator.estimate.distribution import Quantile as Quantile
    from undertone_aggregator.estimate.estimates import Estimate as Estimate
    from undertone_aggregator.estimate.estimates import RangeEstimate as RangeEstimate
    from undertone_aggregator.estimate.query import Results as Results
    from undertone_aggregator.estimate.selection import Selection as Selection
    from undertone_central.release import Broker as Broker
    from undertone_central.release import Release as Release
    from undertone_central.release import Released as Released
    from undertone_central.release import open_release as open_release
    from undertone_central.release import release as release
    from undertone_simulator.fast.options import SimulateOptions as SimulateOptions
    from undertone_simulator.fast.simulated import Simulated as Simulated
    from undertone_simulator.planning.fleet_plan import FleetPlan as FleetPlan
    from undertone_simulator.planning.options import PlanOptions as PlanOptions

_PLACES = {
    "Broker": "undertone_central.release",
    "Certificate": "undertone_aggregator.design.certificate",
    "Estimate": "undertone_aggregator.estimate.estimates",
    "FleetPlan": "undertone_simulator.planning.fleet_plan",
    "PlanOptions": "undertone_simulator.planning.options",
    "Quantile": "undertone_aggregator.estimate.distribution",
    "RangeEstimate": "undertone_aggregator.estimate.estimates",
    "Release": "undertone_central.release",
    "Released": "undertone_central.release",
    "Results": "undertone_aggregator.estimate.query",
    "Selection": "undertone_aggregator.estimate.selection",
    "SimulateOptions": "undertone_simulator.fast.options",
    "Simulated": "undertone_simulator.fast.simulated",
    "certify": "undertone.api",
    "certify_published": "undertone.api",
    "connect": "undertone_aggregator.campaign.results",
    "mechanisms": "undertone_aggregator.design",
    "open_release": "undertone_central.release",
    "open_store": "undertone_aggregator.campaign.results:open_results",
    "plan": "undertone.api",
    "release": "undertone_central.release",
    "simulate": "undertone.api",
}

__all__ = [
    "Broker",
    "Certificate",
    "Estimate",
    "FleetPlan",
    "PlanOptions",
    "Quantile",
    "RangeEstimate",
    "Release",
    "Released",
    "Results",
    "Selection",
    "SimulateOptions",
    "Simulated",
    "__version__",
    "certify",
    "certify_published",
    "connect",
    "mechanisms",
    "open_release",
    "open_store",
    "plan",
    "release",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'undertone' has no attribute {name!r}")
    from importlib import import_module

    place, _, attribute = _PLACES[name].partition(":")
    module = import_module(place)
    return module if name == "mechanisms" else getattr(module, attribute or name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
