"""``undertone demo --stream``: a stream campaign through a real broker."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_simulator.demo.stream import StreamResult


def show(result: "StreamResult", console: Console, json_file: Path | None) -> bool:
    """Print table and sentences, write the JSON; False where the accounts do not hold. Raises Invalid, or OSError."""
    table = Table(
        title=f"Mean over the n devices that reported, in {result.unit}; truth after clipping, and raw",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    for name in ("slot", "n", "estimate", "smoothed", "clipped", "raw"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in result.slots:
        table.add_row(
            str(one.slot),
            str(one.reports),
            f"{one.estimate:.1f} ± {one.standard_error:.1f}",
            f"{one.smoothed:.1f} ± {one.smoothed_error:.1f}",
            f"{one.truth_clipped:.1f}",
            f"{one.truth_raw:.1f}",
        )
    console.print(table)
    for sentence in sentences(result):
        console.print(sentence)
    if json_file is not None:
        try:
            json_file.write_text(json.dumps(result.as_json(), indent=2, allow_nan=False) + "\n")
        except ValueError:
            raise Invalid("a result is not a finite number") from None
        console.print(f"results: {json_file}")
    for example in [] if result.accounts.holds else result.accounts.examples:
        print(f"unexplained, {example}", file=sys.stderr)
    return result.accounts.holds


def sentences(result: "StreamResult") -> list[str]:
    """The guarantee, errors measured against stated ones, who was MicroPython, the accounts."""
    accounts = result.accounts
    level = sum(one.truth_raw for one in result.slots) / len(result.slots)
    weak = "warning: the standard error is above half the signal: more devices, a larger ε or smoothing would show it"
    return [
        result.guarantee,
        f"error: {result.measured_error:.1f} {result.unit} measured, {result.predicted_error:.1f} stated"
        f" (slots share noise: one run may be off together); worst slot {result.worst:.1f} standard errors;"
        f" smoothed {result.smoothed_error:.1f}",
        *([weak] if result.predicted_error > level / 2 else []),
        f"{result.micropython} of the reports were drawn by real MicroPython",
        f"accounts: {accounts.sent} reports sent, {accounts.acknowledged} acknowledged, {accounts.counted} counted,"
        f" {accounts.duplicates} duplicate deliveries, {accounts.rejected.total()} rejected,"
        f" {accounts.lost.total()} lost by a named fault,"
        f" {'zero' if accounts.holds else accounts.unexplained.total()} unexplained",
    ]
