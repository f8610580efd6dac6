"""Central releases: streams, counts and synthetic items from raw values that one trusted party holds, event level."""

from undertone_aggregator.central.continual import Continual
from undertone_aggregator.central.counting import Binary, Counter, Simple1, Simple2, TwoLevel
from undertone_aggregator.central.entropy import FreshBytes
from undertone_aggregator.central.factorisation import SquareRoot
from undertone_aggregator.central.pak import Pak
from undertone_aggregator.central.quantiles import Quantiles
from undertone_aggregator.central.sanitizer import Offline, Sanitizer, StreamingSanitizer
from undertone_aggregator.central.tops import Tops
from undertone_aggregator.central.unbounded import Hybrid, Monotone, Unbounded

__all__ = [
    "Binary",
    "Continual",
    "Counter",
    "FreshBytes",
    "Hybrid",
    "Monotone",
    "Offline",
    "Pak",
    "Quantiles",
    "Sanitizer",
    "Simple1",
    "Simple2",
    "SquareRoot",
    "StreamingSanitizer",
    "Tops",
    "TwoLevel",
    "Unbounded",
]
