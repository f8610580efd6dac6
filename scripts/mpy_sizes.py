"""Print the size of each module as .mpy, compiled for boards as `undertone device compile` does.

usage: .venv/bin/python scripts/mpy_sizes.py
"""

import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.append(str(REPO / "tests"))

from support.micropython import compile_boards  # noqa: E402

# Modules that a board loads only if a policy, a campaign or an owner needs them.
LATER = {
    "streams": {"gaussian", "points", "stream", "stream_policy", "stream_state"},
    "tables": {"table"},
    "hand-overs": {"handover"},
    "signatures": {"ed25519"},
    "buffers of samples": {"buffers"},
    "a first start without files": {"receive"},
    "new code": {"update"},
    "a certificate of its own": {"identity"},
    "sums of epsilon, and a reset": {"reset", "units"},
    "a household's pause": {"pause_span"},
}


def sizes() -> dict[tuple[str, str], int]:
    """Return the bytes of each compiled module, by package and name."""
    with tempfile.TemporaryDirectory() as out:
        return {(path.parent.name, path.stem): path.stat().st_size for path in compile_boards(Path(out))}


def totals() -> dict[str, int]:
    """Return the bytes by the time at which modules are loaded."""
    by_kind = dict.fromkeys(["every board", *LATER], 0)
    for (_, name), size in sizes().items():
        by_kind[next((kind for kind, names in LATER.items() if name in names), "every board")] += size
    return by_kind


def main() -> None:
    for (package, name), size in sorted(sizes().items()):
        print(f"{package}.{name:20} {size:6,}")
    print()
    for what, size in totals().items():
        print(f"{what:37} {size:6,}")


if __name__ == "__main__":
    main()
