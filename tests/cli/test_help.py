"""Asking what there is must not cost what it takes to compute."""

import json
import subprocess
import sys

from undertone.commands.certify import NAMES
from undertone_aggregator.design.certificate import MECHANISMS

HEAVY = ["matplotlib", "numpy", "pandas", "pyarrow", "scipy"]
PROGRAM = f"""
import json, sys
sys.argv = ["undertone", "--help"]
from undertone.__main__ import main
code = main()
print(json.dumps([code, [name for name in {HEAVY} if name in sys.modules]]))
"""


def test_help_loads_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    *shown, last = done.stdout.splitlines()
    assert "simulate" in "\n".join(shown)
    assert json.loads(last) == [0, []]


def test_help_of_certify_names_every_mechanism():
    assert NAMES.split(", ") == list(MECHANISMS)
