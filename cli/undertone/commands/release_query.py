"""Range sums and quantiles of a release, with its guarantee."""

import json
from pathlib import Path
from typing import Any

from undertone_shared.errors import Invalid


def answer(path: Path, ranges: list[str], quantiles: list[float], as_json: bool) -> None:
    """Print the answers to questions about a release. Raises Invalid, OSError."""
    import numpy as np

    from undertone_central.document import read
    from undertone_central.quantiles import Quantiles
    from undertone_central.ranges import range_sum

    parameters, pieces = read(path)
    if not ranges and not quantiles:
        raise Invalid("--query needs a question: --range or --quantile")
    answers: list[dict[str, Any]] = []
    for text in ranges:
        first, _, end = text.partition(":")
        if not (first.isdecimal() and end.isdecimal() and len(text) < 40):
            raise Invalid(f"range is {text!r}, expected FIRST:END, such as 0:48")
        found = range_sum(parameters, pieces, int(first), int(end))
        answers.append({"range": text, "sum": found.value, "standard_error": found.standard_error})
    if quantiles:
        if parameters["released"] != "items":
            raise Invalid("quantiles need a release of synthetic items: --mechanism sanitizer")
        sketch = Quantiles()
        sketch.update(np.concatenate([piece.numbers for piece in pieces] or [np.zeros(0, dtype=np.int64)]))
        for share in quantiles:
            if not 0 <= share <= 1:
                raise Invalid(f"quantile is {share}, expected a share from 0 to 1")
            answers.append({"quantile": share, "value": sketch.quantile(share)})
    if as_json:
        print(json.dumps({"guarantee": parameters["guarantee"], "answers": answers}, ensure_ascii=False))
        return
    for one in answers:
        if "range" in one:
            print(f"sum over {one['range']}: {one['sum']:.0f} ± {one['standard_error']:.1f} (s.e.)")
        else:
            print(f"quantile {one['quantile']:g}: {one['value']}")
    print(parameters["guarantee"])
