"""Results of a campaign on another server, read through its page's HTTP API, which publishes settled slots only."""

import base64
import http.client
import json
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import tzinfo
from http import HTTPStatus
from typing import Any, TypeVar

from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.counts.facts import MechanismFacts
from undertone_aggregator.counts.partial import EVERYBODY
from undertone_aggregator.design import Budget
from undertone_aggregator.design.published import Published
from undertone_aggregator.estimate.against import Against
from undertone_aggregator.estimate.difference import MeanDifference
from undertone_aggregator.estimate.distribution import Quantile
from undertone_aggregator.estimate.estimates import ABSENT, Estimate, Estimates, RangeEstimate, Row, Series
from undertone_aggregator.estimate.losses import SlotLosses, SlotRefusals
from undertone_aggregator.estimate.opened import Collections
from undertone_aggregator.estimate.query import LARGEST_SELECTION, Results, When
from undertone_aggregator.estimate.selection import Hours, OnDays, Selection
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid

VERSION = 1
# Seconds to wait for an answer: quantiles take the server about a second for each run.
_PATIENCE_SECONDS = 120.0
# Largest answer in bytes. The largest selection needs about 10 MB; the limit protects memory from an endless answer.
LARGEST_ANSWER = 64 << 20
_LARGEST_SENTENCE = 1 << 16
_PIECE = 1 << 16
_SCHEMES = ("http://", "https://")
_OTHER = f"does not answer as an Undertone page of version {VERSION} does"

Kind = TypeVar("Kind", bound=Row)


class _Fields(dict[str, Any]):
    """The fields of an answer. A missing field raises Invalid, because the page then runs another version of
    Undertone.
    """

    def __init__(self, fields: Mapping[str, Any], url: str) -> None:
        super().__init__(fields)
        self._url = url

    def __missing__(self, name: str) -> Any:
        raise Invalid(f"{self._url} {_OTHER}: its answer has no {name!r}, so the page is of another version")


def facts_of(results: Results) -> dict[str, Any]:
    """Return what `RemoteResults` needs of a campaign: its epochs' messages and its settings for reading.

    The result contains no report and no secret.
    """
    epochs = [
        {
            "body": base64.b64encode(bytes(epoch.campaign.body)).decode(),
            "issued_at": epoch.issued_at,
            "decoded": epoch.decoded,
            "epsilon": None if epoch.budget is None else str(epoch.budget.epsilon),
            "delta": None if epoch.budget is None or epoch.budget.delta is None else str(epoch.budget.delta),
        }
        for epoch in results.timeline.epochs
    ]
    mechanism = results.mechanism
    return {
        "version": VERSION,
        "epochs": epochs,
        "reading": results.reading,
        "mechanism": None if mechanism is None else asdict(mechanism),
    }


