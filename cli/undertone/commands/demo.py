"""``undertone demo``: runs a server and a fleet on this machine, and shows the result as tables and a picture."""

import json
import shlex
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from undertone.long_running import end_like_ctrl_c
from undertone.options import check_picture

_MOST_ROWS = 60


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("demo")(demo)


def demo(
    devices: Annotated[
        int, typer.Option(help="Number of devices; one runs under MicroPython, if it is installed.")
    ] = 500,
    slots: Annotated[int, typer.Option(help="Number of report slots, which come after the threshold rounds.")] = 48,
    epsilon: Annotated[
        str, typer.Option(help="Privacy budget ε of one reading, or of a whole stream: 0.05 to 8.")
    ] = "1",
    seed: Annotated[int, typer.Option(help="Seed of the population and the cohort, never of a device's noise.")] = 1,
    data: Annotated[Path | None, typer.Option(help="File of readings to play: .npz, .csv or .parquet.")] = None,
    unit: Annotated[
        str | None, typer.Option(help="Unit of the readings, such as kwh, if the file does not name it.")
    ] = None,
    bound: Annotated[int | None, typer.Option(help="Public upper bound of a reading, in whole units.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write a picture to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; the rest goes to standard error.")] = False,
    output: Annotated[
        Path | None, typer.Option(help="Keep ledger, store, logs and configuration in this folder.")
    ] = None,
    kill_server_at: Annotated[
        int | None,
        typer.Option(metavar="SLOT", help="Kill the server (kill -9) in this report slot, then restart it."),
    ] = None,
    kill_device_at: Annotated[
        int | None,
        typer.Option(
            metavar="SLOT", help="Kill a device in this report slot after it sent its report, before the PUBACK."
        ),
    ] = None,
    collect: Annotated[
        str,
        typer.Option(
            help="How to collect: reports, or stream, where one ε and δ cover all reports of a device together."
        ),
    ] = "reports",
    delta: Annotated[
        float | None,
        typer.Option(
            help="With --collect stream: probability δ of the guarantee of the whole stream (default 0.00001)."
        ),
    ] = None,
    slew: Annotated[
        float | None,
        typer.Option(
            help="With --collect stream: largest step between two reports, as a share of the range: less than 1/2"
            " (default 0.05)."
        ),
    ] = None,
    mechanism: Annotated[
        str | None, typer.Option(help="With --collect stream: gaussian, one-bit or direct (default gaussian).")
    ] = None,
    theta: Annotated[
        int | None, typer.Option(help="With --collect stream: devices truncate their readings to this value.")
    ] = None,
    dimension: Annotated[
        int | None, typer.Option(help="With --collect stream: number of coordinates of a reading (default 1).")
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(help="Broker between devices and server: mosquitto. Without it, devices connect to the server."),
    ] = None,
    as_papers: Annotated[
        bool,
        typer.Option(
            "--as-papers",
            help="With --collect reports: play the papers' way and simulate the default; without this option, play the"
            " default and simulate the papers' way.",
        ),
    ] = False,
    window: Annotated[
        str | None,
        typer.Option(
            help="A window such as 16s: ε covers all readings in any window of this length; devices report in turns."
            " Only with --collect reports."
        ),
    ] = None,
) -> None:
    """Run a server, MQTT clients and a MicroPython device here, and compare the estimates with the truth.

    A slot takes one second and plays a half-hour of the data. Threshold rounds come before the report phase: three; one
    with --as-papers or --collect stream; none with --theta or several coordinates. The last table compares the papers'
    way with this project's, from the same readings: one of them was played, the others are simulated.
    """
    from undertone_aggregator.base.open_files import raise_limit
    from undertone_simulator.demo import DemoOptions, Failed, run
    from undertone_simulator.demo.picture import draw

    check_picture(png)
    end_like_ctrl_c()
    # The processes of the server and the fleet inherit this higher limit of open files.
    raise_limit()
    console = Console(highlight=False, stderr=as_json)
    options = DemoOptions(
        devices,
        slots,
        epsilon,
        seed,
        data,
        unit,
        bound,
        kill_server_at,
        kill_device_at,
        collect=collect,
        delta=delta,
        slew=slew,
        mechanism=mechanism,
        theta=theta,
        dimension=dimension,
        broker=broker,
        window=window,
        as_papers=as_papers,
    )
    with ExitStack() as stack:
        folder = output or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="undertone-demo-")))
        display = stack.enter_context(_Display(console))
        try:
            result = run(options, folder, display)
        except Failed as failed:
            console.print(f"[bold red]failed:[/] {escape(str(failed))}")
            raise typer.Exit(1) from None
    console.print(table_of(*result.table()))
    for sentence in result.sentences():
        console.print(sentence)
    console.print(table_of(*result.side_by_side()))
    if png is not None:
        draw(result, png)
        console.print(f"picture: {png}")
    if as_json:
        print(json.dumps(result.as_json(), allow_nan=False))
    if output is not None:
        ledgers = [*sorted(folder.glob("*.ledger")), *sorted(folder.glob("micropython*.log"))]
        words = [word for path in ledgers for word in ("--ledger", str(path))]
        command = shlex.join(["undertone", "verify", *words, "--store", str(folder / "stores/demo.sqlite")])
        console.print(f"check the accounts: {command}", soft_wrap=True, markup=False)
    if not result.accounts.holds:
        for example in result.accounts.examples:
            print(f"unexplained, {example}", file=sys.stderr)
        raise typer.Exit(1)


class _Display:
    """Progress of a demonstration: a bar on a terminal, lines elsewhere."""

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
        """Print a line above the bar."""
        shown = escape(sentence)
        self._console.print(f"[bold yellow]! {shown}[/]" if loud else f"  {shown}")

    def event(self, event: dict[str, Any]) -> None:
        """Show an entry of the server's log: estimates beside the bar, most other entries as a line."""
        message = str(event.get("message", ""))
        if event.get("event") == "slot":
            self._progress.update(self._task, description=_short(message))
            if not self._console.is_terminal and "±" in message:
                self._console.print(f"  {escape(message)}")
        elif event.get("event") != "deliveries" and event.get("kind") != "cycles":
            # The demo leaves out the warning that rounds have no whole cycles: its short rounds cover whole days,
            # because they play every fourth half-hour.
            self._console.print(f"  server: {escape(message)}")

    def progress(self, done: int, total: int, sent: int, acknowledged: int) -> None:
        """Update the bar."""
        self._progress.update(self._task, completed=done, total=total, sent=sent, acked=acknowledged)


def _short(message: str) -> str:
    """Return `1234.5 ± 6.7 Wh` from the log line of a slot."""
    return message.partition(": ")[2].partition(" from ")[0]


def table_of(title: str, columns: list[str], rows: list[list[str]]) -> Table:
    """Return a table of at most `_MOST_ROWS` of the rows, evenly spaced."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows[:: -(-len(rows) // _MOST_ROWS)]:
        table.add_row(*row)
    return table
