"""``undertone release``: a private stream from raw values, out of a file, a pipe or MQTT; and range queries over it."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from undertone.commands.release_query import answer
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.collect.link import Address
    from undertone_central.job import Job
    from undertone_central.noise import Integers

_NAMED_FAULTS = 20


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("release")(release)


def release(
    mechanism: Annotated[
        str | None,
        typer.Option(
            help="tops, pak, simple-1, simple-2, two-level, binary, unbounded, hybrid, square-root or sanitizer"
        ),
    ] = None,
    epsilon: Annotated[str | None, typer.Option(help="privacy parameter of each value")] = None,
    bound: Annotated[int | None, typer.Option(help="public upper bound of a value, in natural units")] = None,
    source: Annotated[
        str, typer.Option("--input", help="a CSV, NPZ or Parquet file, - for standard input, or mqtt://host:port/topic")
    ] = "-",
    output: Annotated[str, typer.Option(help="a file, - for standard output, or mqtt://host:port/topic")] = "-",
    column: Annotated[
        str | None, typer.Option(help="column (name or number from 0) or array of the input; the last one if absent")
    ] = None,
    scale: Annotated[str, typer.Option(help="natural units per unit of the input, such as 1000 for kWh in Wh")] = "1",
    delta: Annotated[str | None, typer.Option(help="pak, square-root: failure probability")] = None,
    theta: Annotated[
        int | None, typer.Option(help="tops, pak: a public threshold; else it is chosen from held-out values")
    ] = None,
    hold_out: Annotated[int | None, typer.Option(help="tops, pak: values held out for the threshold")] = None,
    span: Annotated[
        int | None, typer.Option(help="tops, pak: longest range of interest, a power of the fan-out")
    ] = None,
    fanout: Annotated[int | None, typer.Option(help="tops, pak: fan-out of the hierarchy")] = None,
    consistency: Annotated[str | None, typer.Option(help="tops, pak: least-squares, least-absolute; pak: none")] = None,
    smoothing: Annotated[int | None, typer.Option(help="tops: levels that the smoother replaces")] = None,
    smoother: Annotated[
        str | None, typer.Option(help="tops: recent, mean, median, moving-average or exponential")
    ] = None,
    objective: Annotated[
        str | None, typer.Option(help="tops: excess (no constant), or count (the paper's, with --c)")
    ] = None,
    c: Annotated[
        str | None, typer.Option(help="tops: mean excess per truncated value in natural units, for --objective count")
    ] = None,
    noise: Annotated[
        str | None, typer.Option(help="tops: exponential or laplace; pak: laplace, gaussian or cauchy")
    ] = None,
    threshold: Annotated[str | None, typer.Option(help="pak: s-pak or s-p")] = None,
    percentile: Annotated[str | None, typer.Option(help="pak: the quantile sought, such as 0.995")] = None,
    update: Annotated[
        str | None, typer.Option(help="tops: none, parallel or sequential updates of the threshold")
    ] = None,
    share: Annotated[
        str | None,
        typer.Option(help="tops: share of epsilon for sequential updates; sanitizer: share of values that is sampled"),
    ] = None,
    monotone: Annotated[bool, typer.Option("--monotone", help="tops, counters: the running sum never falls")] = False,
    horizon: Annotated[int | None, typer.Option(help="counters: the most values that will ever arrive")] = None,
    block: Annotated[int | None, typer.Option(help="two-level, sanitizer: values per block")] = None,
    last_block: Annotated[str, typer.Option(help="sanitizer: hold back or pad the last incomplete block")] = "hold",
    state: Annotated[Path | None, typer.Option(help="checkpoint, secret; OUTPUT.state for files")] = None,
    continues: Annotated[
        bool, typer.Option("--continues", help="resuming from a pipe: it goes on, and does not start again")
    ] = False,
    user: Annotated[str | None, typer.Option(help="MQTT user; the password is in UNDERTONE_PASSWORD")] = None,
    ca: Annotated[Path | None, typer.Option(help="MQTT over TLS: certificate of the broker's authority")] = None,
    seconds: Annotated[float | None, typer.Option(help="MQTT: stop after so long; else at SIGTERM or Ctrl-C")] = None,
    query: Annotated[Path | None, typer.Option(help="answer from this release instead of making one")] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", help="with --query: FIRST:END, the sum of values number FIRST to END - 1"),
    ] = None,
    quantiles: Annotated[
        list[float] | None, typer.Option("--quantile", help="with --query of synthetic items: a share, such as 0.5")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="summaries and answers as JSON")] = False,
) -> None:
    """Publish a stream of raw values under event-level differential privacy, or query what was published.

    An interrupted release resumes with the same command; no value is drawn twice.
    """
    if query is not None:
        return answer(query, ranges or [], quantiles or [], as_json)
    if mechanism is None or epsilon is None or bound is None:
        raise Invalid("release needs --mechanism, --epsilon and --bound")
    from undertone_central.budget import check_word, parse_epsilon, parse_positive
    from undertone_central.job import Job
    from undertone_central.make import make
    from undertone_central.sanitizer import ENDINGS

    options: dict[str, Any] = {
        "delta": delta, "theta": theta, "hold_out": hold_out, "span": span, "fanout": fanout, "noise": noise,
        "consistency": consistency, "smoothing": smoothing, "smoother": smoother, "objective": objective, "c": c,
        "threshold": threshold, "percentile": percentile, "update": update, "monotone": monotone or None,
        "horizon": horizon, "block": block, "share": share,
    }  # fmt: skip
    made = make(mechanism, bound, epsilon, **options)
    check_word("last_block", last_block, ENDINGS)
    settings = {"mechanism": mechanism, "epsilon": str(parse_epsilon(epsilon)), "bound": bound} | options
    over_mqtt = source.startswith("mqtt://")
    if source != "-" and not over_mqtt and not Path(source).is_file():
        raise Invalid(f"input is {source!r}, expected a file, - or mqtt://host:port/topic")
    units = parse_positive("scale", scale)
    if output != "-" and not output.startswith("mqtt://"):
        state = state or Path(output + ".state")
        _refuse_a_second_release(Path(output), state)
    if over_mqtt and state is None:
        raise Invalid("the gateway needs --state FILE, or it could not go on after a crash")
    with _sink(output, user, ca) as sink:
        job = Job(made, sink, state, settings)
        print(made.guarantee, file=sys.stderr)
        if job.resumed:
            print(f"resuming after {job.progress.consumed} values", file=sys.stderr)
        if over_mqtt:
            _gateway(job, source, units, user, ca, seconds)
            return
        try:
            released = _files(job, source, column, units, continues)
        except KeyboardInterrupt:
            if state is not None:
                print("interrupted; the same command goes on from there", file=sys.stderr)
            raise
        job.close(last_block)
    summary = {"values": job.progress.consumed, "released": released, "guarantee": made.guarantee}
    if as_json:
        print(json.dumps(summary, ensure_ascii=False), file=sys.stderr if output == "-" else sys.stdout)
    else:
        print(f"{job.progress.consumed} values read, {released} numbers released", file=sys.stderr)
    if made.withholding:
        print("all values were held out for the threshold: use a shorter --hold-out, or --theta", file=sys.stderr)


def _refuse_a_second_release(output: Path, state: Path) -> None:
    if output.is_dir():
        raise Invalid(f"output is '{output}', a folder, expected a file, - or mqtt://host:port/topic")
    if output.exists() and output.stat().st_size and not state.exists():
        raise Invalid(f"{output} exists: a second release of the same values would cost their ε again; remove it first")


def _files(job: "Job", source: str, column: str | None, units: Fraction, continues: bool) -> int:
    """Feed a file or a pipe; what a resumed release has read before is read again, compared and skipped."""
    from undertone_central import feed

    faults = 0

    def say(sentence: str) -> None:
        nonlocal faults
        faults += 1
        if faults <= _NAMED_FAULTS:
            print(sentence, file=sys.stderr)

    if source == "-":
        lines = feed.PipeLines(sys.stdin.fileno())
        parts = feed.as_they_come(lines, feed.text_values(lines, column, units, say, "standard input"))
        expected = None
    else:
        parts = feed.batches(Path(source), column, units, say)
        expected = feed.expected(Path(source))
    if job.resumed and not (source == "-" and continues):
        parts = _after(parts, job)
    released = 0
    with _bar(expected) as advance:
        for values in parts:
            released += job.step(values)
            advance(len(values))
    if faults > _NAMED_FAULTS:
        print(f"{faults - _NAMED_FAULTS} more rows have the same faults", file=sys.stderr)
    return released


def _after(parts: "Iterable[Integers]", job: "Job") -> "Iterator[Integers]":
    """What follows the values that were read before. Raises Invalid when those differ."""
    from undertone_central.job import checksum

    missing, found = job.progress.consumed, 0
    for values in parts:
        old, new = values[:missing], values[missing:]
        found = checksum(old, found)
        missing -= len(old)
        if not missing and len(old) and found != job.progress.checksum:
            raise Invalid("the input does not begin with the values that were released before the interruption")
        if len(new):
            yield new
    if missing:
        raise Invalid(f"the input ends {missing} values before the point of the interruption")


@contextmanager
def _bar(expected: int | None) -> "Iterator[Callable[[int], None]]":
    """A progress bar on standard error, where a person looks at it."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    with Progress(
        BarColumn(), MofNCompleteColumn(), "values", TimeElapsedColumn(), console=Console(stderr=True)
    ) as progress:
        task = progress.add_task("", total=expected)
        yield lambda n: progress.advance(task, n)


