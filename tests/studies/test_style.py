"""The rules that all figures follow. The stored pictures of the results follow them, too."""

import hashlib
import json

import pytest

from support.micropython import REPO
from support.refusal import refused
from undertone_studies import style
from undertone_studies.outcome import Outcome
from undertone_studies.panel import Panel

RESULTS = sorted((REPO / "docs" / "results").glob("*.json"))


def panel(title="p", y="RMSE, Wh", lines=2, scale=1.0, **options):
    curves = {f"line {i}": ([1.0, 2.0, 4.0], [scale * (i + 1), scale, scale / 2]) for i in range(lines)}
    return Panel(title, "ε", y, curves, **options)


def test_nine_lines_in_a_panel_are_refused():
    style.figure([panel(lines=8)])
    with refused("'p'", 9, 8):
        style.figure([panel(lines=9)])


def scales(made):
    by_quantity = {}
    for axes in made.get_axes():
        by_quantity.setdefault(axes.get_ylabel(), set()).add((axes.get_yscale(), axes.get_ylim()))
    return by_quantity


def test_panels_of_one_quantity_have_one_scale():
    made = style.figure([panel(), panel("q", scale=1000.0), panel("r", logarithmic=False), panel("s", y="share")])
    shown = scales(made)
    assert {len(limits) for limits in shown.values()} == {1}
    assert shown["RMSE, Wh"] != shown["share"]


def test_lines_differ_without_colour_and_are_named_where_they_end():
    made = style.figure([panel(lines=8)])
    (axes,) = made.get_axes()
    looks = {(line.get_marker(), line.get_linestyle()) for line in axes.get_lines()}
    assert len(looks) == 8
    assert {text.get_text() for text in axes.texts} == {f"line {i}" for i in range(8)}
    assert axes.get_legend() is None


def test_a_baseline_is_grey_and_a_ratio_names_what_it_is_to():
    curves = {"ours": ([1.0, 2.0], [1.0, 1.0]), "Base": ([1.0, 2.0], [4.0, 8.0])}
    (axes,) = style.figure([Panel("p", "ε", "MSE", curves)]).get_axes()
    assert {line.get_label(): line.get_color() for line in axes.get_lines()}["Base"] == style.GREY
    (axes,) = style.figure([Panel("p", "ε", "MSE", curves, relative="Base")]).get_axes()
    assert axes.get_ylabel() == "MSE ÷ Base's"
    assert axes.get_lines()[0].get_ydata().tolist() == [0.25, 0.125]


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_result_keeps_its_picture(path):
    """No picture is older than its table or drawn in another way. The table's file has the curves and a digest."""
    document = json.loads(path.read_text("utf-8"))
    outcome = Outcome.of(document)
    picture = path.with_suffix(".png")
    assert picture.exists() == bool(outcome.panels)
    if outcome.panels:
        assert {len(limits) for limits in scales(style.figure(outcome.panels)).values()} == {1}
        assert document["picture"] == hashlib.sha256(picture.read_bytes()).hexdigest()
