"""Groups of devices: they live at the server, never on the wire."""

import csv
from pathlib import Path

from undertone_shared.errors import Invalid
from undertone_shared.topics import check_name

_LARGEST_GROUPS = 1 << 28


def read_groups(path: Path) -> dict[str, str]:
    """device -> group from a CSV file with the columns device,group. Raises Invalid naming the line."""
    if path.stat().st_size > _LARGEST_GROUPS:
        raise Invalid(f"{path} is larger than {_LARGEST_GROUPS} bytes")
    groups: dict[str, str] = {}
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = csv.reader(file)
        if next(rows, None) != ["device", "group"]:
            raise Invalid(f"{path} does not start with the line device,group")
        for row in rows:
            where = f"line {rows.line_num} of {path}"
            if len(row) != 2:
                raise Invalid(f"{where} has {len(row)} fields, expected device,group")
            device, group = check_name(f"device in {where}", row[0]), check_name(f"group in {where}", row[1])
            if group in ("all", "status") or groups.setdefault(device, group) != group:
                raise Invalid(f"{where}: group {group!r} of {device} is reserved, or its second")
    return groups
