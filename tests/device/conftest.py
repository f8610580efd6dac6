"""Tests that run under CPython only may use the helpers beside them, and beside the ones that run everywhere."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.extend([str(HERE / "both"), str(HERE / "sensors/both"), str(HERE)])
