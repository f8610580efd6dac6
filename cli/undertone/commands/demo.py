"""``undertone demo``: a fleet through a real broker, from its first report to a table and a picture."""

import math
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from undertone.commands import demo_stream
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_simulator.demo import Result

_MOST_ROWS = 60


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    devices: Annotated[int, typer.Option(help="how many devices, one of them under MicroPython")] = 500,
    slots: Annotated[int, typer.Option(help="report slots; threshold rounds of 3 × 12 slots come before")] = 48,
    epsilon: Annotated[str, typer.Option(help="privacy of one reading (event level), 0.05 to 8")] = "1",
    seed: Annotated[int, typer.Option(help="fixes the population and the cohort, never a device's noise")] = 1,
    data: Annotated[Path | None, typer.Option(help="readings to play: .npz, .csv or .parquet")] = None,
    unit: Annotated[
        str | None, typer.Option(help="unit of the readings where the file does not say, such as kwh")
    ] = None,
    bound: Annotated[int | None, typer.Option(help="public upper bound of a reading, in whole units")] = None,
    png: Annotated[Path, typer.Option(help="where the picture goes")] = Path("undertone-demo.png"),
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="write the results as JSON")] = None,
    directory: Annotated[Path | None, typer.Option(help="keep ledger, store, logs and configuration there")] = None,
    kill_aggregator_at: Annotated[
        int | None, typer.Option(metavar="SLOT", help="kill -9 the aggregator in this report slot, then restart it")
    ] = None,
    kill_device_at: Annotated[
        int | None, typer.Option(metavar="SLOT", help="kill a device in this report slot between send and PUBACK")
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="streams instead: ε, with δ, is of all reports of a device (user level)")
    ] = False,
    delta: Annotated[float, typer.Option(help="with --stream: δ of a whole stream")] = 1e-5,
    slew: Annotated[float, typer.Option(help="with --stream: largest step, a share of the range below 1/2")] = 0.05,
    mechanism: Annotated[str, typer.Option(help="with --stream: gaussian, one-bit or direct")] = "gaussian",
) -> None:
    """Run broker, aggregator, MQTT clients and a MicroPython device here, and compare the estimates with the truth.

    One-second slots, each playing a half-hour of the data: three threshold rounds, then the report phase.
    """
    from undertone_simulator.demo import Options, run
    from undertone_simulator.demo.picture import draw
    from undertone_simulator.demo.run import Failed, write_json
    from undertone_simulator.demo.stream import StreamOptions, run_stream

    console = Console(highlight=False)
    if stream:
        if data is not None or unit is not None or bound is not None or kill_aggregator_at is not None:
            raise Invalid("--data, --unit, --bound and --kill-aggregator-at do not go with --stream")
        given = StreamOptions(devices, slots, epsilon, delta, slew, mechanism, seed, kill_device_at)
        with ExitStack() as stack:
            folder = directory or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="undertone-demo-")))
            display = stack.enter_context(_Display(console))
            try:
                streamed = run_stream(given, folder, display)
            except Failed as failed:
                console.print(f"[bold red]failed:[/] {failed}")
                raise typer.Exit(1) from None
        if not demo_stream.show(streamed, console, json_file):
            raise typer.Exit(1)
        return
    options = Options(devices, slots, epsilon, seed, data, unit, bound, kill_aggregator_at, kill_device_at)
    with ExitStack() as stack:
        folder = directory or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="undertone-demo-")))
        display = stack.enter_context(_Display(console))
        try:
            result = run(options, folder, display)
        except Failed as failed:
            console.print(f"[bold red]failed:[/] {failed}")
            raise typer.Exit(1) from None
    console.print(_table(result))
    for sentence in sentences(result):
        console.print(sentence)
    draw(result, png)
    console.print(f"picture: {png}")
    if json_file is not None:
        write_json(result, json_file)
        console.print(f"results: {json_file}")
    if directory is not None:
        console.print(
            f"accounts: undertone verify --ledger {folder / 'fleet.ledger'} --ledger {folder / 'micropython.log'}"
            f" --ledger {folder / 'demo.ledger'} --store {folder / 'store.sqlite'}"
        )
    if not result.accounts.holds:
        for example in result.accounts.examples:
            print(f"unexplained, {example}", file=sys.stderr)
        raise typer.Exit(1)


