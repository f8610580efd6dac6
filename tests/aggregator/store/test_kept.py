"""If a server keeps single reports with their devices' names, `Results` and doctor say so."""

from pathlib import Path

import pytest

from support import landed
from support.server import config
from undertone_aggregator.campaign.results import open_results
from undertone_aggregator.store.kept import kept_by_name, note_kept, noted_as_kept
from undertone_aggregator.store.store import Batch, open_store
from undertone_operate.examine.doctor import examine

LANDING = '[landing]\nfolder = "landing"\ndays = 3\n'
AUDIT = "[store]\naudit = true\n"


@pytest.mark.parametrize(
    ("text", "words"), [("", []), (AUDIT, ["audit"]), (LANDING, ["3 days"]), (AUDIT + LANDING, ["audit", "3 days"])]
)
def test_what_is_kept_is_said_by_the_store_and_its_readers(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "s.sqlite"
    with open_store(path, campaign="meters") as store:
        landed.bind(store)
        told = config(tmp_path, text)
        note_kept(store, told.store.audit, told.landing.kept_days)
    with open_results(path) as results:
        said = results.kept_by_name
    assert len(said) == len(words)
    for sentence, word in zip(said, words, strict=True):
        assert word in sentence


def test_an_audit_that_was_turned_off_is_still_there(tmp_path: Path) -> None:
    with open_store(tmp_path / "s.sqlite", campaign="meters") as store:
        store.commit("0of1", Batch(audit=[("d1", bytes(8), "counted")]))
        plain = config(tmp_path)
        assert kept_by_name(plain.store.audit, plain.landing.kept_days) == []
        note_kept(store, plain.store.audit, plain.landing.kept_days)
        assert len(noted_as_kept(store.meta())) == 1


def test_the_doctor_warns_of_it(tmp_path: Path) -> None:
    plan = '[campaign]\nname = "power"\nsensor = "load"\nunit = "Wh"\nbound = 10\nepsilon = 1\n'
    (tmp_path / "campaigns").mkdir()
    (tmp_path / "campaigns" / "power.toml").write_text(plan, encoding="utf-8")
    for text, warned in (("", 0), ("[store]\naudit = true\n", 1)):
        (tmp_path / "server.toml").write_text('[broker]\nmode = "direct"\n' + text, encoding="utf-8")
        findings = [finding for finding in examine(tmp_path) if finding.check == "privacy of power"]
        assert [finding.result for finding in findings] == ["warning"] * warned
