"""A release from end to end. Raw values come from a file, a pipe, MQTT or an array; the private stream goes to a
file, a pipe or MQTT.

`release` makes a release, `open_release` reads one. The command line uses the same functions.
"""

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from undertone_aggregator.mqtt.link import Address
from undertone_central import feed
from undertone_central.document import read
from undertone_central.gateway import Gateway, TopicSink
from undertone_central.job import ReleaseJob, Sink, TextFile, checksum
from undertone_central.make import make
from undertone_central.mechanisms.budget import OFFERED, Epsilon, check_word, parse_epsilon, parse_positive
from undertone_central.mechanisms.continual import integers
from undertone_central.mechanisms.quantiles import Quantiles
from undertone_central.mechanisms.sanitizer import ENDINGS
from undertone_central.noise.laplace import Integers
from undertone_central.ranges import Piece, RangeSum, range_sum, share_error, share_of
from undertone_shared.errors import Invalid

MQTT = "mqtt://"
# Half-width of a 95 % interval in standard errors.
_Z = NormalDist().inv_cdf(0.975)
_NAMED_FAULTS = 20

Say = Callable[[str], None]
# Type of a function that makes a progress bar from the expected number of values (None: unknown). The progress bar is
# called with the size of each batch.
Bar = Callable[[int | None], AbstractContextManager[Callable[[int], None]]]


@dataclass(frozen=True)
class Released:
    """Result of a call of `release`: values read since the release began, numbers that this call released,
    guarantee.
    """

    values: int
    numbers: int
    guarantee: str


@dataclass(frozen=True)
class Broker:
    """Credentials at a broker. ``password``: None means $UNDERTONE_PASSWORD.

    ``ca``: the authority's certificate; with it TLS is used.
    """

    user: str | None = None
    ca: Path | None = None
    password: str | None = None

    def address(self, url: str) -> tuple[Address, str]:
        """Return the address and the topic of mqtt://host:port/topic. Raises Invalid."""
        try:
            parts = urlsplit(url)
            port = parts.port or (8883 if self.ca else 1883)
        except ValueError:
            raise Invalid(f"{url!r} is not a valid address, expected mqtt://host:port/topic") from None
        topic = parts.path.strip("/")
        if not parts.hostname or not topic or "#" in url or "+" in topic:
            raise Invalid(f"{url!r} has no host or no topic, or contains # or +: expected mqtt://host:port/topic")
        password = os.environ.get("UNDERTONE_PASSWORD", "") if self.password is None else self.password
        return Address(parts.hostname, port, self.user or "", password, self.ca), topic


class ReleasedQuantile(NamedTuple):
    """A quantile of a release with its 95 % interval, ``low`` to ``high``."""

    value: int
    low: int
    high: int


@dataclass(frozen=True)
class Release:
    """A release that was read: its public parameters, its guarantee, and answers computed from its numbers alone."""

    parameters: dict[str, Any]
    pieces: Sequence[Piece]

    @property
    def guarantee(self) -> str:
        """The privacy guarantee in one sentence."""
        return str(self.parameters["guarantee"])

    @property
    def numbers(self) -> Integers:
        """All released numbers in order: [n]."""
        return np.concatenate([piece.numbers for piece in self.pieces] or [np.zeros(0, dtype=np.int64)])

    def sum(self, first: int, end: int) -> RangeSum:
        """Return the sum of values number ``first`` to ``end`` - 1, with its standard error. Raises Invalid."""
        return range_sum(self.parameters, self.pieces, first, end)

    def share(self, value: int) -> tuple[float, float]:
        """Return the share of the values that are at most ``value``, and an upper bound of its standard error.

        In a release for points, it is the share of the values that equal ``value``. Raises Invalid for a release
        without synthetic items.
        """
        if self.parameters["released"] != "items":
            raise Invalid("shares need a release of synthetic items, which the mechanism sanitizer makes")
        return share_of(self.parameters, self.numbers, value)

    def quantiles(self, shares: Sequence[float]) -> list[ReleasedQuantile]:
        """Return quantiles of a release of synthetic items, with their 95 % intervals.

        An interval is from the quantile of q - d to that of q + d. Here d is 1.96 standard errors of the share q
        (`share`) plus the error of the sketch. If q - d or q + d is no possible share, the interval ends at 0, or at
        the bound. Raises Invalid for a release of another kind, before the first item, and for a share outside [0, 1].
        """
        if self.parameters["released"] != "items":
            raise Invalid("quantiles need a release of synthetic items, which the mechanism sanitizer makes")
        if self.parameters["concepts"] != "thresholds":
            raise Invalid("quantiles need a release with concepts = thresholds, but its concepts are points")
        for share in shares:
            if not 0 <= share <= 1:
                raise Invalid(f"quantile is {share}, expected a share from 0 to 1")
        sketch, items = Quantiles(), self.numbers
        sketch.update(items)
        found = []
        for share in shares:
            value = sketch.quantile(share)
            away = _Z * share_error(self.parameters, len(items), share) + sketch.rank_error
            low = sketch.quantile(share - away) if share > away else 0
            high = sketch.quantile(share + away) if share + away < 1 else int(self.parameters["bound"])
            found.append(ReleasedQuantile(value, low, high))
        return found


