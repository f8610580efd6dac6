"""The experiment on streams: its tables and figures, on a stand-in and, where they exist, on the real data."""

import numpy as np
import pytest

from undertone_aggregator.design.stream.methods import select
from undertone_shared.errors import Invalid
from undertone_studies import cgm
from undertone_studies.cgm_populations import CgmStreams, edrp, kaggle_like, london, taxi_like
from undertone_studies.registry import EXPERIMENTS, StudyOptions


def small():
    rng = np.random.default_rng(1)
    readings = np.clip(0.3 + 0.2 * np.sin(np.arange(24) / 4) + 0.1 * rng.standard_normal((40, 24)), 0, 1)
    return CgmStreams("small", "a stand-in", (readings,), 100.0, "Wh", ("0.02", "0.05", "0.1"))


def test_errors_fall_with_the_fleet_to_the_clipping_bias():
    streams = small()
    errors = {m.name: cgm.error_of(streams, m) for m in cgm.methods_for(streams, "0.05", 1.0)}
    assert errors["direct"].raw(10) == pytest.approx(errors["direct"].raw(1000) * 10)
    clipped = errors["closed-form"]
    assert clipped.raw(10**15) == pytest.approx(np.sqrt(np.mean(clipped.bias**2)), rel=1e-3)
    assert clipped.raw(40) < errors["paper"].raw(40) < errors["direct"].raw(40)
    # The method `sampled` has an error for each slot, also for those without a report.
    assert errors["sampled"].noise.shape == (24,)


def test_the_table_the_notes_and_the_panels(monkeypatch):
    monkeypatch.setattr(cgm, "SHOWN", (1.0,))
    monkeypatch.setattr(cgm, "EPSILONS", (1.0, 2.0))
    outcome = cgm.compare(small(), StudyOptions())
    text = outcome.markdown()
    for words in ("closed-form", "the noise is that of n devices", "user level", "| one-bit |", "useless"):
        assert words in text
    assert [len(panel.curves) for panel in outcome.panels] == [5, 5, 5, 5]
    assert outcome.document()["rows"][0]["clipping bias"] == "0"


def test_a_quick_comparison_has_one_epsilon_and_one_slew_of_a_short_stream(monkeypatch):
    monkeypatch.setattr(cgm, "_QUICK", 6)
    outcome = cgm.compare(small(), StudyOptions(quick=True))
    assert outcome.columns[3:] == ["ε = 1, n = 40", "ε = 1, n = 100,000", "ε = 1, n = 1,000,000"]
    assert {row[0] for row in outcome.rows} == {"0.05"}
    assert "for all 6 reports" in outcome.notes[-1]
    assert [len(panel.curves) for panel in outcome.panels] == [5, 5, 5, 5]


def test_real_experiments_ask_for_their_data(tmp_path):
    for options in (StudyOptions(), StudyOptions(tmp_path)):
        with pytest.raises(Invalid, match="needs"):
            EXPERIMENTS.run("cgm-edrp", options)


def test_stand_ins_say_that_they_are_and_stay_in_their_range():
    for streams in (kaggle_like(), taxi_like()):
        assert "stand-in" in streams.label
        assert streams.windows[0].min() >= 0
        assert streams.windows[0].max() <= 1
    assert kaggle_like().per_report
    assert "The guarantee for the stream is much weaker" in cgm.budget(kaggle_like())


@pytest.mark.data
def test_the_real_populations(undertone_data):
    households = edrp(undertone_data)
    assert (households.devices, households.slots) == (622, 48)
    daily = london(undertone_data)
    assert daily.slots == 484
    assert daily.devices > 50
    methods = cgm.methods_for(households, "0.05", 1.0)
    direct, ships = (cgm.error_of(households, select(methods, name)) for name in ("direct", "closed-form"))
    # Readings are at most 2,000 Wh. At ε = 1, the error of this fleet is over 400 Wh.
    assert ships.raw(622) * 2000 > 400
    assert ships.raw(100_000) < direct.raw(100_000) / 2
