"""The largest table that a campaign carries is checked on arrival within a heap of 80 KB, and then used for draws.

The heap is that of the 64-bit unix port, whose words are twice as long as a board's. The code is what boards load.
"""

import designed_tables
import pytest

from support import micropython as mp
from undertone_aggregator.design import square_wave
from undertone_aggregator.threshold import first_edges
from undertone_shared.off_board.issue import build, pack
from undertone_shared.scalar import Cohort, ReportRule

EPOCH = 1_800_000_000
PROGRAM = """
import gc, sys
from undertone_shared.campaign import Campaign, body_of, header
from undertone_shared.entropy import Entropy
from undertone_shared.errors import Invalid, Refused
from undertone_shared.policy import Policy
policy = Policy({
    "sensor": "load", "measures": ["sum"], "cap": [2564, 347], "slot_seconds": 60, "theta": [1, 5000],
    "insecure": True, "version": 1, "duration_seconds": 40000000,
})
entropy = Entropy()
with open(sys.argv[1], "rb") as file:
    message = file.read()
try:
    header(message)
    campaign = Campaign(body_of(message))
    policy.check_campaign(campaign)
except (Invalid, Refused) as error:
    print("refused", error)
    raise SystemExit
campaign.body = b""
del message
table, theta = campaign.rule.report.mechanism, campaign.rule.report.theta
for i in range(500):
    entropy.refill()
    symbol = table.draw(table.level(i * theta // 499, theta, entropy), entropy)
    assert 0 <= symbol < table.symbols
gc.collect()
print("drawn", table.levels, table.symbols, gc.mem_alloc())
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    out = tmp_path_factory.mktemp("board")
    mp.compile_boards(out)
    return out


@pytest.fixture(scope="module")
def message():
    _, theta, table = list(designed_tables.designed())[-1]
    campaign = build(
        name="meters",
        sensor="load",
        unit="Wh",
        measure="sum",
        offset=0,
        bound=10_000,
        slot_seconds=1800,
        cycle=48,
        epoch=EPOCH,
        last_slot=EPOCH // 1800 + 365 * 48,
        default=0,
        cohort=Cohort(square_wave("2", first_edges(10_000))),
        report=ReportRule(0, theta, table),
    )
    assert (table.levels + 1, table.symbols) == (25, 65)
    return pack(campaign, EPOCH - 7200)


def test_the_largest_table_is_checked_and_drawn_from_in_80_kb(code, message, micropython, tmp_path):
    file = tmp_path / "message"
    file.write_bytes(message)
    result = micropython(PROGRAM, str(file), paths=[code], heap="80k")
    assert result.stdout.split()[:3] == ["drawn", "24", "65"], result.stdout + result.stderr


def test_a_tampered_one_is_refused_within_the_same_heap(code, message, micropython, tmp_path):
    file = tmp_path / "message"
    at = message.index(b'"rows":["') + 4000
    at = message.index(b'","', at) + 7
    file.write_bytes(message[:at] + (b"AAAA" if message[at : at + 4] != b"AAAA" else b"AAAB") + message[at + 4 :])
    result = micropython(PROGRAM, str(file), paths=[code], heap="80k")
    assert result.stdout.startswith("refused "), result.stdout + result.stderr
