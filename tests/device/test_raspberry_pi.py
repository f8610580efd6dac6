"""The guide for a Raspberry Pi on a German meter: its settings are tried alone, and its lines as its users type them.

A recorded SML file of a meter, with a register that rises, comes over a pseudo-terminal. Times are shorter than in the
guide, and the port is the test's.
"""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
import tty
from pathlib import Path

import pytest

from support.ci import absent, pseudo_terminal
from support.guides import settings, typed
from support.micropython import REPO
from support.waiting import wait_for
from undertone_device.sensors.crc import X25, crc16

sys.path.append(str(REPO / "scripts"))

from frames import SML

PAGE = "pi-sml.md"


def sml(energy):
    """The recorded SML file with the register 1.8.0 at ``energy`` tenths of a Wh."""
    at = SML.index(b"\x52\xff\x65") + 3
    body = SML[:at] + energy.to_bytes(4, "big") + SML[at + 4 : -2]
    crc = crc16(body, X25, 0xFFFF) ^ 0xFFFF
    return body + bytes([crc & 255, crc >> 8])


class Meter:
    """A pseudo-terminal on which a meter sends its SML file five times a second."""

    def __init__(self):
        self._ends = pseudo_terminal()
        for end in self._ends:
            tty.setraw(end)
        # What nobody reads is lost, as it is on a real line.
        os.set_blocking(self._ends[0], False)
        self.port = os.ttyname(self._ends[1])
        self._unplugged = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self):
        energy = 791393
        while not self._unplugged.wait(0.2):
            with contextlib.suppress(BlockingIOError):
                os.write(self._ends[0], sml(energy))
            energy += 3

    def unplug(self):
        self._unplugged.set()
        self._thread.join()
        for end in self._ends:
            os.close(end)


class Utility:
    """The server's side of the guide: the campaign of docs/sensors.md with slots of a second, and one device."""

    def __init__(self, folder, free_port):
        self.folder = folder
        places = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        self._environment = os.environ | {"PATH": places, "COLUMNS": "120"}
        lines = typed("sensors.md")
        [create] = [line for line in lines if "campaign create" in line]
        [add] = [line for line in lines if "devices add" in line]
        ports = ["--port", str(free_port()), "--health", f"127.0.0.1:{free_port()}"]
        self.run("undertone", "init", "home", "--audit", *ports)
        short = ["--slot-seconds", "1", "--set", "cycle=4", "--set", "rounds=[4]", "--set", "report_slots=4000"]
        self.run(*shlex.split(create), *short)
        self.run(*shlex.split(add))
        [self.files] = (folder / "home/fleets/energy/devices").iterdir()
        self._server = self.start("serve.log", *("undertone", "serve", "home"))

    def run(self, *words):
        """Run a command that must succeed; return what it printed."""
        done = subprocess.run(
            words, cwd=self.folder, env=self._environment, capture_output=True, encoding="utf-8", check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, log, *words):
        with (self.folder / log).open("w", encoding="utf-8") as out:
            return subprocess.Popen(words, cwd=self.folder, env=self._environment, stdout=out, stderr=out)

    def log(self, name):
        return (self.folder / name).read_text(encoding="utf-8")

    def close(self):
        self._server.terminate()
        self._server.wait(20)

    def verify(self, ledger):
        self.run("undertone", "verify", "--store", "home/stores/energy.sqlite", "--ledger", ledger)


def of_the_page(meter):
    """The settings on the page, with the test's port."""
    fields = settings(PAGE)
    fields["source"]["port"] = meter.port
    return fields


@pytest.mark.long
@pytest.mark.services
def test_the_guides_settings_report_what_a_meter_says(tmp_path, free_port):
    utility = Utility(tmp_path, free_port)
    meter = Meter()
    config = utility.files / "device.json"
    device = json.loads(config.read_text(encoding="utf-8")) | of_the_page(meter) | {"state": str(tmp_path / "state")}
    config.write_text(json.dumps(device), encoding="utf-8")
    [follow] = [line for line in typed(PAGE) if "undertone-device run" in line]
    words = shlex.split(follow)[3:]
    words[0] = words[0].rpartition("/")[2]
    words[words.index("--config") + 1] = str(config)
    pi = utility.start("device.log", *words, "--ledger", "pi.ledger")
    try:
        ledger = tmp_path / "pi.ledger"
        wait_for(lambda: ledger.exists() and utility.log("pi.ledger").count("acked ") >= 3, 60, "three reports")
        assert "energy" in utility.run("undertone", "device", "status", "--config", str(config))
    except AssertionError:
        print(utility.log("serve.log")[-2000:], utility.log("device.log")[-2000:])
        raise
    finally:
        pi.terminate()
        pi.wait(20)
        utility.close()
        meter.unplug()
    utility.verify("pi.ledger")


