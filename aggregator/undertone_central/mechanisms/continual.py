"""The interface of all central mechanisms: values arrive one after another, released values leave, without end."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from undertone_central.noise.laplace import Integers
from undertone_shared.errors import Invalid


class Saved:
    """Base of objects with savable state: the attributes named in ``kept`` (numbers, text, lists, arrays, `Saved`)."""

    kept: ClassVar[tuple[str, ...]] = ()

    def state(self) -> dict[str, Any]:
        """Return the state as JSON values. It contains raw readings and noise, so it must be kept secret."""
        return {name: _saved(getattr(self, name)) for name in self.kept}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore ``state``, as returned by `state`. Raises Invalid if it is not from such a mechanism."""
        if not isinstance(state, dict) or set(state) != set(self.kept):
            raise Invalid(
                f"the saved state does not belong to {type(self).__name__}: give the file that the same release wrote"
            )
        for name in self.kept:
            own = getattr(self, name)
            if isinstance(own, Saved):
                own.restore(state[name])
            elif isinstance(own, np.ndarray):
                setattr(self, name, np.array(state[name], dtype=own.dtype))
            else:
                setattr(self, name, state[name])


def _saved(value: Any) -> Any:
    if isinstance(value, Saved):
        return value.state()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, list) else value


class Continual(Saved, ABC):
    """A mechanism that reads a stream value by value.

    Neighbouring streams differ in one value (event level). Values are integers in natural units and are first clipped
    to [0, ``bound``]. None is an empty item: nothing arrived. A reader of the release cannot tell it from 0.
    ``released`` names the kind of numbers: ``values`` (one per value), ``counts`` (a running sum per value), ``nodes``
    (sums of tree nodes as they close), ``items`` (synthetic values, block by block).
    """

    released: ClassVar[str]
    bound: int

    @property
    @abstractmethod
    def guarantee(self) -> str:
        """The guarantee in one sentence: the level, the parameters, what is protected."""

    @property
    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """The public parameters of the release so far: all that a reader of it needs."""

    @property
    def phase_left(self) -> int | None:
        """Number of values until θ changes or is chosen; None if that never happens (again)."""
        return None

    @property
    def phase(self) -> int:
        """Number of times that θ has changed or been chosen."""
        return 0

    @property
    def withholding(self) -> bool:
        """True while arriving values are used to choose θ and are not published."""
        return False

    def close(self, ending: str) -> Integers:
        """Return the numbers that are released at the end of the stream. Only the sanitizer releases any."""
        return np.zeros(0, dtype=np.int64)

    @abstractmethod
    def extend(self, values: Integers) -> Integers:
        """Return the numbers that ``push`` would release for these values one after the other."""

    def push(self, value: int | None) -> list[int]:
        """Return the numbers that are released when this value arrives."""
        return [int(x) for x in self.extend(np.array([clip(value, self.bound)], dtype=np.int64))]


class OneByOne(Continual):
    """A mechanism whose `extend` calls its `push` for each value."""

    @abstractmethod
    def push(self, value: int | None) -> list[int]:
        """Return the numbers that are released when this value arrives."""

    def extend(self, values: Integers) -> Integers:
        """Return the numbers that ``push`` would release for these values one after the other."""
        out = [x for value in integers(values).tolist() for x in self.push(value)]
        return np.array(out, dtype=np.int64)


def clip(value: int | None, bound: int) -> int:
    """Clip the value to [0, bound]; an empty item is 0. Raises Invalid for anything but an integer."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise Invalid(f"the value is {value!r}, expected an integer in natural units")
    return min(max(int(value), 0), bound)


def integers(values: Integers | Iterable[int]) -> Integers:
    """Convert to int64, shape [n]. Raises Invalid for anything but integers."""
    array = np.asarray(values)
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu" or (array.dtype.kind == "u" and array.max() >= 1 << 63):
        raise Invalid(
            f"the values have type {array.dtype} and shape {array.shape}, expected a list of integers below 2^63"
        )
    return array.astype(np.int64, copy=False)
