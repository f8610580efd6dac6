"""Several campaigns in one PostgreSQL database: the page, the commands and the API name the one that they read."""

import json
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from support import landed
from support.postgres import Postgres
from undertone.app import app
from undertone_aggregator.campaign.results import open_results
from undertone_aggregator.counts.partial import Key, Partial
from undertone_aggregator.server.folder import Home
from undertone_aggregator.settings.config import parse_config
from undertone_aggregator.store.store import SETTLED, Batch, StoreError, campaigns_in, open_store
from undertone_aggregator.store.store_address import store_address
from undertone_aggregator.web.site import HomeSite, StoreSite, named
from undertone_shared.errors import Invalid

SIZES = {"meters": 40, "water": 60}
PLAN = '[campaign]\nname = "{}"\nsensor = "load"\nunit = "Wh"\nbound = 10\nepsilon = 1\n'


@pytest.fixture
def url(postgres: Postgres, tmp_path: Path) -> str:
    """A database of two campaigns, with a different number of reports in each."""
    made = postgres.new_database()
    for name, devices in SIZES.items():
        with open_store(made, campaign=name) as store:
            landed.bind(store, name=name)
            landed.land_slot(tmp_path / name, store, landed.EPOCHS[1], landed.START, devices)
    return made


def reports(output: str) -> int:
    return sum(row["reports"] + row["cohort"] for row in json.loads(output)["slots"])


@pytest.mark.services
def test_the_page_shows_every_campaign_of_a_database(url: str, tmp_path: Path) -> None:
    assert campaigns_in(url) == sorted(SIZES)
    site = StoreSite(named([url]))
    assert site.names() == sorted(SIZES)
    for name, devices in SIZES.items():
        assert site.read(name, lambda results: results.outcomes()["counted"]) == devices
    site.close()

    (tmp_path / "server.toml").write_text(f'[store]\npath = "{url}"\n', encoding="utf-8")
    (tmp_path / "campaigns").mkdir()
    for name in SIZES:
        (tmp_path / "campaigns" / f"{name}.toml").write_text(PLAN.format(name), encoding="utf-8")
    home = HomeSite(Home(tmp_path))
    assert home.names() == sorted(SIZES)
    for name, devices in SIZES.items():
        assert home.read(name, lambda results: results.outcomes()["counted"]) == devices
    home.close()


@pytest.mark.services
def test_results_query_and_export_name_the_campaign(url: str, tmp_path: Path) -> None:
    for name, devices in SIZES.items():
        with open_results(url, name) as results:
            assert results.outcomes()["counted"] == devices
        said = CliRunner().invoke(app, ["query", url, "--campaign", name, "--json"])
        assert said.exit_code == 0, said.output
        assert reports(said.stdout) == devices
        folder = tmp_path / f"out-{name}"
        done = CliRunner().invoke(app, ["export", url, str(folder), "--campaign", name, "--json"])
        assert done.exit_code == 0, done.output
        assert (folder / "campaign.json").is_file()
    with pytest.raises(Invalid, match="holds the campaigns meters, water"):
        open_results(url)


@pytest.mark.services
def test_verify_reads_a_database(url: str, tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text("", encoding="utf-8")
    refused = CliRunner().invoke(
        app, ["verify", "--ledger", str(tmp_path / "ledger"), "--store", url, "--campaign", "meters"]
    )
    assert isinstance(refused.exception, Invalid)
    # The command opened the database and found the campaign. The store has no audit of the reports.
    assert "has no audit of its reports" in str(refused.exception)


def test_an_address_knows_whether_machines_share_it() -> None:
    assert store_address("postgresql://u:p@h/d").shared
    assert store_address("postgresql:///d").file is None
    assert not store_address("sqlite:s.sqlite").shared
    assert store_address(Path("a:b")).file == Path("a:b")
    assert str(store_address("s.sqlite").within(Path("/srv"))) == "sqlite:/srv/s.sqlite"
    with pytest.raises(Invalid, match="the store's scheme is 'oracle', expected sqlite, postgresql"):
        store_address("oracle:somewhere")


def test_a_configuration_takes_every_form_of_an_address(tmp_path: Path) -> None:
    def config(path: str):
        return parse_config(
            f'[broker]\nmode = "external"\npassword_file = "p"\n[store]\npath = "{path}"\n' + PLAN.format("meters"),
            tmp_path,
        )

    for path in ("s.sqlite", "sqlite:s.sqlite"):
        assert config(path).store_url == f"sqlite:{tmp_path / 's.sqlite'}"
        assert not config(path).shares
    for path in ("postgresql://u@h/d", "postgresql:///d"):
        assert config(path).store_url == path
        assert config(path).shares


@pytest.mark.services
def test_no_sentence_shows_the_password_of_a_database(postgres: Postgres) -> None:
    made = postgres.new_database()
    user, at, rest = made.partition("@")
    url = f"{user}:hunter2{at}{rest}"
    open_store(url, campaign="meters").close()
    with pytest.raises(Invalid, match="has no epoch yet") as raised:
        open_results(url, "meters")
    assert "hunter2" not in str(raised.value)


@pytest.mark.services
def test_the_first_slot_settles_after_the_commits_that_have_begun(url: str) -> None:
    """Before the first slot settles, no row names a settled slot.

    A commit then locks the campaign's row, so that no report becomes late without being noticed.
    """
    batch = Batch(Partial({Key("meters", bytes(8), 1, "all", landed.START): np.ones(3, dtype=np.int64)}))
    with open_store(url, campaign="meters") as worker, open_store(url, campaign="meters") as server:
        assert SETTLED not in server.meta()
        before = server.partial().reports
        server.execute(text("SET lock_timeout = 300"))
        with worker.transaction():
            worker.commit("0of1", batch)
            with pytest.raises(StoreError, match="lock timeout"):
                server.set_meta({SETTLED: str(landed.START)})
        server.set_meta({SETTLED: str(landed.START)})
        assert server.partial(late=False).reports == before + 3
        worker.commit("0of1", batch)
        assert (server.partial(late=False).reports, server.late_reports()) == (before + 3, 3)
