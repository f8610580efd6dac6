"""The campaigns that the page shows. Each is a store that is only read, and only its published numbers are shown."""

import contextlib
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from undertone_aggregator.campaign.binding import RETIRED
from undertone_aggregator.campaign.results import open_public
from undertone_aggregator.campaign.state import FAILED, ServerState, read_state, state_of
from undertone_aggregator.estimate.public import PublicResults
from undertone_aggregator.server.folder import Home
from undertone_aggregator.server.lifecycle import Action
from undertone_aggregator.store.store import campaigns_in
from undertone_shared.errors import Invalid

T = TypeVar("T")
Mark = tuple[int, ...]

# The page reads the operator's words for households again after this number of seconds.
_WORDS_SECONDS = 10.0


class Site(Protocol):
    """Interface of the page to the campaigns of one server. Every method may be called from any thread."""

    def names(self) -> list[str]:
        """Return the names of the campaigns, sorted."""

    def read(self, name: str, what: Callable[[PublicResults], T]) -> T:
        """Return ``what(results)`` of a campaign.

        Raises Invalid if the campaign has not begun, KeyError if there is no such campaign.
        """

    def state(self, name: str) -> dict[str, Any]:
        """Return the last state of a campaign that a server wrote (devices, losses, alarms); empty if it wrote none.

        For a server's folder the state also has

        - ``state`` and ``reason``,
        - ``newest_report``: the Unix second at which the newest slot with a report ended,
        - ``reachable``: True if the broker answers, or the direct endpoint listens; None without a server,
        - ``problems``: why the server takes in no reports of this campaign,
        - ``full``: True if the disk of the stores is full,
        - ``asks``, ``purpose`` and ``contact``: who asks households to take part, what for, and how to reach whoever
          asks, in the operator's words, or "",
        - ``title``: what is measured, in the operator's words, or "".
        """

    def mark(self, name: str) -> Mark:
        """Return a value that changes when the numbers that are shown, or the server's state, may have changed.

        The last field is the number of deliveries.
        """

    def actions(self) -> Mapping[str, Action]:
        """Return the actions of a logged-in user on a campaign or a device.

        Each returns a sentence about what it did.
        """


def named(stores: Iterable[str]) -> dict[str, str]:
    """Return a map: campaign -> store for every campaign in the stores.

    Raises Invalid for an empty store or a duplicate name.
    """
    stores_of: dict[str, str] = {}
    for url in stores:
        names = campaigns_in(url)
        if not names:
            raise Invalid(f"the store {url} has no campaign yet: start its server first")
        for name in names:
            if name in stores_of:
                raise Invalid(f"campaign {name} is in {stores_of[name]} and in {url}, expected it in one store only")
            stores_of[name] = url
    return stores_of


class StoreSite:
    """Site over these stores, name -> address, as `undertone_aggregator.store.store.open_store` takes it."""

    def __init__(self, stores: Mapping[str, str], actions: Mapping[str, Action] | None = None) -> None:
        self._stores: dict[str, str] = {}
        self._actions = dict(actions or {})
        self._opened: dict[str, PublicResults] = {}
        # Only one thread at a time may use a store connection.
        self._locks: dict[str, threading.Lock] = {}
        for name, url in stores.items():
            self.add(name, url)

    def names(self) -> list[str]:
        return sorted(self._stores)

    def add(self, name: str, url: str) -> None:
        """Add a campaign."""
        self._locks[name] = threading.Lock()
        self._stores[name] = url

    def read(self, name: str, what: Callable[[PublicResults], T]) -> T:
        with self._locks[name]:
            return what(self._results(name))

    def state(self, name: str) -> dict[str, Any]:
        return self.read(name, lambda results: results.status)

    def mark(self, name: str) -> Mark:
        # If devices fall silent, only the server's status changes, so the mark includes its time.
        return self.read(name, lambda results: (results.status.get("time", 0), *results.mark))

    def actions(self) -> Mapping[str, Action]:
        return self._actions

    def close(self) -> None:
        """Close every store."""
        for results in self._opened.values():
            results.close()
        self._opened.clear()

    def _results(self, name: str) -> PublicResults:
        """Return a campaign's results; reopen them if a new epoch or an operator's change has made them stale."""
        results = self._opened.get(name)
        if results is not None and results.stale:
            self._opened.pop(name).close()
            results = None
        if results is None:
            try:
                results = self._opened[name] = open_public(self._stores[name], name)
            except OSError as error:
                raise Invalid(f"the store of {name} cannot be read: {error}") from None
        return results


