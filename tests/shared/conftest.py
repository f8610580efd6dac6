"""Tests that run under CPython only may use the helpers beside the ones that run everywhere."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "both"))
