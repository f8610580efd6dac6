"""The analyst's API: each name that `undertone` exports is documented, and the examples of docs/api.md run."""

import doctest
import subprocess
import sys

import pytest

import undertone
from support.micropython import REPO

API = REPO / "docs" / "api.md"


@pytest.mark.parametrize("name", undertone.__all__)
def test_every_export_is_there_and_documented(name):
    assert getattr(undertone, name) is not None
    assert name in dir(undertone)
    if name != "__version__":
        assert (getattr(undertone, name).__doc__ or "").strip()
        assert f"`{name}" in API.read_text(encoding="utf-8"), f"docs/api.md does not mention {name}"


@pytest.mark.slow
def test_each_result_shows_itself_in_a_few_words_and_as_a_table(tmp_path):
    simulated = undertone.simulate(devices=300, slots=2, rounds=(0.25, 0.25, 0.25), epsilon=4, seed=1)
    simulated.save(tmp_path / "meters.sqlite")
    with undertone.open_store(tmp_path / "meters.sqlite") as stored:
        results = [
            simulated,
            stored,
            *undertone.certify("hybrid", epsilon=1),
            undertone.plan(devices=500, epsilon=1),
            undertone.plan(devices=500, epsilon=1, window="24h"),
        ]
        for result in results:
            assert len(repr(result)) < 400, type(result)
            assert all(value in repr(result) for value in result.facts().values())
            assert result._repr_html_().count("<tr>") == len(result.facts())


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        __import__("undertone").nothing  # noqa: B018


def test_importing_it_loads_nothing():
    program = "import sys, undertone; print([m for m in sys.modules if m.partition('.')[0] in ('numpy', 'typer')])"
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True, timeout=240
    )
    assert shown.stdout.strip() == "[]"


def test_the_examples_of_the_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = doctest.testfile(
        str(API), module_relative=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, encoding="utf-8"
    )
    assert result.attempted >= 10
    assert result.failed == 0
