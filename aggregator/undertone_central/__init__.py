"""Central releases, event level: one trusted party holds raw values and publishes streams, counts and synthetic items.

Owns counters, hierarchies, the ToPS publisher, quantiles, and jobs that can be resumed.
Start reading: ``make.py``, the table of mechanisms; ``continual.py``, their protocol; ``release.py``, the command.
"""

from undertone_central.continual import Continual
from undertone_central.counting import Binary, Counter, Simple1, Simple2, TwoLevel
from undertone_central.entropy import FreshBytes
from undertone_central.factorisation import SquareRoot
from undertone_central.k_ary import KAry
from undertone_central.pak import Pak
from undertone_central.quantiles import Quantiles
from undertone_central.sanitizer import Offline, Sanitizer, StreamingSanitizer
from undertone_central.tops import Tops
from undertone_central.unbounded import HybridCounter, Monotone, Unbounded

__all__ = [
    "Binary",
    "Continual",
    "Counter",
    "FreshBytes",
    "HybridCounter",
    "KAry",
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
