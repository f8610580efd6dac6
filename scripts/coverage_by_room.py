"""Print what `make coverage` measured: lines and branches by folder, and the files that tests reach least.

    python scripts/coverage_by_room.py [.build/coverage.json]

A room is a package, or a folder in a package. Runs under MicroPython, on a board or in a phone are not measured; the
same files also run under CPython.
"""

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

WHERE = Path(".build/coverage.json")
# Files with fewer lines than this are not listed, because their share says little.
LEAST = 20


def room_of(path: str) -> str:
    """Return the room of a source file: PACKAGE/ROOM, or the package, or the outermost folder."""
    outside, *inside = Path(path).parts[:-1]
    return "/".join(inside[:2]) or outside


def share(counts: Counter[str], kind: str) -> float:
    """Return the covered share of ``kind`` (lines or branches) in percent; 100 if there is none."""
    total = counts[kind]
    return 100.0 * counts[f"covered {kind}"] / total if total else 100.0


def counts_of(summary: dict[str, int]) -> Counter[str]:
    """Return lines and branches, all and covered, of a summary in coverage.py's JSON."""
    return Counter(
        {
            "lines": summary["num_statements"],
            "covered lines": summary["covered_lines"],
            "branches": summary["num_branches"],
            "covered branches": summary["covered_branches"],
        }
    )


def main(where: Path) -> int:
    """Print both tables in Markdown."""
    files = {
        path: counts_of(file["summary"])
        for path, file in json.loads(where.read_text(encoding="utf-8"))["files"].items()
    }
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    for path, counts in files.items():
        rooms[room_of(path)].update(counts)
    rooms["everything"] = sum(files.values(), Counter())
    _table("room", rooms)
    print()
    large = {path: counts for path, counts in files.items() if counts["lines"] >= LEAST}
    _table("file", {path: large[path] for path in sorted(large, key=lambda path: share(large[path], "lines"))[:10]})
    return 0


def _table(what: str, rows: dict[str, Counter[str]]) -> None:
    print(f"| {what} | lines | covered | branches | covered |\n|---|---|---|---|---|")
    for name, counts in rows.items():
        if not counts["lines"]:
            continue
        lines, branches = (f"{counts[kind]} | {share(counts, kind):.1f} %" for kind in ("lines", "branches"))
        print(f"| `{name}` | {lines} | {branches} |")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else WHERE))
