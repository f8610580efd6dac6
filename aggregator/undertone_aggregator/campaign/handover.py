"""A campaign's signed hand-over: a command writes it to a file, and the running server sends it with the campaign.

The file is ``handovers/NAME`` in the server's folder: the hand-over as JSON, and in the next line its signature in
hexadecimal. The format is `undertone_shared.handover`.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from undertone_aggregator.base.files import read_utf8, write_private
from undertone_aggregator.base.owner import give_to_owner
from undertone_shared import handover
from undertone_shared.errors import Invalid
from undertone_shared.off_board.issue import pack_handover

FOLDER = "handovers"


def read_handover(folder: Path, campaign: str) -> dict[str, Any]:
    """Return the fields of a campaign's hand-over. Without one, ``all`` and ``devices`` are empty, ``number`` is 0.

    Raises Invalid for a damaged file, and OSError.
    """
    signed = signed_handover(folder, campaign)
    if not signed:
        return {"all": {}, "campaign": campaign, "devices": {}, "number": 0}
    return handover.parse(handover.split(signed)[0])


def write_handover(folder: Path, fields: dict[str, Any], now: int, sign: Callable[[bytes], bytes]) -> None:
    """Sign a hand-over with the next number, which is at least Unix second ``now``, and write it. Raises OSError."""
    path = folder / FOLDER / fields["campaign"]
    if not path.parent.is_dir():
        path.parent.mkdir(mode=0o700)
        give_to_owner(path.parent, folder)
    body, signature = handover.split(pack_handover({**fields, "number": max(fields["number"] + 1, now)}, sign))
    write_private(path, f"{body.decode()}\n{signature.hex()}\n")


def signed_handover(folder: Path, campaign: str) -> bytes:
    """Return the last part of the campaign's message: the hand-over and its signature, or empty without a hand-over.

    Raises Invalid for a damaged file, and OSError.
    """
    path = folder / FOLDER / campaign
    if not path.is_file():
        return b""
    body, _, signature = read_utf8(path).strip().partition("\n")
    try:
        signed = bytes.fromhex(signature)
    except ValueError:
        signed = b""
    if len(signed) != handover.SIGNATURE_BYTES:
        raise Invalid(f"the second line of {path} is not a signature: restore the file from a backup")
    return body.encode() + signed


def leaving(folder: Path, devices: Iterable[str]) -> dict[str, list[str]]:
    """Return a map: device -> campaigns that it leaves, to which it may still send reports. Raises Invalid, OSError."""
    found: dict[str, list[str]] = {}
    for path in sorted((folder / FOLDER).glob("[!.]*")):
        entries = read_handover(folder, path.name)["devices"]
        for device in devices if entries else ():
            if "campaigns" in entries.get(handover.device_key(path.name, device), {}):
                found.setdefault(device, []).append(path.name)
    return found


class HandoverFile:
    """The file that holds a campaign's signed hand-over. ``signed``: its content when `changed` last read it."""

    def __init__(self, folder: Path, campaign: str) -> None:
        self._folder, self._campaign = folder, campaign
        self._path = folder / FOLDER / campaign
        self._read: int | None = None
        self.signed = b""

    def changed(self) -> bool:
        """Read the file if it has changed since the last call; return whether it has. Raises Invalid, OSError."""
        found = self._path.stat().st_mtime_ns if self._path.is_file() else None
        if found == self._read:
            return False
        self._read = found
        self.signed = signed_handover(self._folder, self._campaign)
        return True
