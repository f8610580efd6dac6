"""The contract of a report source, tested with a source that the product does not have: a folder of files."""

import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.micropython import REPO
from support.report_folder import FolderIntake
from support.server import FIRST, PREFIX, config, delivery
from support.serving import serve
from support.waiting import wait_for
from undertone_aggregator.base.log import Journal
from undertone_aggregator.mqtt.source import Outgoing, Source, open_source
from undertone_aggregator.settings.config import Config
from undertone_aggregator.settings.report_sources import SOURCES, SourceKind
from undertone_aggregator.store.store import open_store
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid
from undertone_shared.topics import config_topic

EXAMPLE = REPO / "tests/support/report_folder.py"
DEVICES = [f"d{number}" for number in range(12)]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    kind = SourceKind("support.report_folder", "report_folder", "files in `directory`", broker=False)
    monkeypatch.setitem(SOURCES, "folder", kind)
    return config(tmp_path, f'[broker]\nmode = "folder"\nprefix = "{PREFIX}"\ndirectory = "spool"\n')


@pytest.fixture
def running(settings: Config) -> Iterator[list[float]]:
    """A server of the campaign meters in a thread, with a clock that the test moves."""
    now, stop, log = [float(FIRST)], threading.Event(), io.StringIO()
    thread = threading.Thread(target=serve, args=(settings, stop, Journal(log)), kwargs={"clock": lambda: now[0]})
    thread.start()
    yield now
    stop.set()
    thread.join()


def counted(settings: Config) -> dict[str, int]:
    with open_store(settings.store_url, read_only=True) as store:
        return dict(store.outcomes())


def send(folder: Path, campaign: Campaign, slot: int) -> None:
    for device in DEVICES:
        topic, payload = delivery(campaign, device, slot)
        (folder / f"{device}.new").write_bytes(topic.encode() + b"\n" + payload)
        (folder / f"{device}.new").rename(folder / f"{device}.report")


def test_a_source_is_a_class_and_a_line(settings: Config, running: list[float], tmp_path: Path) -> None:
    """A whole server runs with a folder of files as its source.

    A campaign goes out; reports come in, are stored and acknowledged; repeated reports are recognised.
    """
    spool = tmp_path / "spool"
    # An epoch is in the store before it is broadcast.
    wait_for((spool / config_topic(PREFIX, "meters").replace("/", "+")).exists)
    with open_store(settings.store_url, read_only=True) as store:
        campaign = store.epochs()[0].campaign
    running[0] = campaign.slot_seconds * (campaign.first_slot + 1) + 0.5
    send(spool / "meters", campaign, campaign.first_slot)
    wait_for(lambda: counted(settings).get("counted") == len(DEVICES))
    wait_for(lambda: not list((spool / "meters").iterdir()))
    send(spool / "meters", campaign, campaign.first_slot)
    wait_for(lambda: counted(settings).get("duplicate") == len(DEVICES))
    assert counted(settings)["counted"] == len(DEVICES)


def test_it_has_every_member_that_the_protocols_name(settings: Config) -> None:
    with open_source(settings, Journal(io.StringIO())) as source:
        members = {Source: source, Outgoing: source.outlet(PREFIX, print)}
        for protocol, made in members.items():
            assert [name for name in vars(protocol) if not name.startswith("_") and not hasattr(made, name)] == []


def test_what_is_not_acknowledged_comes_again(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.report").write_bytes(b"topic\npayload \n of two lines")
    intake = FolderIntake(tmp_path, 10)
    taken = intake.take(0)
    assert [(delivery.topic, delivery.payload) for delivery in taken] == [("topic", b"payload \n of two lines")] * 2
    assert intake.take(0) == []
    intake.acknowledge(taken[:1])
    intake.close()
    assert [delivery.receipt for delivery in FolderIntake(tmp_path, 10).take(0)] == [tmp_path / "b.report"]


def test_an_unknown_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"broker\.mode"):
        config(tmp_path, '[broker]\nmode = "folder"\n')


def test_a_source_without_a_broker_has_one_worker(settings: Config, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"server\.workers is 2, expected 1 if broker\.mode is 'folder'"):
        config(tmp_path, '[broker]\nmode = "folder"\n[server]\nworkers = 2\n')


def test_the_guide_names_the_source_that_is_tried_here() -> None:
    guide = (REPO / "docs/extending.md").read_text(encoding="utf-8")
    assert f"(../tests/support/{EXAMPLE.name})" in guide
    assert '"report_folder", "files in `directory`", broker=False' in guide
