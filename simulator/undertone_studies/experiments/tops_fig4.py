"""Experiment: Figure 4 of ToPS."""

from dataclasses import replace

from undertone_central.smoothers import SMOOTHERS
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
    "The paper finds that `recent` is the best smoother on DNS and among the best elsewhere. Here the mean and the "
    "median have smaller errors on every stream, by 7 to 17 %. Averaging over the history removes noise. It also "
    "adds a bias if the stream changes, but these streams change slowly (the synthetic ones not at all), so the "
    "bias is small. Our default is `auto`, which uses the smoother that has predicted best so far. In this figure "
    "its error is at most 3 % larger than that of the mean."
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