class _Standard:
    """Standard output as a sink."""

    def append(self, text: str, at: int) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def close(self) -> None:
        pass


@contextmanager
def _sink(output: str, user: str | None, ca: Path | None) -> Iterator[Any]:
    from undertone_central.gateway import TopicSink
    from undertone_central.job import TextFile

    if output.startswith("mqtt://"):
        address, topic = _address(output, user, ca)
        sink: Any = TopicSink(address, topic, f"undertone-release-out-{os.getpid()}")
    else:
        sink = _Standard() if output == "-" else TextFile(Path(output))
    try:
        yield sink
    finally:
        sink.close()


def _address(url: str, user: str | None, ca: Path | None) -> "tuple[Address, str]":
    from undertone_aggregator.collect.link import Address

    try:
        parts = urlsplit(url)
        port = parts.port or (8883 if ca else 1883)
    except ValueError:
        raise Invalid(f"{url!r} has no valid port, expected mqtt://host:port/topic") from None
    topic = parts.path.strip("/")
    if not parts.hostname or not topic or "#" in url or "+" in topic:
        raise Invalid(f"{url!r} names no broker or no topic, expected mqtt://host:port/topic")
    return Address(parts.hostname, port, user or "", os.environ.get("UNDERTONE_PASSWORD", ""), ca), topic


def _gateway(
    job: "Job", source: str, units: Fraction, user: str | None, ca: Path | None, seconds: float | None
) -> None:
    import hashlib

    from undertone_central.gateway import Gateway

    stop = threading.Event()
    for end in (signal.SIGTERM, signal.SIGINT):
        signal.signal(end, lambda *_: stop.set())
    if seconds is not None:
        timer = threading.Timer(seconds, stop.set)
        timer.daemon = True
        timer.start()
    address, topic = _address(source, user, ca)
    name = "undertone-release-" + hashlib.sha256(source.encode()).hexdigest()[:12]
    gateway = Gateway(job, address, topic, name, units, lambda sentence: print(sentence, file=sys.stderr))
    print(f"listening to {topic} on {address.host}:{address.port}", file=sys.stderr)
    try:
        while not stop.is_set():
            gateway.step()
    finally:
        gateway.close()
    print(f"stopped after {job.progress.consumed} values; the same command goes on from there", file=sys.stderr)