def open_release(path: Path | str) -> Release:
    """Read a release from its file. Raises OSError, and Invalid for a file that is no release."""
    return Release(*read(Path(path)))


def release(
    mechanism: str,
    source: "Path | str | Iterable[int]",
    output: Path | str,
    *,
    epsilon: Epsilon,
    bound: int,
    column: str | None = None,
    scale: Epsilon = 1,
    last_block: str = "hold",
    state: Path | None = None,
    continues: bool = False,
    broker: Broker = Broker(),
    stop: threading.Event | None = None,
    say: Say = lambda sentence: None,
    bar: Bar = lambda expected: nullcontext(lambda n: None),
    **options: Any,
) -> Released:
    """Publish a stream of raw values under event-level differential privacy: pure ε or (ε, δ), depending on the
    mechanism.

    ``source``: a CSV, NPZ or Parquet file, ``-`` for standard input, mqtt://host:port/topic, or integers; ``output``: a
    file, ``-``, or mqtt://…; ``bound``: public upper bound in natural units; ``scale``: natural units per unit of the
    input; ``options``: the mechanism's own (`undertone_central.make.parameters`); ``column``: see `feed.batches`;
    ``last_block``: see `StreamingSanitizer.close`; ``state``: file of the checkpoint, by default ``output`` with
    ``.state`` added if that is a file. With a checkpoint, the next call resumes a release that was interrupted, and
    draws nothing twice. ``continues``: standard input then begins with the next value, not with the first one again.
    ``stop`` ends a release from MQTT. Raises Invalid, also if all values were held out, and OSError.
    """
    settings = {"mechanism": mechanism, "epsilon": str(parse_epsilon(epsilon, OFFERED)), "bound": bound}
    continual = make(mechanism, bound, epsilon, **options)
    check_word("last_block", last_block, ENDINGS)
    settings |= {name: str(value) for name, value in options.items() if value is not None}
    source = str(source) if isinstance(source, Path) else source
    output = str(output)
    over_mqtt = isinstance(source, str) and source.startswith(MQTT)
    if isinstance(source, str) and source != "-" and not over_mqtt and not Path(source).is_file():
        raise Invalid(f"input is {source!r}, expected a file, - or mqtt://host:port/topic")
    units = parse_positive("scale", scale)
    if output != "-" and not output.startswith(MQTT):
        state = state or Path(output + ".state")
        _refuse_a_second_release(Path(output), state)
    if over_mqtt and state is None:
        raise Invalid("input from MQTT needs --state FILE, to go on after a crash")
    with _sink(output, broker) as sink:
        job = ReleaseJob(continual, sink, state, settings)
        say(continual.guarantee)
        if job.resumed:
            say(f"resuming; values read so far: {job.progress.consumed}")
        if over_mqtt:
            assert isinstance(source, str)
            numbers = _gateway(job, source, units, broker, stop or threading.Event(), say)
        else:
            try:
                numbers = _feed(job, _Input(source, column, units, continues), say, bar)
            except Invalid:
                if not job.progress.consumed:
                    _leave_nothing(output, state)
                raise
            numbers += job.close(last_block)
            if continual.withholding:
                _leave_nothing(output, state)
                if not job.progress.consumed:
                    raise Invalid("nothing is released: the input has no values")
                raise Invalid(
                    f"nothing is released: all {job.progress.consumed} values were held out for the threshold; use a"
                    " shorter --hold-out, or --theta"
                )
    return Released(job.progress.consumed, numbers, continual.guarantee)


