"""Reset for an owner whose sensor is blocked by a campaign: campaigns are forgotten, spent budget stays spent.

A reset is for a campaign that was accepted while the clock was wrong. Times after ``now`` become now, because nothing
was measured later. On a board: ``from undertone_device.core import reset``, then ``reset.forget_campaigns(...)``.
"""

import struct

from undertone_device.core.ledger import BUILT, DAYS, DEFAULT_OUTBOX, GROUPS, MONTH, NO_CAMPAIGN, RING, Ledger
from undertone_shared.errors import Invalid
from undertone_shared.report import LENGTH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_device.core.ledger import Storage, Sums
    from undertone_shared.policy import Policy


def forget_campaigns(storage: "Storage", policy: "Policy", now: int, capacity: int = DEFAULT_OUTBOX) -> None:
    """Forget the accepted campaigns and the newest epoch; keep every count. No device may run on this storage.

    Raises Invalid for a clock that cannot be right, a state without a ledger or a storage in use, OSError if the ledger
    cannot be read or written.
    """
    if now < BUILT:
        raise Invalid("set the clock: it says %d, expected at least %d (Unix s)" % (now, BUILT))
    dimension = policy.stream.dimension if policy.stream else 1
    ledger = Ledger(storage, capacity, LENGTH + 4 * (dimension - 1))
    if ledger.lost:
        raise Invalid("the state has no valid ledger, expected one that a device has written")
    ledger.sums.limit(policy.reports_per_period, min(ledger.spent_until, now), ledger.uptime)
    ledger.current = ledger.next = NO_CAMPAIGN
    ledger.last_epoch = 0
    clamp(ledger, policy, now)
    ledger.write(ledger.spent_until, 0, 0)


def clamp(ledger: "Ledger", policy: "Policy", now: int) -> None:
    """Limit all times to ``now``, whatever the clock showed when they were stored.

    Only times change: every draw that was counted still counts.
    """
    ledger.spent_until = min(ledger.spent_until, now)
    ledger.began = min(ledger.began, now)
    ledger.day = min(ledger.day, now // 86400)
    if policy.stream:
        ledger.rho_period = min(ledger.rho_period, now // policy.stream.period_seconds)
    _clamp_sums(ledger.sums, now)


def _clamp_sums(sums: "Sums", now: int) -> None:
    buffer = sums.buffer
    for i in range(RING, RING + 8 * GROUPS, 8):
        struct.pack_into(">I", buffer, i, min(struct.unpack(">I", buffer[i : i + 4])[0], now))
    if struct.unpack(">I", buffer[20:24])[0] > now // 86400:
        total = sum(struct.unpack(">%dI" % DAYS, buffer[MONTH:RING]))
        buffer[20:RING] = bytes(RING - 20)
        sums.spend(now // 86400, total)
