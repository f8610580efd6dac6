"""A board's modules and main.py for firmware in which everything is frozen; device/manifest.py leaves main.py out.

A frozen main.py runs instead of one in the board's file system. Set its DEEP_SLEEP before the build.
"""

# ruff: noqa: F821
# mypy: ignore-errors

include("manifest.py")
module("main.py", opt=3)
