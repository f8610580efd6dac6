"""Groups of devices. The server sorts reports into groups; no message to or from a device contains a group."""

import csv
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from undertone_aggregator.base.files import read_utf8, write_private
from undertone_aggregator.base.plural import many
from undertone_aggregator.counts.partial import EVERYBODY
from undertone_aggregator.store.store import GROUPED, Store
from undertone_shared.errors import Invalid
from undertone_shared.topics import check_name

_LARGEST_GROUPS = 1 << 28
_HEADER = ["device", "group"]
# Names that no group may have, because they have another meaning in topics and options.
_RESERVED = (EVERYBODY, "status")


def read_groups(path: Path) -> dict[str, str]:
    """Return a map: device -> group from a CSV file with the columns device,group. Raises Invalid."""
    if not path.exists():
        raise Invalid(f"campaign.groups is {str(path)!r}, expected a file: make it with the line {','.join(_HEADER)}")
    if path.stat().st_size > _LARGEST_GROUPS:
        raise Invalid(f"{path} is too large, expected at most {_LARGEST_GROUPS} bytes")
    groups: dict[str, str] = {}
    # A spreadsheet may begin its file with a byte order mark.
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        rows = csv.reader(file)
        if next(rows, None) != _HEADER:
            raise Invalid(f"{path} does not start with the line device,group")
        for row in rows:
            where = f"line {rows.line_num} of {path}"
            if len(row) != 2:
                raise Invalid(f"{where} has {many(len(row), 'field')}, expected device,group")
            device, group = check_name(f"device in {where}", row[0]), check_name(f"group in {where}", row[1])
            if group in _RESERVED:
                raise Invalid(f"{where} has the group {group!r}, which is reserved, expected another name")
            if groups.setdefault(device, group) != group:
                # The sentence does not name the device, because an alarm on the public page can show it.
                raise Invalid(
                    f"{where} puts a device into the group {group!r}, but an earlier line put it into another"
                )
    return groups


def make_groups(path: Path) -> None:
    """Write a file of groups that lists no device, unless there is a file already."""
    if not path.exists():
        write_private(path, ",".join(_HEADER) + "\n")


def append_groups(path: Path, group: str, devices: Iterable[str]) -> None:
    """Add devices of one group to the CSV file that `read_groups` reads. Create the file if it is missing.

    Devices of the group ``all`` need no line. If this raises Invalid, nothing is changed.
    """
    check_name("group", group)
    if group == EVERYBODY:
        return
    if group in _RESERVED:
        raise Invalid(f"group is {group!r}, which is reserved, expected another name")
    if path.exists():
        read_groups(path)
    text = read_utf8(path) if path.exists() else ",".join(_HEADER) + "\n"
    # An editor may have saved the file without a newline at its end.
    end = "" if text.endswith("\n") else "\n"
    write_private(path, text + end + "".join(f"{device},{group}\n" for device in devices))


def change_group(path: Path, group: str, device: str) -> None:
    """Give a device another group in the CSV file that `read_groups` reads. If this raises Invalid, nothing is
    changed.
    """
    append_groups(path, group, [])
    lines = read_utf8(path).splitlines() if path.exists() else [",".join(_HEADER)]
    lines = _without(lines, device)
    lines += [] if group == EVERYBODY else [f"{device},{group}"]
    write_private(path, "\n".join(lines) + "\n")


def remove_device(path: Path, device: str) -> None:
    """Remove the lines of a device from the CSV file that `read_groups` reads, if it has any.

    A file that the server would refuse is changed, too: an error in another line must not keep the device's name.
    """
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    if (kept := _without(lines, device)) != lines:
        write_private(path, "\n".join(kept) + "\n")


def _without(lines: list[str], device: str) -> list[str]:
    """Return the header and the lines of other devices."""
    return lines[:1] + [line for line in lines[1:] if next(csv.reader([line]), [])[:1] != [device]]


def keep_groups(store: Store, groups: Mapping[str, str]) -> bool:
    """Write device -> group to a store, where workers read it; return whether anything has changed."""
    edition = hashlib.sha256(json.dumps(sorted(groups.items())).encode()).hexdigest()
    if store.meta(GROUPED).get(GROUPED) == edition:
        return False
    with store.transaction():
        store.set_groups(groups)
        store.set_meta({GROUPED: edition})
    return True
