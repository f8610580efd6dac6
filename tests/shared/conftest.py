"""Lets tests that run only under CPython import the helpers that run everywhere."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "both"))
