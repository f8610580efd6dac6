"""``undertone-device run|status|pause|resume|... --config FILE``: run a device on a phone, a gateway, a Pi.

``undertone device`` is the same command where the server's package is installed.

Exit codes: 0 done, 2 an error.
"""

import argparse
import json
import os
import re
import sys
from typing import NoReturn

from undertone_device.core import reset
from undertone_device.host import gateway, household, status
from undertone_device.host.words import DEFAULT
from undertone_device.setup import clock
from undertone_device.setup.assembly import read_policy
from undertone_device.setup.config import DeviceConfig
from undertone_device.setup.storage import FileStorage, read_bounded
from undertone_device.tools import commands as tools
from undertone_shared.entropy import EntropyError
from undertone_shared.errors import Invalid

# Command -> the examples at the end of its help.
EXAMPLES = {
    "run": ("run --config device.json", "run --all devices --ledger gateway.ledger"),
    "status": ("status --config device.json", "status --config device.json --json"),
    "pause": ("pause --config device.json", "pause --config device.json --now --hours 48"),
    "resume": ("resume --config device.json", "resume --config /etc/undertone/device.json"),
    "reset-campaign": (
        "reset-campaign --config device.json",
        "reset-campaign --config /etc/undertone/device.json",
    ),
    "compile": ("compile build", "compile --manifest device/manifest.py"),
    "firmware": (
        "firmware --board RPI_PICO_W --micropython ~/micropython",
        "firmware --board ESP32_GENERIC_C3 --micropython ~/micropython --output firmware --meters",
    ),
    "flash": (
        "flash fleet/devices/meter-17 --port /dev/ttyACM0 --sensor sensor.py",
        "flash fleet/devices/meter-17 --port /dev/ttyUSB0 --sensor sensor.py --meters",
    ),
    "send": (
        "send fleet/devices/meter-17 --port /dev/ttyACM0",
        "send fleet/devices/meter-17 --port /dev/ttyACM0 --sensor sensor.py",
    ),
    "label": ("label fleet/devices/meter-17", "label fleet/devices/meter-17 --output meter-17.svg"),
    "install": (
        "install --systemd --config /etc/undertone/device.json",
        "install --systemd --config /etc/undertone/device.json --yes",
    ),
    "release": ("release undertone.zip", "release out/undertone-0.3.0.zip"),
}


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence each."""

    def error(self, message: str) -> NoReturn:
        """Raise Invalid with argparse's message as one sentence, in place of printing the usage."""
        message = re.sub("^argument (?:N: )?", "", message).replace(": is ", " is ")
        raise Invalid(f"{message}; see {self.prog} --help")


def main(argv: list[str], name: str = "undertone-device") -> int:
    """Run the command line; return the exit code. For an error, print one sentence on stderr.

    ``name``: the command's name as people type it.
    """
    try:
        arguments = _parser(name).parse_args(argv)
        if arguments.command == "run":
            paths = gateway.configurations(arguments.all) if arguments.all else [arguments.config]
            gateway.run(paths, arguments.json, arguments.ledger)
            return 0
        if arguments.command in tools.NAMES:
            tools.run(arguments)
            return 0
        config = gateway.configuration(arguments.config)
        if arguments.command == "status":
            return _status(config, arguments.json)
        try:
            os.stat(config.state + "/.")
        except (FileNotFoundError, NotADirectoryError):
            raise Invalid(f"state is {config.state!r}, expected the folder of a device that has run") from None
        if arguments.command == "reset-campaign":
            return _reset(config)
        return _pause(config, arguments.command, getattr(arguments, "now", False), getattr(arguments, "hours", 0))
    except (Invalid, EntropyError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        named = error.filename is not None and error.strerror
        print(f"error: {error.filename}: {error.strerror}" if named else f"error: {error}", file=sys.stderr)
        return 2


def _parser(program: str) -> argparse.ArgumentParser:
    parser = _Parser(prog=program, description="A device on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, description in (
        ("run", "read, add noise and report until stopped by SIGTERM or Ctrl-C"),
        ("status", "show the campaign, what it costs in privacy, and what the device has refused"),
        ("pause", "report nothing from the start of a later slot on; others can see the silence"),
        ("resume", "end the pause at the start of a slot, or at once if it has not begun"),
        ("reset-campaign", "forget the campaigns, but keep the record of what was spent; stop the device first"),
    ):
        command = commands.add_parser(name, help=description, description=description)
        which = command.add_mutually_exclusive_group(required=True)
        which.add_argument("--config", metavar="FILE", help="the device's configuration, JSON")
        if name == "run":
            which.add_argument(
                "--all", metavar="DIR", help="run every DIR/device.json and DIR/*/device.json in one process"
            )
            command.add_argument("--ledger", metavar="FILE", help="a file in which each sent report is recorded")
        if name == "pause":
            at_once = "begin at once; the pause then lasts at least a day, or the policy's rest if that is longer"
            command.add_argument("--now", action="store_true", help=at_once)
            length = "length of the pause; without --hours, the pause lasts until resume"
            command.add_argument("--hours", type=_hours, default=0, metavar="N", help=length)
        if name in ("run", "status"):
            command.add_argument("--json", action="store_true", help="machine-readable lines")
    tools.add(commands)
    for name, command in commands.choices.items():
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        command.epilog = "\n".join(["examples:"] + [f"  {program} {line}" for line in EXAMPLES[name]])
    return parser


def _hours(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 100000:
        raise argparse.ArgumentTypeError(f"is {text!r}, expected whole hours from 1 to 100000")
    return int(text)


def _status(config: DeviceConfig, as_json: bool) -> int:
    path = f"{config.state}/{status.FILE}"
    try:
        # In a folder that belongs to another user, this raises PermissionError.
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise Invalid(f"{path} does not exist: start the device, which writes this file") from None
    state = status.parse_status(read_bounded(path, status.LARGEST))
    if as_json:
        print(json.dumps(state))
        return 0
    for line in household.explain(state):
        print(line)
    print("\nWhat the policy allows, whatever a server says:")
    for line in household.agreement(read_policy(config), DEFAULT):
        print(f"- {line}")
    return 0


def _pause(config: DeviceConfig, command: str, at_once: bool, hours: int) -> int:
    now = clock.unix_time()
    if command == "resume":
        pause = household.resume(config, now)
    else:
        pause = household.begin_pause(config, now, at_once, hours * 3600)
    for line in household.pause_lines(list(pause), now) or ["no pause: the device may report"]:
        print(line)
    return 0


def _reset(config: DeviceConfig) -> int:
    reset.forget_campaigns(FileStorage(config.state), read_policy(config), clock.unix_time())
    print("the campaigns are forgotten; what was spent still counts")
    return 0


def program() -> int:
    """The command ``undertone-device``."""
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(program())
