"""``undertone release``: make a private stream from raw values, one command per mechanism, and query it."""

import inspect
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from undertone.applies import refuse
from undertone.commands.release_query import query
from undertone.examples import with_examples
from undertone.long_running import stop_event
from undertone.options import with_typed_errors
from undertone_aggregator.base.plural import many

if TYPE_CHECKING:
    from undertone_central.release import Released

_HELP = {
    "as_papers": "take the paper's choices of objective, noise, smoothing, smoother, consistency, update, monotone",
    "block": "number of values in a block",
    "two-level.block": "number of values in a block  [default: the square root of --horizon]",
    "c": "mean excess per truncated value in natural units, which --objective count assumes",
    "concepts": "what the synthetic items answer: thresholds (shares up to a value, and quantiles) or points (shares "
    "of single values)",
    "consistency": "how sums are made to agree with each other: least-squares or least-absolute",
    "pak.consistency": "how sums are made to agree with each other: none (not at all), least-squares or least-absolute",
    "delta": "delta of the guarantee: the probability with which epsilon may be exceeded",
    "pak.delta": "delta of the guarantee: the probability with which epsilon may be exceeded  [default: 1 divided by "
    "the square of --hold-out]",
    "fanout": "number of children of a node in the tree of sums",
    "k-ary.fanout": "number of children of a node in the tree of sums, an odd number  [default: the one with the least "
    "error]",
    "hold_out": "number of values held out to choose the threshold",
    "horizon": "largest number of values that will ever arrive",
    "monotone": "never let the running sum fall",
    "noise": "noise with which the threshold is chosen: exponential or laplace",
    "pak.noise": "noise of the threshold: laplace, gaussian or cauchy",
    "objective": "error that the threshold minimises: excess (it needs no constant), or count (the paper's, with --c)",
    "percentile": "share of the held-out values that should lie below the threshold",
    "share": "share of epsilon that sequential updates of the threshold use",
    "sanitizer.share": "share of each block's values that is sampled",
    "smoother": "how sums are predicted before they are released: auto, recent, mean, median, moving-average or "
    "exponential",
    "smoothing": "number of the tree's lowest levels whose sums are predicted; auto, or paper (the authors' rounding)",
    "span": "longest range of values that a query may ask for; a power of the fan-out",
    "theta": "a public threshold; without it, held-out values choose one",
    "threshold": "how the threshold is chosen: s-pak or s-p",
    "update": "how the threshold is updated: none (never), parallel or sequential",
}


_RESUMES = "If the output is a file, or with --state, an interrupted release resumes with the same command."


def register(app: typer.Typer) -> None:
    """Add the group of commands to the application."""
    group = typer.Typer(
        cls=_Mechanisms,
        no_args_is_help=True,
        help="Publish a stream of raw values under event-level differential privacy, or query what was published.",
    )
    group.command("query")(query)
    app.add_typer(group, name="release")


class _Mechanisms(TyperGroup):
    """One command per mechanism, made on demand, with the parameters of the mechanism as options."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the mechanisms, and ``query``."""
        from undertone_central.make import MECHANISMS

        return [*MECHANISMS, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of that name, or None."""
        from undertone_central.make import MECHANISMS

        if cmd_name in MECHANISMS:
            return with_typed_errors(with_examples(f"release {cmd_name}", _command(cmd_name)))
        return super().get_command(ctx, cmd_name)


def _command(mechanism: str) -> Any:
    """Return the command that releases with this mechanism."""
    from undertone_central.make import MECHANISMS, parameters
    from undertone_central.mechanisms.continual import Continual

    maker = MECHANISMS[mechanism]
    unasked = {"context", "mechanism", "options"}
    if getattr(maker, "close", None) is Continual.close:
        unasked.add("last_block")
    own = [_option(mechanism, parameter) for parameter in parameters(mechanism).values()]
    common = inspect.signature(_release, eval_str=True).parameters
    asked = [parameter for name, parameter in common.items() if name not in unasked]

    def run(context: typer.Context, **values: Any) -> None:
        _release(context, mechanism, {option.name: values.pop(option.name) for option in own}, **values)

    whole = [common["context"], *asked[:2], *own, *asked[2:]]
    run.__signature__ = inspect.Signature(whole)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in whole}
    first = (inspect.getdoc(maker) or "").partition("\n")[0]
    single = typer.Typer(rich_markup_mode=None, add_completion=False)
    single.command(mechanism, help=f"{first}\n\n{_RESUMES}")(run)
    return typer.main.get_command(single)


def _option(mechanism: str, parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a mechanism's parameter as an option of the command. An option that is not given is None, a flag False."""
    kinds = parameter.annotation if isinstance(parameter.annotation, type) else str
    whole = kinds is int or parameter.annotation == int | None
    kind: Any = bool if kinds is bool else int if whole else str
    needed = parameter.default is inspect.Parameter.empty
    text = _HELP.get(f"{mechanism}.{parameter.name}") or _HELP[parameter.name]
    if not needed and parameter.default is not None and kind is not bool:
        text += f"  [default: {parameter.default}]"
    flags = [f"--{parameter.name.replace('_', '-')}"] if kind is bool else []
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if needed else False if kind is bool else None,
        annotation=Annotated[kind if needed or kind is bool else kind | None, typer.Option(*flags, help=text)],
    )