class _Display:
    """A bar on a terminal, lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description:<34}"),
            BarColumn(bar_width=30),
            TextColumn(
                "{task.completed:>3.0f} of {task.total:.0f} slots, {task.fields[sent]} sent, {task.fields[acked]} acked"
            ),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=1, sent=0, acked=0)

    def __enter__(self) -> "_Display":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, sentence: str, *, loud: bool = False) -> None:
        """A line above the bar."""
        self._console.print(f"[bold yellow]! {sentence}[/]" if loud else f"  {sentence}")

    def event(self, event: dict[str, Any]) -> None:
        """The aggregator's word: estimates next to the bar, everything else as a line."""
        message = str(event.get("message", ""))
        if event.get("event") == "slot":
            self._progress.update(self._task, description=_short(message))
            if not self._console.is_terminal and "±" in message:
                self._console.print(f"  {message}")
        elif event.get("event") != "deliveries" and "no whole cycles" not in message:
            # The demo's rounds see whole days: they play every fourth half-hour.
            self._console.print(f"  aggregator: {message}")

    def progress(self, done: int, total: int, sent: int, acknowledged: int) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=done, total=total, sent=sent, acked=acknowledged)


def _short(message: str) -> str:
    """`1234.5 ± 6.7 Wh` of a slot's line."""
    return message.partition(": ")[2].partition(" from ")[0]


def _table(result: "Result") -> Table:
    """Narrow enough for 80 columns."""
    table = Table(
        title=f"Mean over the n devices that reported, in {result.unit}, with 95 % intervals: truncated at θ, then raw",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    table.add_column("slot", no_wrap=True)
    table.add_column("plays", no_wrap=True)
    for name in ("n", "estimate", "interval", "truth", "for raw", "raw"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in result.slots[:: -(-len(result.slots) // _MOST_ROWS)]:
        table.add_row(
            str(one.slot),
            result.played(one.column),
            str(one.reports),
            f"{_number(one.estimate)} ± {_number(one.standard_error)}",
            f"{one.low:.0f}..{one.high:.0f}",
            _number(one.truth_truncated),
            f"{one.low_raw:.0f}..{one.high_raw:.0f}",
            _number(one.truth_raw),
        )
    return table


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


def sentences(result: "Result") -> list[str]:
    """θ, certificate, what was spent and what it means, measured against predicted error, the accounts."""
    unit, epsilon, exact = result.unit, result.epsilon, result.certificate
    day, spent = epsilon * result.per_day, epsilon * result.readings_spent
    accounts = result.accounts
    certificate = f"{exact.numerator}/{exact.denominator}"
    level = sum(one.estimate for one in result.slots) / len(result.slots)
    verdict = "it agrees" if result.agrees else "it disagrees"
    weak = "warning: the standard error is above half the signal: more devices or a larger ε would show it"
    return [
        f"[bold]θ = {result.theta} {unit}[/] (90 % between {result.threshold.low} and {result.threshold.high}),"
        f" from three rounds of Square Wave reports",
        *([] if result.mechanism is None else [result.mechanism.sentence()]),
        f"certificate {certificate} = {float(exact):.9g} ≤ e^{epsilon:g} = {math.exp(epsilon):.9g}, proven in integers",
        f"spent: ε = {epsilon:g} per reading (event level), {day:g} per played day of {result.per_day} readings,"
        f" {spent:g} in all for the {result.readings_spent} readings of a device in this demo",
        meaning(epsilon, result.per_day),
        f"error of a slot: {result.measured_error:.1f} {unit} measured, {result.predicted_error:.1f} {unit} predicted"
        f" (ratio {result.standardised:.2f}, expected 1 ± {result.tolerance:.2f} in 95 % of runs: {verdict});"
        f" worst slot {result.worst:.1f} standard errors;"
        f" {result.covered} of {len(result.slots)} intervals hold the truncated truth,"
        f" {result.covered_raw} of {len(result.slots)} wider ones the raw truth",
        *([weak] if result.predicted_error > abs(level) / 2 else []),
        f"accounts: {accounts.sent} reports sent, {accounts.acknowledged} acknowledged, {accounts.counted} counted,"
        f" {accounts.duplicates} duplicate deliveries, {accounts.rejected.total()} rejected,"
        f" {accounts.lost.total()} lost by a named fault,"
        f" {'zero' if accounts.holds else accounts.unexplained.total()} unexplained",
    ]


def meaning(epsilon: float, per_day: int) -> str:
    """What epsilon per reading means for a household, in plain words."""
    return (
        f"what it means: whoever sees the report of one reading can shift the odds between any two values of it by a"
        f" factor of at most e^{epsilon:g} = {math.exp(epsilon):.3g}; readings that follow from one another add up, for"
        f" a whole day to at most e^{epsilon * per_day:g}: single readings are protected, a habit repeated daily is not"
    )
