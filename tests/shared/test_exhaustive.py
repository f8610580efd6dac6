"""Every random outcome at every level of the sizes that ship, through the shipped draw: hours; `make exhaustive`."""

import sys
import time

import pytest
from proofs import check_every_outcome, parts

from support.designed import DESIGNED

PROGRESS_SECONDS = 10


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "epsilon", "mechanism"), [pytest.param(*d, id=f"{d[0]}-{d[1]}") for d in DESIGNED])
def test_every_outcome(name, epsilon, mechanism):
    shown = started = time.monotonic()
    for part in parts(mechanism):
        for level in range(part.levels + 1):
            check_every_outcome(part, [level])
            if time.monotonic() - shown > PROGRESS_SECONDS:
                shown = time.monotonic()
                done = f"level {level} of {part.levels}, {part.row_total():,} outcomes each"
                print(f"{name} {epsilon}: {done}, {shown - started:.0f} s", file=sys.__stderr__, flush=True)