# Options that have no effect if values come over MQTT, and options that need a broker.
_NOT_OF_MQTT = ("column", "last_block", "continues", "as_json")
_BROKER = ("user", "ca_file")


def _release(
    context: typer.Context,
    mechanism: str,
    options: dict[str, Any],
    *,
    epsilon: Annotated[str, typer.Option(help="privacy parameter of each value, 0.0001 to 8")],
    bound: Annotated[int, typer.Option(help="public upper bound of a value, in natural units")],
    source: Annotated[
        str, typer.Option("--input", help="a CSV, NPZ or Parquet file, - for standard input, or mqtt://host:port/topic")
    ] = "-",
    output: Annotated[str, typer.Option(help="a file, - for standard output, or mqtt://host:port/topic")] = "-",
    column: Annotated[
        str | None,
        typer.Option(
            help="name of the input's column, or (not in Parquet) its number from 0; by default the last column. For"
            " NPZ: the array, needed if there are several"
        ),
    ] = None,
    scale: Annotated[str, typer.Option(help="units of --bound in one unit of the input: 1000 from kWh to Wh")] = "1",
    last_block: Annotated[
        str, typer.Option(help="what to do with a last, incomplete block: hold (never publish it) or pad (fill it up)")
    ] = "hold",
    state: Annotated[
        Path | None,
        typer.Option(help="secret file for the checkpoint; if OUTPUT is a file, OUTPUT.state by default"),
    ] = None,
    continues: Annotated[
        bool,
        typer.Option("--continues", help="when resuming from a pipe: the pipe continues where the release stopped"),
    ] = False,
    user: Annotated[
        str | None, typer.Option(help="MQTT user; the environment variable UNDERTONE_PASSWORD holds its password")
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="for MQTT over TLS: file of the authority that signed the broker's certificate")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="for MQTT input: stop after this many seconds; without it, stop at SIGTERM or Ctrl-C"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the summary as JSON")] = False,
) -> None:
    from undertone_central.release import MQTT, Broker, release

    listens = source.startswith(MQTT)
    if listens:
        refuse(context, _NOT_OF_MQTT, f"where the input is {MQTT}...")
    else:
        refuse(context, ["seconds"], f"where the input is not {MQTT}...")
        if not output.startswith(MQTT):
            refuse(context, _BROKER, f"where neither input nor output is {MQTT}...")
        if source != "-":
            refuse(context, ["continues"], "where the input is a file")
    # Only an MQTT source needs a stop event: reading a file ends by itself, and Ctrl-C interrupts it.
    stop = stop_event(seconds) if listens else threading.Event()
    try:
        released = release(
            mechanism,
            source,
            output,
            epsilon=epsilon,
            bound=bound,
            column=column,
            scale=scale,
            last_block=last_block,
            state=state,
            continues=continues,
            broker=Broker(user, ca_file),
            stop=stop,
            say=_say,
            bar=_bar,
            **{name: value for name, value in options.items() if value is not None and value is not False},
        )
    except KeyboardInterrupt:
        # Only these releases have a checkpoint.
        if state is not None or not (output == "-" or output.startswith(MQTT)):
            _say("interrupted; the same command resumes the release")
        raise
    if listens:
        _say(f"stopped after {many(released.values, 'value')}; the same command resumes the release")
    else:
        _summary(released, as_json, sys.stderr if output == "-" else sys.stdout)


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def _summary(released: "Released", as_json: bool, out: Any) -> None:
    if as_json:
        facts = {"values": released.values, "released": released.numbers, "guarantee": released.guarantee}
        print(json.dumps(facts, ensure_ascii=False), file=out)
    else:
        _say(f"{many(released.values, 'value')} read, {many(released.numbers, 'number')} released")


@contextmanager
def _bar(expected: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error, if this is a terminal. Yield a function that takes the size of each
    batch.
    """
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
