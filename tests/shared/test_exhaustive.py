"""Every random outcome at every level of the sizes that devices use, drawn by the devices' code.

`make exhaustive` runs this for hours. Levels are divided into sixteenths, so that pytest's percentage shows the
progress.
"""

import pytest
from proofs import check_every_outcome, parts

from support.designed import DESIGNED

SHARES = 16
CASES = [
    pytest.param(part, share, id=f"{name}-{epsilon}-part{i}-{share + 1}of{min(SHARES, part.levels + 1)}")
    for name, epsilon, mechanism in DESIGNED
    for i, part in enumerate(parts(mechanism))
    for share in range(min(SHARES, part.levels + 1))
]


@pytest.mark.exhaustive
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("part", "share"), CASES)
def test_every_outcome(part, share):
    check_every_outcome(part, range(share, part.levels + 1, SHARES))
