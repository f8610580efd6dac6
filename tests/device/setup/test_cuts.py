"""Power cuts on MicroPython's own file systems.

No slot is drawn twice, and no limit of a window or lifetime is exceeded. ``cuts.py`` runs under MicroPython with the
compiled code of a board. Its disk is in memory. Each cut comes at a random write of a block, and the next start finds
what was written before. With ``torn``, a part of the interrupted sector is written, too.
"""

import hashlib
import json
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rig import START, hybrid, make_campaign

from support import micropython as mp
from support.ci import unavailable
from undertone_device.core.units import epsilon_units
from undertone_shared.campaign import digest_of
from undertone_shared.scalar import ReportRule

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
SLOT = 60
LIFETIME = 60
STREAM = {"kind": "stream", "law": "gaussian", "low": 0, "theta": 300, "levels": 1000, "slew": 50, "shift": 8}
STREAM |= {"reuse": 217, "noise": [65000000, 10**12], "dimension": 1, "lag": 1}
WINDOW = {"reports": 5, "chains": 2, "renewal": 8, "restart": 0}
POLICY = {
    "version": 1,
    "sensor": "energy",
    "measures": ["sum"],
    "cap": [2, 1],
    "slot_seconds": SLOT,
    "theta": [1, 1000],
}
POLICY |= {"duration_seconds": 400 * 86400, "insecure": True, "boots_per_day": 1000}
CAP = {"reports_per_period": 6, "period_seconds": 10 * SLOT}


def canonical(fields: object) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def trailer(number: int) -> str:
    """A signed hand-over with this number. The number is also the port to which it sends the device."""
    entry = {"host": "new.example", "port": number}
    body = canonical({"all": entry, "campaign": "load", "devices": {}, "number": number})
    return (body + KEY.sign(hashlib.sha256(b"undertone hand-over 1\n" + body).digest())).hex()


def job(system: str, kind: str, cuts: int, *, torn: bool, forgetful: bool = False) -> dict[str, object]:
    scalar = make_campaign(
        slot_seconds=SLOT, cycle=1441, last_slot=START // SLOT + 50000, report=ReportRule(0, 300, hybrid())
    )
    fields = json.loads(scalar.body)
    stream = fields | {"cohort": None, "rule": STREAM | WINDOW}
    stream["schedule"] = fields["schedule"] | {"cohort_stride": 0, "stride": 1}
    limits = {"lifetime": LIFETIME, "reports": CAP["reports_per_period"], "window": CAP["period_seconds"] // SLOT}
    streams = {"rho": (1 << 32) - 1, "period_seconds": 86400}
    lifetime = LIFETIME * epsilon_units(2, 1)
    signers = {"signers": [KEY.public_key().public_bytes_raw().hex()], "insecure": False, "handover": True}
    bodies = {"lifetimes": scalar.body, "handovers": scalar.body, "streams": canonical(stream)}
    return {
        **{"system": system, "kind": kind, "cuts": cuts, "torn": torn, "seed": 1, "start": START},
        "forgetful": forgetful,
        "bodies": {name: bytes(body).hex() for name, body in bodies.items()},
        "signatures": {name: KEY.sign(digest_of(body)).hex() for name, body in bodies.items()},
        "policies": {
            "lifetimes": POLICY | CAP | {"lifetime": lifetime},
            "handovers": POLICY | CAP | {"lifetime": lifetime} | signers,
            "streams": POLICY | {"reports_per_period": 1440, "stream": streams},
        },
        "limits": {
            "lifetimes": limits,
            "handovers": limits,
            "streams": WINDOW | {"lifetime": 50000, "window": 1},
        },
        "trailers": [trailer(number) for number in range(1, 30)],
    }


def live(tmp_path: Path, given: dict[str, object]) -> subprocess.CompletedProcess[str]:
    if mp.interpreter() is None:
        unavailable(mp.MISSING)
    mp.compile_boards(tmp_path / "lib")
    path = tmp_path / "job.json"
    path.write_text(json.dumps(given), encoding="utf-8")
    program = Path(__file__).with_name("cuts.py")
    return mp.run_micropython(program, str(path), heap="4m", paths=[tmp_path / "lib"], timeout=900)


def cut(tmp_path: Path, system: str, kind: str, cuts: int, *, torn: bool) -> dict[str, int]:
    done = live(tmp_path, job(system, kind, cuts, torn=torn))
    assert done.returncode == 0, done.stdout + done.stderr
    # The last line has the counts. Before it, files that the garbage collector closes after a cut may print errors.
    counts: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    print(system, kind, torn, counts)
    return counts


KINDS = pytest.mark.parametrize("kind", ["lifetimes", "handovers", "streams"])
CUTS = pytest.mark.parametrize("cuts", [24, pytest.param(1000, marks=pytest.mark.slow)])


@pytest.mark.slow_but("24-lifetimes")
@pytest.mark.micropython
@KINDS
@CUTS
def test_littlefs_withstands_cuts_in_the_middle_of_a_sector(kind: str, cuts: int, tmp_path: Path) -> None:
    counts = cut(tmp_path, "littlefs", kind, cuts, torn=True)
    assert counts["cuts"] >= cuts
    assert counts["reports"] > cuts
    # Every start can read the file system and finds its ledger, and no two reports have the same sequence number.
    assert counts["unreadable"] == counts["losses"] == counts["repeated"] == 0


@pytest.mark.slow_but("24-lifetimes")
@pytest.mark.micropython
@KINDS
@CUTS
def test_fat_withstands_cuts_between_sectors(kind: str, cuts: int, tmp_path: Path) -> None:
    counts = cut(tmp_path, "fat", kind, cuts, torn=False)
    assert counts["cuts"] >= cuts
    assert counts["reports"] > cuts
    # No ledger is lost, even if a second cut comes before its only copy, NAME.new, has its name again.
    assert counts["losses"] == 0


@pytest.mark.slow_but("24-streams")
@pytest.mark.micropython
@KINDS
@CUTS
def test_fat_with_torn_sectors_draws_nothing_twice(kind: str, cuts: int, tmp_path: Path) -> None:
    """FAT is not safe against torn sectors. The ledger may be lost, and then everything counts as spent."""
    counts = cut(tmp_path, "fat", kind, cuts, torn=True)
    assert counts["cuts"] >= cuts


@pytest.mark.slow
@pytest.mark.micropython
@pytest.mark.parametrize(("kind", "limit"), [("lifetimes", "lifetime"), ("streams", "window")])
def test_a_storage_that_forgets_the_ledger_is_found(kind: str, limit: str, tmp_path: Path) -> None:
    done = live(tmp_path, job("littlefs", kind, 60, torn=True, forgetful=True))
    assert done.returncode == 1
    assert f"the {limit} was passed" in done.stdout.replace("a window", "the window")
