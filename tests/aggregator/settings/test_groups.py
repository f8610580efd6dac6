"""The file of groups, and which of its changes a running campaign takes up."""

import io
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import pytest

from support import server
from support.memory_store import MemoryStore
from undertone_aggregator.base.log import Journal
from undertone_aggregator.campaign import runner
from undertone_aggregator.campaign.runner import Running, RunOptions
from undertone_aggregator.mqtt.source import Source
from undertone_aggregator.settings.groups import change_group, read_groups, remove_device
from undertone_shared.errors import Invalid


def test_a_changed_file_is_taken_up_while_the_campaign_runs(tmp_path: Path) -> None:
    file, store, said = tmp_path / "groups.csv", MemoryStore(), io.StringIO()
    config = server.config(tmp_path, groups='"groups.csv"')
    with pytest.raises(Invalid, match=r"campaign\.groups"):
        Running(config, cast("Source", None), Journal(said), RunOptions())
    file.write_text("device,group\nm-1,north\n", encoding="utf-8")
    running = Running(config, cast("Source", None), Journal(said), RunOptions())
    running.note_groups(store)
    assert store.groups() == {"m-1": "north"}
    file.write_text("device,group\nm-1,north\nm-2,south\n", encoding="utf-8")
    running.note_groups(store)
    assert store.groups() == {"m-1": "north", "m-2": "south"}
    # The server says once that it cannot use the file, and changes nothing.
    file.write_text("device,group\nm-1,all\n", encoding="utf-8")
    for _ in range(2):
        running.note_groups(store)
    assert said.getvalue().count("reserved") == 1
    assert store.groups() == {"m-1": "north", "m-2": "south"}


def test_a_file_that_could_not_be_read_is_read_when_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, store, said = tmp_path / "groups.csv", MemoryStore(), io.StringIO()
    file.write_text("device,group\nm-1,north\n", encoding="utf-8")
    running = Running(server.config(tmp_path, groups='"groups.csv"'), cast("Source", None), Journal(said), RunOptions())
    file.write_text("device,group\nm-1,south-east\n", encoding="utf-8")
    with monkeypatch.context() as broken:
        broken.setattr(runner, "read_groups", Mock(side_effect=PermissionError(13, "Permission denied")))
        running.note_groups(store)
    assert said.getvalue().count("Permission denied") == 1
    assert store.groups() == {"m-1": "north"}
    running.note_groups(store)
    assert store.groups() == {"m-1": "south-east"}


def test_a_spreadsheet_may_save_the_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "groups.csv"
    file.write_text("device,group\nm-1,north\n", encoding="utf-8-sig")
    assert read_groups(file) == {"m-1": "north"}


def test_a_device_in_two_groups_is_not_named(tmp_path: Path) -> None:
    """The sentence becomes an alarm, which the public page shows."""
    file = tmp_path / "groups.csv"
    file.write_text("device,group\nm-1,north\nm-1,south\n", encoding="utf-8")
    with pytest.raises(Invalid, match=r"line 3 of .* puts a device into the group 'south'") as refused:
        read_groups(file)
    assert "m-1" not in str(refused.value).replace(str(tmp_path), "")


def test_a_device_may_have_the_name_of_the_header(tmp_path: Path) -> None:
    path = tmp_path / "groups.csv"
    path.write_text("device,group\ndevice,north\nd1,south\n", encoding="utf-8")
    change_group(path, "west", "device")
    assert read_groups(path) == {"d1": "south", "device": "west"}
    remove_device(path, "device")
    assert read_groups(path) == {"d1": "south"}