# What the guide writes into the machine's own folders is kept in memory. Only the guide's commands see it, and it is
# gone when the last of them ends.
_OVERLAYS = """
set -e
mount -t tmpfs tmpfs "$1"
for folder in /etc /opt /var/lib; do
    mkdir -p "$1$folder/new" "$1$folder/work"
    mount -t overlay overlay -o "lowerdir=$folder,upperdir=$1$folder/new,workdir=$1$folder/work" "$folder"
done
echo ready
exec cat
"""
_SUDO = """#!/bin/sh
[ "$1" = -u ] || exec "$@"
user=$2; shift 2
exec setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups "$@"
"""


class Pi:
    """A shell on this machine with its own folders over /etc, /opt and /var/lib, and with `sudo`."""

    def __init__(self, folder):
        if os.geteuid() != 0:
            absent("root, who may add the guide's user")
        for program in ("unshare", "nsenter", "setpriv", "useradd", "gpasswd"):
            if shutil.which(program) is None:
                absent(f"the program {program}")
        self._folder = folder
        places = folder / "bin"
        places.mkdir(parents=True)
        (places / "sudo").write_text(_SUDO, encoding="utf-8")
        (places / "sudo").chmod(0o755)
        self._environment = os.environ | {"PATH": f"{places}:/usr/sbin:/usr/bin:/sbin:/bin"}
        (folder / "changed").mkdir()
        self._keeper = subprocess.Popen(
            ["unshare", "--mount", "bash", "-c", _OVERLAYS, "overlays", str(folder / "changed")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        if self._keeper.stdout.readline() != "ready\n":
            absent(f"the right to mount: {self._keeper.communicate()[1].strip()}")
        if self.tries("python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))'").returncode:
            self.close()
            absent("a Python 3.11 with venv in /usr/bin, which another user may run")

    def _words(self, line):
        inside = f"cd {shlex.quote(str(self._folder))}; {line}"
        return ["nsenter", f"--mount=/proc/{self._keeper.pid}/ns/mnt", "bash", "-euo", "pipefail", "-c", inside]

    def tries(self, line, answer=""):
        return subprocess.run(
            self._words(line), env=self._environment, input=answer, capture_output=True, encoding="utf-8", check=False
        )

    def types(self, line, answer=""):
        """Type a line that must succeed; return what it printed."""
        done = self.tries(line, answer)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def starts(self, line, log):
        with (self._folder / log).open("w", encoding="utf-8") as out:
            return subprocess.Popen(self._words(f"exec {line}"), env=self._environment, stdout=out, stderr=out)

    def close(self):
        self._keeper.communicate("")


@pytest.mark.slow
@pytest.mark.services
def test_the_guide_line_by_line_as_its_users(tmp_path, free_port):
    """The page's lines from `useradd` to `status`, by root and by the user `undertone`.

    The package is installed from this clone.
    """
    pi = Pi(tmp_path / "pi")
    utility = Utility(tmp_path, free_port)
    meter = Meter()
    lines = typed(PAGE)
    # The first two lines need a real reading head, which this machine does not have.
    assert [line.split()[0] for line in lines[:2]] == ["ls", "timeout"]
    install, rest = lines[2:6], lines[6:]
    copy, rights, run, unit, status = rest
    device = None
    try:
        for line in install:
            # The page says that, before the first release, one installs from a clone.
            pi.types(line.replace("'undertone-device[meters]'", shlex.quote(f"{REPO}/device[meters]")))
        shutil.copytree(utility.files, tmp_path / "pi/energy-001")
        pi.types(copy)
        pi.types(rights)
        config = Path("/etc/undertone/device.json")
        fields = json.loads(pi.types(f"cat {config}")) | of_the_page(meter)
        pi.types(f"cat > {config}", json.dumps(fields))
        pi.types(f"chgrp dialout {meter.port}; chmod 660 {meter.port}")

        device = pi.starts(f"{run} --ledger /var/lib/undertone/reports", "run.log")
        reports = "/var/lib/undertone/reports"
        wait_for(lambda: pi.tries(f"cat {reports}").stdout.count("acked ") >= 3, 60, "three reports")
        assert "online" in (tmp_path / "pi/run.log").read_text(encoding="utf-8")
        assert "energy" in pi.types(status)
        other = pi.tries(status.replace("-u undertone", "-u nobody"))
        assert other.returncode == 2
        assert "Permission denied" in other.stderr
        assert "Traceback" not in other.stderr
        device.terminate()
        assert device.wait(20) == 0

        assert "/etc/systemd/system/" in pi.types(unit, "y\n")
        assert "User=undertone" in pi.types("cat /etc/systemd/system/undertone*.service")

        # The page's table shows what a user gets who is not in the group.
        pi.types("gpasswd --delete undertone dialout")
        device = pi.starts(run, "refused.log")
        refused = tmp_path / "pi/refused.log"
        wait_for(lambda: "ermission denied" in refused.read_text(encoding="utf-8"), 60, "the refusal of the port")
        (tmp_path / "pi.ledger").write_text(pi.types(f"cat {reports}"), encoding="utf-8")
    except AssertionError:
        print(utility.log("serve.log")[-2000:])
        raise
    finally:
        if device is not None:
            device.terminate()
            device.wait(20)
        pi.close()
        utility.close()
        meter.unplug()
    utility.verify("pi.ledger")
