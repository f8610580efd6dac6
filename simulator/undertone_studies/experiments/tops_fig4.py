"""Experiment: Figure 4 of ToPS."""

from dataclasses import replace

from undertone_central.mechanisms.smoothers import SMOOTHERS
from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions
from undertone_studies.tops_figures import at_quantile
from undertone_studies.tops_methods import (
    Trial,
    source,
    tops_answers,
)
from undertone_studies.tops_streams import TopsStream

TITLE = "ToPS, figure 4: smoothers (MSE)"
PARAGRAPH = (
    "The paper finds that the smoother `recent` is best on DNS, and that `mean` and `median` are worse than the others "
    "on POS. Here it is the other way round: `mean` and `median` have smaller errors than `recent` on every stream, "
    "also on POS, whose data are the paper's own. `mean` and `median` predict from many earlier sums, which removes "
    "noise, while `recent` takes the newest sum alone. If a stream changes, a prediction from many earlier sums has a "
    "bias. Here this bias matters less than the noise. The default of `undertone release tops` is the smoother `auto`, "
    "whose error here is at most 3 % larger than that of the best smoother."
)


def run(options: StudyOptions) -> Outcome:
    """Compare the smoothers, at the 95 % quantile, against the truncated truth."""

    def trials(stream: TopsStream, theta: int, epsilon: str) -> dict[str, Trial]:
        def smoothed(name: str) -> Trial:
            return lambda i: tops_answers(stream, theta, epsilon, source(options.seed, i, "fig4"), smoother=name)

        return {name: smoothed(name) for name in SMOOTHERS}

    figure = at_quantile(options, trials, TITLE)
    # The figure omits the method Base, which always answers 0: relative to its error all smoothers look like one line.
    panels = [
        replace(
            panel,
            curves={name: curve for name, curve in panel.curves.items() if name != "Base"},
            relative="recent",
            logarithmic=False,
        )
        for panel in figure.panels
    ]
    return replace(figure, panels=panels)