class RemoteResults(Results):
    """The `Results` of a campaign on the page at ``url``. Each query asks the page.

    ``campaign`` may be omitted if the page shows only one. The constructor and every query raise Invalid if the page
    cannot be reached, is no Undertone page, or refuses the request.
    """

    def __init__(self, url: str, campaign: str | None, collections: Collections) -> None:
        self._url = url.rstrip("/")
        if not url.lower().startswith(_SCHEMES):
            raise Invalid(f"url is {url!r}, expected http://HOST:PORT of a server's page")
        self._at = ""
        try:
            self._connect(campaign, collections)
        except (KeyError, TypeError, IndexError):
            # The answer is JSON, but does not have the form of an Undertone page's answer.
            raise Invalid(f"{url} {_OTHER}") from None

    def _connect(self, campaign: str | None, collections: Collections) -> None:
        url = self._url
        names = [printable(each["name"]) for each in self._ask("campaigns")["campaigns"]]
        if not names or (campaign is None and len(names) > 1):
            shown = f"the campaigns {', '.join(names)}: name one of them" if names else "no campaign"
            raise Invalid(f"{url} shows {shown}")
        if campaign is not None and campaign not in names:
            raise Invalid(f"{url} shows no campaign {campaign!r}, expected one of {', '.join(names)}")
        self._at = f"campaigns/{urllib.parse.quote(campaign or names[0])}"
        facts = self._ask(f"{self._at}/facts")
        if facts["version"] != VERSION:
            raise Invalid(
                f"{url} has version {facts['version']} of the API, expected {VERSION}: install the version of Undertone"
                " that the server runs"
            )
        self._understand(Timeline([_epoch(row) for row in facts["epochs"]]), facts["reading"], collections)

    def close(self) -> None:
        """Do nothing: each query uses a connection of its own."""

    # --- Methods that return facts of the campaign.

    @property
    def mechanism(self) -> MechanismFacts | None:
        facts = self._ask(f"{self._at}/facts")["mechanism"]
        return None if facts is None else MechanismFacts(*(facts[each.name] for each in fields(MechanismFacts)))

    def outcomes(self) -> dict[str, int]:
        return dict(self._now()["outcomes"])

    def lost(self) -> dict[str, tuple[int, int]]:
        return {group: (row["reports"], row["since_slot"]) for group, row in self._now()["lost"].items()}

    @property
    def status(self) -> dict[str, Any]:
        return dict(self._now()["server"])

    @property
    def mark(self) -> tuple[int, ...]:
        now = self._now()
        return now["epochs"], now["settled"], now["outcomes"]["received"]

    @property
    def unpublished(self) -> int:
        return int(self._now()["unpublished"])

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(self._now()["groups"])

    @property
    def settled(self) -> int:
        return int(self._now()["settled"])

    @property
    def ends(self) -> int:
        return (self.settled + 1) * self.campaign.slot_seconds

    # --- Methods that return results.

    def each_group(
        self,
        first: When = None,
        last: When = None,
        groups: Iterable[str] | str | None = (EVERYBODY,),
        *,
        filtered: bool = False,
        settled: bool = True,
        absent: bool = False,
    ) -> Iterator[Estimates]:
        """See `Results.each_group`. Only published slots are returned: settled, and over enough reports."""
        for group in self._wanted(groups):
            rows: list[Estimate] = []
            for low, high in self._chunks(first, last):
                asked = {"group": group, "filtered": str(filtered).lower(), "format": "jsonl"}
                text = self._fetch(f"{self._at}/download", self._between(low, high) | asked)
                rows += [Estimate.of_row(self._fields(line)) for line in text.splitlines()]
            yield Estimates.of([row for row in rows if absent or not row.is_absent])

    def ranges(
        self, every: int, first: When = None, last: When = None, groups: Iterable[str] | str | None = (EVERYBODY,)
    ) -> list[RangeEstimate]:
        """See `Results.ranges`. Each mean is over the published slots of its run."""
        wanted = self._wanted(groups)
        rows: list[RangeEstimate] = []
        for group in self.groups if wanted is None else wanted:
            asked = self._between(*self._chosen(first, last)) | {"group": group, "every": str(every)}
            rows += [_row(RangeEstimate, row) for row in self._ask(f"{self._at}/ranges", asked)["ranges"]]
        return sorted(rows, key=lambda row: (row.first, row.series))

    def selection(
        self,
        first: When = None,
        last: When = None,
        groups: Iterable[str] | str | None = (EVERYBODY,),
        *,
        hours: Hours | str | None = None,
        days: OnDays | str | None = None,
        zone: tzinfo | None = None,
    ) -> list[Selection]:
        """See `Results.selection`, over published slots. ``zone``: the campaign's zone, or a zone with an IANA name."""
        wanted = self._wanted(groups)
        rows: list[Selection] = []
        for group in self.groups if wanted is None else wanted:
            asked = self._between(*self._chosen(first, last)) | {"group": group}
            asked |= _limits(hours, days, zone)
            rows += [_row(Selection, row) for row in self._ask(f"{self._at}/selection", asked)["selections"]]
        return sorted(rows, key=lambda row: row.series)

    def difference(
        self,
        first: When = None,
        last: When = None,
        groups: Iterable[str] | str | None = (EVERYBODY,),
        *,
        against: Against | str,
        hours: Hours | str | None = None,
        days: OnDays | str | None = None,
        zone: tzinfo | None = None,
    ) -> list[MeanDifference]:
        """See `Results.difference`, over published slots. ``zone``: the campaign's zone, or a zone with an IANA
        name.
        """
        other = Against.parse("against", against) if isinstance(against, str) else against
        rows: list[MeanDifference] = []
        for group in other.differing(self._wanted(groups)):
            asked = self._between(*self._chosen(first, last)) | {"group": group, "against": str(other)}
            asked |= _limits(hours, days, zone)
            rows += [_row(MeanDifference, row) for row in self._ask(f"{self._at}/difference", asked)["differences"]]
        return sorted(rows, key=lambda row: row.series)

    def losses(
        self, first: When = None, last: When = None, groups: Iterable[str] | str | None = (EVERYBODY,)
    ) -> list[SlotLosses]:
        """See `Results.losses`, of settled slots."""
        wanted = self._wanted(groups)
        rows: list[SlotLosses] = []
        for group in self.groups if wanted is None else wanted:
            asked = self._between(*self._chosen(first, last)) | {"group": group}
            table = self._ask(f"{self._at}/losses", asked)["losses"]
            columns = zip(*(table[name] for name in SlotLosses.columns()), strict=True)
            rows += [SlotLosses(*row) for row in columns]
        return rows

    def refusals(self, first: When = None, last: When = None) -> list[SlotRefusals]:
        """See `Results.refusals`, of settled slots."""
        table = self._ask(f"{self._at}/losses", self._between(*self._chosen(first, last)))["refusals"]
        return [SlotRefusals(*row) for row in zip(*(table[name] for name in SlotRefusals.columns()), strict=True)]

    def quantiles(
        self,
        shares: Sequence[float] = (0.1, 0.5, 0.9),
        every: int | None = None,
        first: When = None,
        last: When = None,
    ) -> list[Quantile]:
        asked = {"shares": ",".join(map(repr, shares))} | ({} if every is None else {"every": str(every)})
        if first is not None or last is not None:
            asked |= self._between(*self._chosen(first, last))
        return [_row(Quantile, row) for row in self._ask(f"{self._at}/quantiles", asked)["quantiles"]]

    def warnings(self, estimates: Estimates) -> list[str]:
        """Return the server's warnings about the slots from the first to the last of these estimates.

        Only the warnings about the first estimate's group are returned, and none if no slot has a number.
        """
        estimates = estimates.take(estimates.kind != ABSENT)
        if not estimates:
            return []
        asked = self._between(int(estimates.slot.min()), int(estimates.slot.max())) | {"group": estimates[0].group}
        return [printable(str(sentence)) for sentence in self._ask(f"{self._at}/estimates", asked)["warnings"]]

    def world(self, estimates: Estimates) -> Published | None:
        """Return the page's privacy statement about its newest slots."""
        published = self._now()["published"]
        if published is None:
            return None
        epsilon = math.inf if published["epsilon"] is None else published["epsilon"]
        return Published(published["reports"], published["releases"], epsilon, published["delta"])

    # --- Methods that send requests to the server.

    def _chosen(self, first: When, last: When) -> tuple[int, int]:
        """Return (first slot, last slot) of a selection, from the campaign's first slot to the newest settled one."""
        low, high = self.span(first, last)
        return max(low, self.timeline.epochs[0].campaign.first_slot), min(high, self.settled)

    def _chunks(self, first: When, last: When) -> list[tuple[int, int]]:
        low, high = self._chosen(first, last)
        return [(at, min(at + LARGEST_SELECTION - 1, high)) for at in range(low, high + 1, LARGEST_SELECTION)]

    def _between(self, low: int, high: int) -> dict[str, str]:
        seconds = self.campaign.slot_seconds
        return {"from": str(low * seconds), "to": str((max(high, low - 1) + 1) * seconds)}

    def _now(self) -> dict[str, Any]:
        return self._ask(self._at)

    def _ask(self, path: str, parameters: Mapping[str, str] | None = None) -> dict[str, Any]:
        return self._fields(self._fetch(path, parameters))

    def _fields(self, text: str) -> dict[str, Any]:
        """Parse a JSON object; every object in it becomes `_Fields`. Raises Invalid."""
        try:
            answer = json.loads(text, object_hook=lambda each: _Fields(each, self._url))
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise Invalid(f"{self._url} {_OTHER}")
        return answer

    def _fetch(self, path: str, parameters: Mapping[str, str] | None = None) -> str:
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        try:
            with urllib.request.urlopen(
                f"{self._url}/api/v{VERSION}/{path}{query}", timeout=_PATIENCE_SECONDS
            ) as answer:
                return _read(answer).decode()
        except urllib.error.HTTPError as wrong:
            # The first request, made before a campaign is chosen, contains only the address. An error then usually
            # means that no page is at this address, and its sentence does not help, unless it is that of `KnownHosts`.
            # The error object is also the server's answer. It is closed here, because its connection would stay open as
            # long as somebody holds the error.
            with wrong:
                sentence = _said(wrong) if self._at or wrong.code == HTTPStatus.MISDIRECTED_REQUEST else ""
            raise Invalid(sentence or f"{self._url} {_OTHER}: HTTP status {wrong.code}") from None
        except (http.client.HTTPException, ValueError) as wrong:
            raise Invalid(f"the request to {self._url} failed: {wrong}") from None
        except OSError as wrong:
            raise Invalid(f"{self._url} cannot be reached: {getattr(wrong, 'reason', wrong)}") from None


