"""One diagram of an experiment's figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

# Largest number of points of a curve that is stored with its table.
_POINTS = 400

Curve = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True)
class Panel:
    """One diagram with named curves (x, y); ``logarithmic``: True for a logarithmic y axis.

    ``joined``: True if lines join the points.

    ``baseline``: the curve that is drawn in grey; ``relative``: the curve by which all curves are divided; "" for none.
    ``better``: lower, higher, or neither. ``y`` names the quantity and its unit.
    """

    title: str
    x: str
    y: str
    curves: Mapping[str, Curve]
    logarithmic: bool = True
    logarithmic_x: bool = False
    joined: bool = True
    baseline: str = "Base"
    relative: str = ""
    better: str = ""

    def quantity(self) -> str:
        """Return the name of the quantity on the y axis."""
        return f"{self.y} ÷ {self.relative}'s" if self.relative else self.y

    def thinned(self) -> "Panel":
        """Return the panel with at most `_POINTS` points for each curve."""

        def few(values: Sequence[float]) -> list[float]:
            return list(values)[:: max(-(-len(values) // _POINTS), 1)]

        return replace(self, curves={name: (few(x), few(y)) for name, (x, y) in self.curves.items()})

    def shown(self) -> dict[str, Curve]:
        """Return the curves as they are drawn."""
        if not self.relative:
            return dict(self.curves)
        base = dict(zip(*self.curves[self.relative], strict=True))
        return {
            name: (x, [value / base[at] for at, value in zip(x, y, strict=True)])
            for name, (x, y) in self.curves.items()
            if name != self.relative
        }
