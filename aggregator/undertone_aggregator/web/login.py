"""Login: a token in a file of mode 0600, and a session in a cookie that no script can read and no other site can send.

Wrong tokens are counted by address, so that nobody elsewhere can lock the operator out.
"""

import hmac
import secrets
import time
from pathlib import Path

from undertone_aggregator.base.files import read_secret
from undertone_aggregator.mqtt.endpoint.shares import network_of
from undertone_shared.errors import Invalid

COOKIE = "undertone_session"
# A form of another site cannot set this header, and a script of another site is not allowed to.
HEADER = "x-undertone-token"
SESSION_SECONDS = 12 * 3600
_LARGEST_SESSIONS = 64
_LEAST_TOKEN = 32
_TRIES_PER_MINUTE = 10
_TRY_SECONDS = 60.0
# Largest number of networks whose wrong tokens are remembered. If there are more, the network that has sent none for
# the longest time is forgotten.
_LARGEST_NETWORKS = 4096


def read_token(path: Path) -> str:
    """Return the token in a file that only its owner may read. Raises Invalid."""
    try:
        return read_secret(path, private=True, least=_LEAST_TOKEN)
    except OSError as error:
        raise Invalid(f"the token file {path} cannot be read: {error}") from None


def _equal(left: str, right: str) -> bool:
    """Compare two texts, which may be invalid Unicode, in a time that does not depend on where they differ."""
    return hmac.compare_digest(left.encode(errors="surrogatepass"), right.encode(errors="surrogatepass"))


class Logins:
    """Sessions of logged-in browsers, in memory: a restart ends them all."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._sessions: dict[str, tuple[float, str]] = {}
        # Network -> times at which it sent wrong tokens; the network that sent the last one is at the end.
        self._tries: dict[str, list[float]] = {}

    def is_throttled(self, address: str) -> bool:
        """Return True if this address (IPv6: its /64) has to wait, because it sent too many wrong tokens in the last
        minute.
        """
        return len(self._recent_tries(network_of(address))) >= _TRIES_PER_MINUTE

    def enter(self, token: str, address: str) -> tuple[str, str] | None:
        """Log in: return (session, CSRF token), or None for a wrong token or after too many wrong ones."""
        now = time.monotonic()
        if self.is_throttled(address):
            return None
        if not _equal(token, self._token):
            network = network_of(address)
            tries = [*self._recent_tries(network), now]
            self._tries.pop(network, None)
            self._tries[network] = tries
            if len(self._tries) > _LARGEST_NETWORKS:
                del self._tries[next(iter(self._tries))]
            return None
        while len(self._sessions) >= _LARGEST_SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))
        session, against = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._sessions[session] = (now + SESSION_SECONDS, against)
        return session, against

    def _recent_tries(self, network: str) -> list[float]:
        earliest = time.monotonic() - _TRY_SECONDS
        return [tried for tried in self._tries.get(network, ()) if tried > earliest]

    def allows(self, session: str | None, against: str | None) -> bool:
        """Return True if a request of this session, with this CSRF token in its header, may perform actions."""
        expected = self.against(session)
        return expected is not None and against is not None and _equal(expected, against)

    def against(self, session: str | None) -> str | None:
        """Return the session's CSRF token; None without a session."""
        ends, against = self._sessions.get(session or "", (0.0, ""))
        if time.monotonic() < ends:
            return against
        self._sessions.pop(session or "", None)
        return None

    def leave(self, session: str | None) -> None:
        """End a session (log out)."""
        self._sessions.pop(session or "", None)
