"""The commands `undertone recount` and `undertone spark run`: what they print, their exit codes, and bad input."""

import json
from collections import Counter

import pytest

from support import landed
from undertone.__main__ import main
from undertone_aggregator.server.folder import Home
from undertone_aggregator.store.store import Batch, open_store


@pytest.fixture
def folder(tmp_path):
    """A folder with landed reports and the store of the server that counted them."""
    with open_store(tmp_path / "store", campaign="meters") as store:
        landed.bind(store)
        landed.land_slot(tmp_path / "landing", store, landed.EPOCHS[1], landed.START, 50)
        landed.land_slot(tmp_path / "landing", store, landed.EPOCHS[1], landed.START + 1, 50)
    return tmp_path


@pytest.fixture
def call(folder, monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr("sys.argv", ["undertone", *map(str, words)])
        code = main()
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_a_store_that_agrees(folder, call):
    code, out, _ = call("recount", folder / "landing", "--store", folder / "store")
    assert code == 0
    assert out.splitlines()[0] == "the files hold 100 reports in 4 histograms; 0 histograms differ from the store"
    assert "  counted: 100 in the files, 100 in the store" in out.splitlines()
    code, out, _ = call(
        "recount", folder / "landing", "--store", folder / "store", "--first", landed.START + 1, "--json"
    )
    assert (code, json.loads(out)["reports"], json.loads(out)["differing"]) == (0, 50, [])


def test_a_store_that_does_not(folder, call):
    with open_store(folder / "store", campaign="meters") as store:
        key, counts = next(iter(store.partial(landed.START + 1).items()))
        batch = Batch(outcomes=Counter(counted=1))
        batch.partial.add(key, 0, len(counts))
        store.commit("liar", batch)
    code, out, _ = call("recount", folder / "landing", "--store", folder / "store")
    assert code == 1
    assert "1 histogram differs" in out
    assert f"  slot {landed.START + 1}, group all: " in out
    code, _, _ = call("recount", folder / "landing", "--store", folder / "store", "--last", landed.START)
    assert code == 0


def test_a_folder_without_files_is_one_sentence(folder, call):
    code, _, err = call("recount", folder / "nowhere", "--store", folder / "store")
    assert (code, err) == (2, f"error: {folder / 'nowhere'} holds no landed file\n")


def test_spark_counts_only_what_the_configuration_leaves_to_it(folder, call):
    lines = '[campaign]\nname = "meters"\nsensor = "load"\nunit = "Wh"\nbound = 10\nepsilon = 1\n'
    (folder / "server.toml").write_text("", encoding="utf-8")
    Home(folder).write_plan("meters", lines + '[landing]\nfolder = "landing"\n')
    code, _, err = call("spark", "run", "--home", folder, "--checkpoint", folder / "check")
    assert (code, err) == (2, "error: landing.counts is 'server', expected 'spark', with landing.folder\n")
