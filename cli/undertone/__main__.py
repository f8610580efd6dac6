"""The ``undertone`` command. Exit codes: 0 done, 1 a requested check failed, 2 bad input or usage, 130 Ctrl-C."""

import io
import os
import sys

from undertone import __version__
from undertone.extras import advice


def main() -> int:
    """Run the command line and return the exit code."""
    command = next(iter(sys.argv[1:]), "")
    if command == "device":
        # A plain install contains only the device, without Typer.
        from undertone_device.__main__ import main as device

        return device(sys.argv[2:], "undertone device")
    if command == "--version":
        print(f"undertone {__version__}")
        return 0
    # Matrices here are small: the threads of a BLAS library would spend more time waiting for each other than
    # computing.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # On a terminal that cannot show ε, print an escape sequence in its place instead of failing.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        from undertone.app import run

        return run()
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("undertone"):
            raise
        print(f"error: {advice(missing.name.partition('.')[0], command)}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
