"""A board without device.json waits for its files on the serial line: one line, a JSON object of file name -> text.

`undertone device send FOLDER --port PORT` sends the files that `devices add` wrote. Nothing is written unless
everything is valid. The module is loaded only if device.json is missing.
"""

import json

from undertone_device.setup.config import check, parse_config
from undertone_shared.errors import Invalid
from undertone_shared.policy import parse_policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LARGEST = 16384
_MOST_FILES = 8


def wait(lines: "Any", write: "Callable[[str, bytes], None]", say: "Callable[[str], None]") -> bool:
    """Read lines until one contains a device's files, write the files, device.json last, and return True.

    Return False if the lines end before.
    """
    say("no device.json: send this device's files as one line")
    while True:
        line = lines.readline()
        if not line:
            return False
        try:
            files = parse_files(line)
        except Invalid as error:
            say("refused: %s" % error)
            continue
        # device.json is written last, so that a power cut in between leaves a board that waits again.
        for name in sorted(files, key=lambda name: name == "device.json"):
            write(name, files[name])
        say("stored %d files" % len(files))
        return True


def parse_files(line: "bytes | str") -> "dict[str, bytes]":
    """Parse the files in a line, and check the configuration and the policy. Raises Invalid."""
    if len(line) > LARGEST:
        raise Invalid("the line has %d characters, expected at most %d" % (len(line), LARGEST))
    try:
        value = json.loads(line)
    except (ValueError, RuntimeError):
        raise Invalid("the line is not JSON")
    if not isinstance(value, dict) or not 2 <= len(value) <= _MOST_FILES:
        raise Invalid("the line is not a JSON object of 2 to %d files" % _MOST_FILES)
    files = {}
    for name in value:
        if not isinstance(name, str) or not isinstance(value[name], str) or not name or "/" in name or name[0] == ".":
            raise Invalid("the file %r is not text, or its name is empty, begins with a dot or has a slash" % (name,))
        files[name] = value[name].encode()
    for name in ("device.json", "policy.json"):
        if name not in files:
            raise Invalid("the line has no %s" % name)
    config = parse_config(files["device.json"])
    check(config)
    parse_policy(files["policy.json"])
    identity = config.broker.identity
    own = (identity + ".crt", identity + ".key") if identity else ()
    for name in (config.policy, config.broker.password_file, config.broker.tls) + own:
        if name and name not in files:
            raise Invalid("the line has no %s, which device.json names" % name)
    return files
