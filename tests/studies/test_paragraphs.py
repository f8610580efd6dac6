"""Figures in the paragraphs of the papers' studies follow from their stored rows."""

import json
from pathlib import Path
from typing import Any

import pytest

from undertone_studies.registry import EXPERIMENTS

RESULTS = Path(__file__).parents[2] / "docs/results"


def rows(study: str) -> list[dict[str, Any]]:
    document: dict[str, Any] = json.loads((RESULTS / f"{study}.json").read_text())
    return list(document["rows"])


def errors(study: str, epsilon: str = "ε") -> dict[tuple[str, float, str], float]:
    """The mean square error by stream, ε and method."""
    return {(row["stream"], row[epsilon], row["method"]): row["MSE"] for row in rows(study)}


def says(study: str, *words: str) -> None:
    """Check that the paragraph has these words, whose truth the test checks."""
    for each in words:
        assert each in EXPERIMENTS[study].paragraph


def test_figure_3() -> None:
    says("tops-fig3", "from about 800 to 5 million", "15 to 74 times", "2.1 and 2.6 times")
    of = errors("tops-fig3")
    ratios = [of[stream, e, "PAK"] / error for (stream, e, method), error in of.items() if method == "ToPS"]
    assert (min(ratios), max(ratios)) == (pytest.approx(800, rel=0.01), pytest.approx(5e6, rel=0.1))
    paper = {
        key[:2]: of[key[0], key[1], "ToPS, paper's c = 60"] / error for key, error in of.items() if key[2] == "ToPS"
    }
    edrp = [ratio for (stream, _), ratio in paper.items() if stream == "EDRP"]
    assert (round(min(edrp)), round(max(edrp))) == (15, 74)
    pos = [paper[key] for key in sorted(key for key in paper if key[0] == "POS")]
    assert max(pos[:2]) < 1
    assert [round(ratio, 1) for ratio in pos[2:]] == [2.1, 2.6]


def test_figure_4() -> None:
    says("tops-fig4", "at most 3 % larger", "smaller errors than `recent` on every stream")
    of = errors("tops-fig4")
    for stream, e, method in of:
        if method == "recent":
            smoothed = {key[2]: error for key, error in of.items() if key[:2] == (stream, e) and key[2] != "Base"}
            assert max(smoothed["mean"], smoothed["median"]) < smoothed["recent"]
            assert smoothed["auto"] < 1.03 * min(smoothed.values())


def test_figure_7() -> None:
    says("tops-fig7", "a factor of at most 3.1", "below those of Base on four streams, and above them on Kosarak")
    of = errors("tops-fig7", "ε of the threshold")
    streams = dict.fromkeys(key[0] for key in of)
    spreads, above = {}, set()
    for stream in streams:
        nm = [error for key, error in of.items() if key[0] == stream and key[2] == "NM-E"]
        spreads[stream] = max(nm) / min(nm)
        for (name, e, method), error in of.items():
            if name == stream and method in ("S-PAK", "S-P"):
                assert of[stream, e, "NM-E"] < error
                if error > of[stream, e, "Base"]:
                    above.add(stream)
    assert round(max(spreads.values()), 1) == 3.1
    assert above == {"Kosarak (stand-in)"}


def test_the_sanitizers_confidence() -> None:
    says("counting-sanitizer", "After one block the share is 15 %, although 9 % are expected", "nine of sixty")
    first, *later = rows("counting-sanitizer")
    assert first["share of streams off by more than α"] == pytest.approx(0.15)
    assert round(100 * first["kβ"]) == 9
    assert round(60 * first["share of streams off by more than α"]) == 9
    for row in later:
        assert row["share of streams off by more than α"] < row["kβ"]
        assert row["90 % error"] < row["α + 2β"]


def test_cgm_on_edrp() -> None:
    says("cgm-edrp", "an eighth of the variance", "half of the variance", "a bias of 45 Wh")
    of = {(row["C"], row["method"]): row for row in rows("cgm-edrp")}
    assert round(float(of["0.05", "closed-form"]["clipping bias"])) == 45
    time = [row for row in rows("cgm-time-edrp") if row["ε"] == 0.25]
    noise = {row["method"]: row["median report"] for row in time}
    assert noise["ships"] / noise["Algorithm 1"] == pytest.approx(1 / 8, rel=0.1)
    variance = next(row for row in rows("cgm-variance") if row["C"] == 0.05 and row["l"] == 48)
    assert variance["closed form: what ships"] == pytest.approx(0.5, abs=0.05)