class HomeSite(StoreSite):
    """Site over all campaigns of a server's folder, including those that are added later.

    ``actions``: what users may do to them. ``words``: campaign -> (who asks, what for, contact), as households read
    them; each may be empty. The server's state is read again only if its file has changed, and the words only after
    `_WORDS_SECONDS`.
    """

    def __init__(
        self,
        home: Home,
        actions: Mapping[str, Action] | None = None,
        words: Callable[[str], tuple[str, str, str]] = lambda name: ("", "", ""),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__({}, actions)
        self._home, self._words, self._clock = home, words, clock
        self._adding = threading.Lock()
        # The state that the server wrote last, with the inode, time and size of its file.
        self._served: tuple[tuple[int, ...], ServerState | None] = ((), None)
        # Campaign -> (monotonic time at which its words and its title were read, the words and the title).
        self._read_words: dict[str, tuple[float, tuple[str, str, str, str]]] = {}

    def read(self, name: str, what: Callable[[PublicResults], T]) -> T:
        try:
            return super().read(name, what)
        except (Invalid, KeyError):
            reason = self._failure(name)
            if reason is None:
                raise
            raise Invalid(f"campaign {name} has failed: {reason}") from None

    def state(self, name: str) -> dict[str, Any]:
        now, served = time.time(), self._server_state()
        answer = self.read(name, lambda results: {"life": results.life, **results.status})
        state = state_of(served, name, answer.pop("life"), now)
        facts = {"state": state.state, "reason": state.reason or state.note(now), "newest_report": state.newest}
        alive = served is not None and served.alive(now)
        facts |= {"reachable": served.reachable if served is not None and alive else None}
        facts["full"] = state.full or (alive and served is not None and "disk" in served.common_problems(now))
        facts |= dict(zip(("asks", "purpose", "contact", "title"), self._words_of(name), strict=True))
        if state.state == RETIRED:
            # A retired campaign needs nobody's attention.
            return {**answer, **facts, "alarms": [], "problems": []}
        return {**answer, **facts, "problems": [] if served is None else served.problems_of(name, now)}

    def mark(self, name: str) -> Mark:
        """Return a value that changes when the campaign's store or the server's state of the campaign changes."""
        now, served = time.time(), self._server_state()
        # If the server is dead, the time since its last state grows, but the mark must stay the same.
        heard = None if served is None or not served.alive(now) else (served.reachable, served.problems_of(name, now))
        state = state_of(served, name, None, now)
        told = zlib.crc32(repr((heard, state.state, state.reason if heard else "")).encode())
        return (told, *super().mark(name))

    def names(self) -> list[str]:
        found: list[str] = []
        for name in self._home.names():
            with self._adding:
                if name not in self._stores:
                    with contextlib.suppress(Invalid, OSError):
                        self.add(name, self._home.config(name).store_url)
                if name in self._stores or self._failure(name) is not None:
                    found.append(name)
        return found

    def _failure(self, name: str) -> str | None:
        """Return the reason why a campaign has failed, from the server's state; None if it has not."""
        state = state_of(self._server_state(), name, None, time.time())
        return state.reason if state.state == FAILED else None

    def _server_state(self) -> ServerState | None:
        """Return the state that the server wrote last; None if there is none, or if it cannot be read."""
        try:
            found = self._home.state.stat()
        except OSError:
            return None
        version = (found.st_ino, found.st_mtime_ns, found.st_size)
        if version != self._served[0]:
            self._served = version, read_state(self._home.state)
        return self._served[1]

    def _words_of(self, name: str) -> tuple[str, str, str, str]:
        now = self._clock()
        kept = self._read_words.get(name)
        if kept is None or now - kept[0] > _WORDS_SECONDS:
            kept = self._read_words[name] = now, (*self._words(name), self._title(name))
        return kept[1]

    def _title(self, name: str) -> str:
        """Return the plan's words for what is measured; "" if it has none, or if it cannot be read."""
        with contextlib.suppress(Invalid, OSError):
            return self._home.config(name).campaign.title or ""
        return ""
