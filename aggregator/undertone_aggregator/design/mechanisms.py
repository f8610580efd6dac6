"""Table of the mechanism classes: what the server knows of each, and a check that a new class is complete.

To add a mechanism:

- write a class with every member of `undertone_shared.off_board.contract.Mechanism`,
- enter its traits in `TABLE`,
- enter its kind, the word in a campaign, in `undertone_shared.notation.KINDS`.

`missing` names what is not there yet. docs/mechanisms.md shows a complete class.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from undertone_shared import notation
from undertone_shared.errors import Invalid
from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_shared.off_board.contract import ChosenPart
from undertone_shared.off_board.contract import Mechanism as Mechanism
from undertone_shared.table import TableMechanism

_MEMBERS = sorted(name for name in vars(Mechanism) if not name.startswith("_"))
_PART_MEMBERS = sorted(name for name in vars(ChosenPart) if not name.startswith("_"))
# Type of decoded values: the numerators and their common denominator.
Decoded = tuple[tuple[int, ...], int]


@dataclass(frozen=True)
class Traits:
    """Facts that the server needs of a mechanism besides its contract.

    ``kind``: one word. ``sentence``: the mechanism's name for people. ``baseline``: the name of the mechanism that this
    one's variance is compared with; "continuous" is the same mechanism in its paper's continuous form. ``quadratic``:
    True if Var(decoded | reading) at the levels is a quadratic in the reading. ``groups``: first symbols of the groups
    in which a histogram is tested for fakes; symbols that move a mean far have groups of their own. ``decoded``: decode
    values that the campaign does not contain. ``decoding``: returns the same mechanism with decode values.
    """

    kind: str
    sentence: str
    baseline: str
    quadratic: bool
    groups: tuple[int, ...]
    decoded: Decoded | None = None
    decoding: Callable[[Decoded], Mechanism] | None = None

    @property
    def designed(self) -> bool:
        """True if the mechanism is designed for the readings of a campaign."""
        return self.decoding is not None

    @property
    def decodes(self) -> bool:
        """False only for a table whose decode values are missing."""
        return self.decoding is None or self.decoded is not None


def traits_of(mechanism: Any) -> Traits:
    """Return the traits of a mechanism. Raises Invalid for a class that is not in `TABLE`."""
    describe = TABLE.get(type(mechanism))
    if describe is None:
        names = ", ".join(each.__name__ for each in TABLE)
        raise Invalid(f"the mechanism is a {type(mechanism).__name__}, expected one of {names}")
    return describe(mechanism)


def missing(mechanism: Any) -> list[str]:
    """List what a mechanism lacks before a campaign can use it, one sentence each; empty for a complete one.

    Raises Invalid if the dictionary that the mechanism's ``describe`` returns cannot be parsed.
    """
    name = type(mechanism).__name__
    lacks = [f"{name} has no {member}" for member in _MEMBERS if not hasattr(mechanism, member)]
    if hasattr(mechanism, "parts"):
        for part in mechanism.parts:
            lacks += [f"{type(part).__name__} has no {each}" for each in _PART_MEMBERS if not hasattr(part, each)]
    if type(mechanism) not in TABLE:
        lacks.append(f"{name} has no traits in {__name__}.TABLE")
    if hasattr(mechanism, "describe"):
        described = mechanism.describe()
        if described.get("kind") not in notation.KINDS:
            lacks.append(f"the kind {described.get('kind')!r} is not in {notation.__name__}.KINDS")
        # The parser removes fields from ``described``. That does no harm, because nothing else uses this dictionary.
        elif _text(notation.parse_mechanism("the mechanism", described)) != _text(mechanism):
            lacks.append(f"what {name}.describe gives is not read back as the same mechanism")
    return lacks


def _text(mechanism: Mechanism) -> str:
    return json.dumps(mechanism.describe(), sort_keys=True)


def _window(mechanism: WindowMechanism) -> Traits:
    kind, sentence = ("piecewise", "the piecewise mechanism")
    if mechanism.edges is not None:
        kind, sentence = ("square-wave", "the Square Wave")
    elif mechanism.levels == 1:
        kind, sentence = ("stochastic-rounding", "stochastic rounding")
    groups = _doubling(0, mechanism.symbols)
    return Traits(kind, sentence, "continuous", True, groups)


def _hybrid(mechanism: Hybrid) -> Traits:
    groups = (0, 1, *_doubling(mechanism.rounding.symbols, mechanism.symbols))
    return Traits("hybrid", "the Hybrid", "continuous", True, groups)


def _table(mechanism: TableMechanism) -> Traits:
    def decoding(decoded: Decoded) -> TableMechanism:
        return TableMechanism(mechanism.bits, mechanism.rows, mechanism.values, mechanism.shift, decoded)

    groups = tuple(range(mechanism.symbols))
    return Traits("optimal", "an optimal table", "hybrid", False, groups, mechanism.decoded, decoding)


def _doubling(first: int, end: int) -> tuple[int, ...]:
    """Return the first symbols of groups: each extreme symbol alone, then groups that double in size towards the
    middle.
    """
    starts = {first}
    for power in range((end - first).bit_length()):
        step = 1 << power
        if 2 * step <= end - first:
            starts |= {first + step - 1, end - step + 1} - {end}
    return tuple(sorted(starts))


TABLE: dict[type, Callable[[Any], Traits]] = {WindowMechanism: _window, Hybrid: _hybrid, TableMechanism: _table}