@dataclass(frozen=True)
class _Input:
    """A finite input of values: a file, a pipe or an iterable."""

    source: "str | Iterable[int]"
    column: str | None
    units: Fraction
    continues: bool

    def parts(self, say: Say) -> tuple[Iterator[Integers], int | None]:
        """Return the values in batches, and their number or an estimate of it; None if it is not known."""
        if not isinstance(self.source, str):
            values = integers(np.asarray(self.source if isinstance(self.source, np.ndarray) else list(self.source)))
            return iter([values] if len(values) else []), len(values)
        if self.source == "-":
            lines = feed.PipeLines(sys.stdin.fileno())
            return feed.as_they_come(
                lines, feed.text_values(lines, self.column, self.units, say, "standard input")
            ), None
        path = Path(self.source)
        return feed.batches(path, self.column, self.units, say), feed.expected(path)


def _refuse_a_second_release(output: Path, state: Path) -> None:
    if output.is_dir():
        raise Invalid(f"output is '{output}', a folder, expected a file, - or mqtt://host:port/topic")
    if output.exists() and output.stat().st_size and not state.exists():
        raise Invalid(
            f"{output} exists: to release the same values a second time costs their ε again. To release other "
            "values, or the same ones at this cost, remove the file or name another one"
        )


def _leave_nothing(output: str, state: Path | None) -> None:
    """Delete the files of a release that has published nothing, so that the next release can start from the
    beginning.
    """
    for path in (state, None if output == "-" or output.startswith(MQTT) else Path(output)):
        if path is not None:
            path.unlink(missing_ok=True)


def _feed(job: ReleaseJob, given: _Input, say: Say, bar: Bar) -> int:
    """Feed a finite input to the job. Return how many numbers are released.

    A resumed job only compares the values that it has read before. If standard input continues where the interrupted
    release ended, there are no such values.
    """
    faults = 0

    def fault(sentence: str) -> None:
        nonlocal faults
        faults += 1
        if faults <= _NAMED_FAULTS:
            say(sentence)

    parts, expected = given.parts(fault)
    if job.resumed and not (given.source == "-" and given.continues):
        parts = _after(parts, job)
    numbers = above = read = 0
    with bar(expected) as advance:
        for values in parts:
            numbers += job.step(values)
            above, read = above + int((values > job.bound).sum()), read + len(values)
            advance(len(values))
    if read and above == read and not job.resumed:
        say(f"warning: every value is above the bound {job.bound}: is the bound in the unit of the values? See --scale")
    if faults > _NAMED_FAULTS:
        say(f"faults of the input that are not listed: {faults - _NAMED_FAULTS}")
    return numbers


def _after(parts: Iterable[Integers], job: ReleaseJob) -> Iterator[Integers]:
    """Yield the values after those that were read before. Raises Invalid if the earlier ones differ or are missing."""
    missing, crc = job.progress.consumed, 0
    for values in parts:
        old, new = values[:missing], values[missing:]
        crc = checksum(old, crc)
        missing -= len(old)
        if not missing and len(old) and crc != job.progress.checksum:
            raise Invalid("the input does not begin with the values that were read before the interruption")
        if len(new):
            yield new
    if missing:
        raise Invalid(f"the input ends before the point of the interruption; values missing: {missing}")


class _Standard:
    """Standard output as a sink."""

    def append(self, text: str, at: int) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def close(self) -> None:
        pass


@contextmanager
def _sink(output: str, broker: Broker) -> Iterator[Sink]:
    sink: TopicSink | TextFile | _Standard
    if output.startswith(MQTT):
        sink = TopicSink(*broker.address(output), f"undertone-release-out-{os.getpid()}")
    else:
        sink = _Standard() if output == "-" else TextFile(Path(output))
    try:
        yield sink
    finally:
        sink.close()


def _gateway(job: ReleaseJob, source: str, units: Fraction, broker: Broker, stop: threading.Event, say: Say) -> int:
    """Release readings as they arrive, until ``stop`` is set."""
    address, topic = broker.address(source)
    name = "undertone-release-" + hashlib.sha256(source.encode()).hexdigest()[:12]
    gateway = Gateway(job, address, topic, name, units, say)
    say(f"listening to {topic} on {address.host}:{address.port}")
    numbers = 0
    try:
        while not stop.is_set():
            numbers += gateway.step()
    finally:
        gateway.close()
    return numbers
