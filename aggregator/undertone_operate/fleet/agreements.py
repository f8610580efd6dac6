"""What households have agreed to: who asks, what for, and the limits of a policy. The policy holds a fingerprint of
these three.

The server knows who asks (`[join] operator`) and what for (the codes of a campaign). Owners who get their policy as a
file have agreed only to that file, so who asks and what for are empty for them.
"""

import contextlib
from collections.abc import Sequence

from undertone_aggregator.server.folder import Home
from undertone_device.host.consent import fingerprint
from undertone_operate.fleet.join_codes import JoinCodes
from undertone_shared.errors import Invalid
from undertone_shared.policy import Policy

# (who asks, what for), as households read them.
Words = tuple[str, str]
NO_WORDS: Words = ("", "")


def agreements(home: Home, *campaigns: str) -> list[Words]:
    """Return who asks and what for in these campaigns of a server's folder, once for each wording. Raises OSError."""
    purposes = {code.about for code in JoinCodes(home.folder).codes() if code.campaign in campaigns}
    asks = home.join.asks if purposes else ""
    return [NO_WORDS, *((asks, purpose) for purpose in sorted(purposes))]


def newest_words(home: Home, campaign: str) -> tuple[str, str, str]:
    """Return (who asks, what for, how to reach whoever asks), in the words for the next person who gets a code.

    Each is "" if it is not known. What for: from the campaign's newest code, or else from that of the nearest
    predecessor whose code says it. If the file of codes or options is damaged, all are "".
    """
    with contextlib.suppress(Invalid, OSError):
        join, codes = home.join, JoinCodes(home.folder)
        asks = join.asks if join.operator or join.url else ""
        purpose = next(filter(None, map(codes.about, home.chain(campaign))), "")
        return asks, purpose, join.contact or ""
    return "", "", ""


def is_inside(policy: Policy, words: Sequence[Words]) -> bool:
    """Return True if a household with this policy has agreed to one of these agreements."""
    return bool(policy.agreed) and any(policy.agreed == fingerprint(policy, asks, purpose) for asks, purpose in words)
