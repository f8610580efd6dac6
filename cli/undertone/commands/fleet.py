"""``undertone fleet``: thousands of MQTT clients in one process, each with the shipped reporter core, as a load
test.
"""

import json
import math
import shlex
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertone.applies import refuse
from undertone.long_running import end_like_ctrl_c
from undertone_aggregator.base.plural import many
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_simulator.load.load_options import LoadResult


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("fleet")(fleet)


def fleet(
    context: typer.Context,
    clients: Annotated[int, typer.Option(help="Number of MQTT connections, up to 10,000.")] = 1000,
    interval: Annotated[
        int | None,
        typer.Option(help="Length of a slot in seconds (default 10)."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Reports per second of all clients, instead of --interval.")
    ] = None,
    slots: Annotated[
        int, typer.Option(help="Number of report slots. Without --fleet, a threshold round of 2 slots comes first.")
    ] = 6,
    ramp_up: Annotated[float, typer.Option(help="Seconds over which the connections are spread.")] = 0.0,
    jitter: Annotated[
        float, typer.Option(help="Share of a slot over which the clients' reports are spread, 0 to 0.8.")
    ] = 0.6,
    qos: Annotated[int, typer.Option(help="MQTT quality of service, which must be 1.")] = 1,
    kill: Annotated[
        float, typer.Option(help="Share of the clients that lose power once and boot two slots later.")
    ] = 0.0,
    duplicate: Annotated[float, typer.Option(help="Share of the clients that publish one report twice.")] = 0.0,
    delay: Annotated[
        float, typer.Option(help="Share of the clients that once send reports two slots late, newest first.")
    ] = 0.0,
    lie: Annotated[
        float, typer.Option(help="Share of the clients that send only the largest symbol from some slot on.")
    ] = 0.0,
    drop_out: Annotated[float, typer.Option(help="Share of the reports that never leave their device.")] = 0.0,
    late: Annotated[float, typer.Option(help="Share of the devices that join late.")] = 0.0,
    epsilon: Annotated[str, typer.Option(help="Privacy budget ε of one reading (event level): 0.05 to 8.")] = "1",
    population: Annotated[
        str,
        typer.Option(
            help="Synthetic readings: households, phones, time-in-state, heavy-tail, temperature, charging, "
            "night-heating, solar, retail, zeros, star, rise, bimodal, heat-wave, offices, holiday or pareto."
        ),
    ] = "households",
    seed: Annotated[int, typer.Option(help="Seed of the population and the faults, never of a device's noise.")] = 1,
    window: Annotated[
        str | None,
        typer.Option(help="A time such as 60s: ε covers all readings in any span of this length; devices take turns."),
    ] = None,
    micropython: Annotated[int, typer.Option(help="Number of clients that are processes under MicroPython.")] = 0,
    provisioned: Annotated[
        Path | None,
        typer.Option("--fleet", help="Folder of a running campaign's devices, such as home/fleets/power."),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Keep ledger, store and logs in this new folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Put a load on a server, and account for every report.

    The command starts the server on this machine, and exits with code 1 if a report is unexplained. With --fleet, the
    server is already running, and undertone verify accounts for the reports. SIGTERM and Ctrl-C end the fleet, and the
    results of what it has sent are printed.
    """
    from undertone_simulator.load.load_options import LoadOptions
    from undertone_simulator.load.run import run
    from undertone_simulator.processes import Failed
    from undertone_simulator.readings.behaviour import Behaviour

    end_like_ctrl_c()
    if qos != 1:
        raise Invalid(
            f"qos is {qos}, expected 1: with 0 nobody notices a lost report, and with 2 the broker works for nothing,"
            " because the server recognises duplicates by itself"
        )
    if provisioned is not None:
        refuse(
            context, ["interval", "rate", "window", "epsilon"], "with --fleet: the plan of the running campaign decides"
        )
        refuse(
            context, ["micropython"], "with --fleet: only clients that this command creates can run under MicroPython"
        )
    options = LoadOptions(
        clients=clients,
        slots=slots,
        interval=_interval(clients, interval, rate),
        epsilon=epsilon,
        population=population,
        seed=seed,
        ramp_up=ramp_up,
        jitter=jitter,
        faults={"kill": kill, "duplicate": duplicate, "delay": delay, "lie": lie},
        behaviour=Behaviour(seed, drop_out, late),
        micropython=micropython,
        window=window,
        provisioned=provisioned,
    )
    if provisioned is not None and output is None:
        raise Invalid("--fleet needs --output, which keeps the ledger for undertone verify")
    if output is not None and output.exists() and any(output.iterdir()):
        raise Invalid(f"--output is {str(output)!r}, which is not empty, expected a new folder")
    with ExitStack() as stack:
        folder = output or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="undertone-fleet-")))
        show = stack.enter_context(_Line())
        try:
            result = run(options, folder, show.show)
        except Failed as failed:
            print(f"failed: {failed}", file=sys.stderr)
            raise typer.Exit(1) from None
    if as_json:
        print(json.dumps(result.as_json(), indent=2))
    else:
        _show(result, has_output=output is not None, theirs=provisioned is not None, has_rate=rate is not None)
    if result.accounts is not None and not result.accounts.holds:
        raise typer.Exit(1)


def _interval(clients: int, interval: int | None, rate: float | None) -> int:
    if rate is None:
        return 10 if interval is None else interval
    if interval is not None:
        raise Invalid("--interval and --rate exclude each other: interval = clients / rate")
    if not 0 < rate <= 1e6:
        raise Invalid(f"--rate is {rate!r}, expected more than 0 and at most 1000000 reports per second")
    return max(1, round(clients / rate))


def _show(result: "LoadResult", *, has_output: bool, theirs: bool, has_rate: bool = False) -> None:
    from rich.console import Console

    from undertone.commands.verify import accounts_table, verdict

    console = Console(highlight=False)
    if result.accounts is not None:
        console.print(accounts_table(result.accounts))
        for sentence in result.accounts.examples:
            console.print(f"  unexplained, {sentence}")
        console.print(verdict(result.accounts))
    console.print(
        f"{many(result.clients, 'client')}: {many(result.sent, 'report')} sent, {result.acknowledged} acknowledged"
        f" in {result.seconds:.0f} s"
    )
    if result.latency_median is not None:
        console.print(
            f"from sending to acknowledgement: {result.latency_median:.0f} ms median,"
            f" at most {result.latency_99:.0f} ms for 99 % of the reports"
        )
    if result.peak_megabytes is not None:
        console.print(f"the fleet's process took at most {result.peak_megabytes} MB of memory")
    if result.skipped:
        cure = "fewer clients" if theirs else "a lower --rate" if has_rate else "fewer clients or a longer --interval"
        console.print(
            f"warning: this machine was too slow: the devices skipped {many(result.skipped, 'report')}. Try {cure}"
        )
    if has_output:
        ledgers = [word for path in result.ledgers for word in ("--ledger", str(path))]
        store = "THE-SERVERS-STORE" if theirs else str(result.ledgers[0].parent / "stores/load.sqlite")
        command = shlex.join(["undertone", "verify", *ledgers, "--store", store])
        console.print(f"check the accounts: {command}", soft_wrap=True, markup=False)


class _Line:
    """Progress on standard error: one changing line on a terminal, a line every ten seconds elsewhere."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status("starting")
        self._said = -math.inf

    def __enter__(self) -> "_Line":
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def show(self, sentence: str) -> None:
        """Show the current state of the test."""
        if self._console.is_terminal:
            self._status.update(sentence)
        elif time.monotonic() >= self._said + 10:
            self._said = time.monotonic()
            self._console.print(sentence)
