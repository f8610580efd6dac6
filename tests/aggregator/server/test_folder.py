"""The folder of a server: where it keeps the counts of each campaign."""

from pathlib import Path

import pytest

from undertone_aggregator.campaign.binding import RETIRED
from undertone_aggregator.server.folder import CAMPAIGNS, SERVER, Home
from undertone_aggregator.server.lifecycle import _not_begun, delete
from undertone_aggregator.store import store_address
from undertone_aggregator.store.store_address import StoreKind
from undertone_shared.errors import Invalid

PLAN = '[campaign]\nname = "load"\nsensor = "energy"\nunit = "Wh"\nbound = 5000\nepsilon = 1\nreport_slots = 8\n'


@pytest.mark.parametrize(
    ("told", "store"),
    [
        ("", "sqlite:stores/load.sqlite"),
        ('[store]\npath = "counts"\n', "sqlite:counts/load.sqlite"),
        ('[store]\npath = "scratch:counts"\n', "scratch:counts/load.scratch"),
    ],
)
def test_the_file_of_a_campaign_is_named_after_the_kind_of_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, store: str
) -> None:
    kind = StoreKind("undertone_aggregator.store.sqlite_store", "SqliteStore", False, "scratch:FILE")
    monkeypatch.setitem(store_address.KINDS, "scratch", kind)
    (tmp_path / SERVER).write_text(told, encoding="utf-8")
    (tmp_path / CAMPAIGNS).mkdir()
    (tmp_path / CAMPAIGNS / "load.toml").write_text(PLAN, encoding="utf-8")
    home = Home(tmp_path)
    scheme, _, file = store.partition(":")
    assert str(home.config("load").store.path).removeprefix(f"{scheme}:").endswith(file)
    (tmp_path / file).touch()
    assert home.stores() == {"load": f"{scheme}:{tmp_path / file}"}


def test_a_campaign_in_a_database_that_has_not_begun_is_removed_with_its_plan(tmp_path: Path) -> None:
    (tmp_path / SERVER).write_text('[store]\npath = "postgresql://u@localhost/d"\n', encoding="utf-8")
    (tmp_path / CAMPAIGNS).mkdir()
    plan = tmp_path / CAMPAIGNS / "load.toml"
    plan.write_text(PLAN, encoding="utf-8")
    home = Home(tmp_path)
    assert _not_begun(home, home.config("load"), RETIRED).endswith(f"; deleting {plan} removes it")
    with pytest.raises(Invalid, match=r"retire it, or if it has not begun, delete .*load\.toml"):
        delete(home, "load")


def test_a_plan_without_its_name_is_told_so(tmp_path: Path) -> None:
    (tmp_path / SERVER).write_text("", encoding="utf-8")
    (tmp_path / CAMPAIGNS).mkdir()
    (tmp_path / CAMPAIGNS / "load.toml").write_text(PLAN.replace('name = "load"\n', ""), encoding="utf-8")
    with pytest.raises(Invalid, match=r"campaign\.name is missing in .*load\.toml, expected 'load', the file's name"):
        Home(tmp_path).config("load")
