"""The ``undertone`` command. Exit codes: 0 done, 1 a check that was asked for failed, 2 bad input or usage."""

import sys


def main() -> int:
    """Run the command line; returns the exit code."""
    if sys.argv[1:2] == ["device"]:
        # A plain install is the device alone: no Typer there.
        from undertone_device.__main__ import main as device

        return device(sys.argv[2:])
    try:
        from undertone.app import run
    except ModuleNotFoundError as missing:
        print(
            f"error: this command needs {missing.name}; install it with: pip install 'undertone[all]'",
            file=sys.stderr,
        )
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
