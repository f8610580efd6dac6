"""Installs a device as a service of this machine: ``undertone device install --systemd``."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from undertone_device.tools.shipped import shipped
from undertone_shared.errors import Invalid

UNITS = Path("/etc/systemd/system")
NAME = "undertone-device.service"


def unit(config: Path, python: str = sys.executable) -> str:
    """Return the text of the systemd unit that runs ``config`` with the interpreter ``python``."""
    text = shipped(NAME).read_text(encoding="utf-8")
    start = f"ExecStart={_quoted(python)} -m undertone_device run --config {_quoted(str(config.resolve()))}"
    return re.sub(r"^ExecStart=.*$", lambda _: start, text, flags=re.MULTILINE)


def install(config: Path, agreed: Callable[[Path, str], bool], folder: Path = UNITS) -> list[str]:
    """Write the service and return the commands that remain to be run.

    Writes nothing if ``agreed(path, text)`` is False. Raises Invalid if there is no such configuration, or if the
    service's file cannot be written or exists with other content.
    """
    path = folder / NAME
    if not config.is_file():
        raise Invalid(f"--config is {config}, expected the file of the device's configuration")
    text = unit(config)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise Invalid(f"{path} exists with other content: remove it first")
    if not agreed(path, text):
        return []
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error.strerror}") from None
    commands = ["systemctl daemon-reload", f"systemctl enable --now {NAME.partition('.')[0]}"]
    if not _is_user("undertone"):
        commands.insert(0, "useradd --system --home /var/lib/undertone undertone")
    return commands


def _is_user(name: str) -> bool:
    return subprocess.run(["id", name], capture_output=True, check=False).returncode == 0


def _quoted(word: str) -> str:
    """Return a word for systemd, escaped and in quotes if it has more than letters, digits and ``_./-``.

    Raises Invalid for a line end.
    """
    if "\n" in word:
        raise Invalid(f"the path {word!r} contains a line end")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if re.search(r"[^A-Za-z0-9_./-]", word) else word
