"""Central releases, event level: one trusted party holds raw values and publishes streams, counts and synthetic items.

The rooms are ``noise`` and ``mechanisms``. Around them are releases: jobs that can be resumed, their input and output.
Start reading: ``make.py``, the table of mechanisms; ``release.py``, the command.
"""

from undertone_central.mechanisms.continual import Continual
from undertone_central.mechanisms.counting import Binary, Counter, Simple1, Simple2, TwoLevel
from undertone_central.mechanisms.factorisation import SquareRoot
from undertone_central.mechanisms.k_ary import KAry
from undertone_central.mechanisms.pak import Pak
from undertone_central.mechanisms.quantiles import Quantiles
from undertone_central.mechanisms.sanitizer import Offline, Sanitizer, StreamingSanitizer
from undertone_central.mechanisms.tops import Tops
from undertone_central.mechanisms.unbounded import HybridCounter, Monotone, Unbounded
from undertone_central.noise.entropy import FreshBytes

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
