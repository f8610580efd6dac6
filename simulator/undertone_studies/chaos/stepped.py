"""``python -m undertone_studies.chaos.stepped MODULE ARGUMENTS``: run a program whose clock another program can step.

time.time() is shifted by the seconds in the file that UNDERTONE_CLOCK names. Worker processes import this module as
their main module, so their clocks are shifted, too.
"""

import os
import runpy
import sys
import time

_FILE = os.environ.get("UNDERTONE_CLOCK", "")
_real = time.time


def _stepped() -> float:
    try:
        with open(_FILE, encoding="utf-8") as file:
            return _real() + float(file.read() or 0)
    except (OSError, ValueError):
        return _real()


if _FILE:
    time.time = _stepped

if __name__ == "__main__":
    module = sys.argv[1]
    sys.argv[:2] = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=False)
