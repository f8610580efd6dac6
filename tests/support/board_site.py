"""A board's folder, campaign and broker, with which device/main.py runs with the C stack and the heap of a board.

The stand-ins for radio, clock and watchdog are in tests/device/board/stand_in. The broker is real.
"""

import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import paho.mqtt.client as paho
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from paho.mqtt.enums import CallbackAPIVersion

from support import micropython as mp
from support.factory import policy_of
from support.paho_client import leave
from support.private_broker import TLS, PrivateBroker
from support.waiting import wait_for
from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_shared.off_board import intake, issue
from undertone_shared.scalar import Cohort, ReportRule

sys.path.append(str(mp.REPO / "tests/device/both"))
from rig import make_campaign

BOARD = mp.REPO / "tests/device/board/stand_in"
# The bytes of C stack on a Pico W and on a Pico 2 W.
STACK = 7936
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
# Fields of a policy that accepts only signed campaigns.
SIGNED: Mapping[str, Any] = {"signers": [KEY.public_key().public_bytes_raw().hex()], "insecure": False}
# The parts of a campaign with 128 bins, which are as many as the server makes by default.
LARGE: Mapping[str, Any] = {
    "bound": 4000,
    "cohort": Cohort(WindowMechanism(2721, 1001, 33, 1, 127, tuple(range(0, 30 * 129, 30)))),
    "report": ReportRule(
        0, 1000, Hybrid(25784, WindowMechanism(2721, 1001, 1, 1, 1), WindowMechanism(2721, 1001, 621, 4, 256, None, 2))
    ),
}


class BoardSite:
    """A campaign on ``broker``, and the files in a board's flash, in ``folder``.

    ``run``: the function that runs MicroPython; ``compiled``: the folder of the board's modules. ``tls``: whether the
    broker has a certificate. ``measure``: that of the campaign. ``policy``: fields of the policy.
    """

    def __init__(
        self,
        broker: PrivateBroker,
        folder: Path,
        run: Callable[..., CompletedProcess[str]],
        compiled: Path,
        slot_seconds: int,
        *,
        tls: bool = True,
        measure: str = "sum",
        **policy: Any,
    ):
        self.folder = folder
        self.payloads: list[bytes] = []
        self._compiled = compiled
        self._run = run
        now = int(time.time())
        fields = policy_of(slot_seconds=slot_seconds, cap=[2850, 1000], measures=[measure], **policy)
        (folder / "policy.json").write_text(json.dumps(fields), encoding="utf-8")
        shutil.copy(mp.REPO / "device/main.py", folder)
        (folder / "ca.pem").write_bytes((TLS / "ca.pem").read_bytes())
        config = {
            "name": "board-with-a-name-as-long-as-any",
            "broker": {"host": "localhost", "port": broker.port, **({"tls": {"ca": "ca.pem"}} if tls else {})},
            "campaigns": ["load"],
            "policy": "policy.json",
            "state": "state",
            "publish": {"spread_percent": 10},
            "wifi": {"ssid": "home", "password": "secret"},
            "ntp": "ntp.example",
        }
        (folder / "device.json").write_text(json.dumps(config), encoding="utf-8")
        first = now // slot_seconds
        campaign = make_campaign(
            slot_seconds=slot_seconds,
            epoch=first * slot_seconds,
            last_slot=first + 1000,
            cycle=1,
            measure=measure,
            **LARGE,
        )
        self._client = paho.Client(CallbackAPIVersion.VERSION2, "server")
        if tls:
            self._client.tls_set(str(TLS / "ca.pem"))
        self._client.on_message = lambda client, data, message: self.payloads.append(message.payload)
        self._client.connect("localhost", broker.port)
        self._client.loop_start()
        self._client.subscribe("undertone/v2/+/+/+/report", 1)
        self._client.publish(
            "undertone/v2/load/config",
            issue.pack(campaign, now, KEY.sign if policy.get("signers") else None),
            qos=1,
            retain=True,
        ).wait_for_publish(10)

    def start_within_the_slot(self, seconds: int, slot: int = 60) -> None:
        """Set the board's clock at its first boot to ``seconds`` after the start of a slot of ``slot`` seconds.

        A board that starts at the first second of a slot would report this slot, too.
        """
        now = int(time.time())
        board = {"now": now + (seconds - now) % slot, "memory": "", "cause": 1, "fed": 0}
        (self.folder / "board.json").write_text(json.dumps(board), encoding="utf-8")

    def start(
        self,
        heap: int,
        *mode: str,
        image: Path | None = None,
        program: Path = BOARD / "drive.py",
        small: str | Path = BOARD / "small.py",
        timeout: float = 240,
    ) -> CompletedProcess[str]:
        """Run the board to its end with a heap of ``heap`` bytes.

        An ``image`` in flash takes nothing from this heap. ``small``: the program that gives ``program`` the C stack of
        a board.
        """
        return self._run(
            small,
            str(program),
            str(STACK),
            "-" if image is None else str(image),
            *mode,
            cwd=self.folder,
            paths=[self.folder, BOARD] + ([self._compiled] if image is None else []),
            heap=str(heap if image is None else heap + image.stat().st_size),
            timeout=timeout,
        )

    def run(self, heap: int, *mode: str, image: Path | None = None, program: Path = BOARD / "drive.py") -> list[str]:
        """Return the lines that the board printed, without the last one, which `small.py` adds.

        Checks that the board ended well, fitted into its C stack, and nested at most three imports.
        """
        result = self.start(heap, *mode, image=image, program=program)
        assert result.returncode == 0, result.stdout + result.stderr
        *lines, end = result.stdout.splitlines()
        stack, imports = map(int, re.fullmatch(r"stack (\d+), imports (\d+)", end).groups())  # type: ignore[union-attr]
        assert stack <= STACK, result.stdout
        assert imports <= 3, result.stdout
        return lines

    def slots(self, count: int = 0) -> list[int]:
        """Wait for ``count`` reports, and return the slots of all reports that have come.

        The broker may acknowledge a report to the board before this client gets the report. Raises AssertionError if
        the reports do not come.
        """
        wait_for(lambda: len(self.payloads) >= count, 30, f"{count} reports")
        return [intake.unpack(payload).slot for payload in list(self.payloads)]

    def close(self) -> None:
        leave(self._client)