def _read(answer: http.client.HTTPResponse) -> bytes:
    """Read the page's whole answer. Raises ValueError if the answer is too large or takes too long."""
    ends = time.monotonic() + _PATIENCE_SECONDS
    data = bytearray()
    while piece := answer.read1(_PIECE):
        data += piece
        if len(data) > LARGEST_ANSWER:
            raise ValueError(f"its answer has more than {LARGEST_ANSWER >> 20} MB")
        if time.monotonic() > ends:
            raise ValueError(f"its answer takes more than {_PATIENCE_SECONDS:g} s")
    return bytes(data)


def _limits(hours: Hours | str | None, days: OnDays | str | None, zone: tzinfo | None) -> dict[str, str]:
    """Return the parameters that select hours of the day and days of the week."""
    asked = {"between": hours, "days": days, "tz": zone}
    return {name: str(value) for name, value in asked.items() if value is not None}


def printable(text: str) -> str:
    """Make text of another server safe for a terminal: replace control characters and marks that reorder text."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def _said(wrong: urllib.error.HTTPError) -> str:
    """Return the sentence in the page's error answer; empty if the answer has none."""
    try:
        return printable(str(json.loads(wrong.read(_LARGEST_SENTENCE))["error"]))
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return ""


def _epoch(row: Mapping[str, Any]) -> Epoch:
    decoded = row["decoded"]
    return Epoch(
        Campaign(base64.b64decode(row["body"])),
        row["issued_at"],
        None,
        None if decoded is None else (tuple(decoded[0]), decoded[1]),
        None if row["epsilon"] is None else Budget.stored(row["epsilon"], row["delta"]),
    )


def _row(kind: type[Kind], columns: dict[str, Any]) -> Kind:
    """Return the row for which ``row()`` returned these columns."""
    values = {name: columns[name] for name in kind.columns() if name not in kind.derived}
    if "coordinate" in values:
        values["series"] = Series(*(values.pop(name) for name in Series._fields))
    return kind(**values)
