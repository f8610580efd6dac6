"""Find the files shipped beside the packages: a board's program, examples, the service, the lists of modules."""

from pathlib import Path

from undertone_shared.errors import Invalid

_HERE = Path(__file__).resolve()
# An installed wheel has the shipped files in its folder ``shipped`` (see device/pyproject.toml); a checkout of the
# sources has them in its folder device, or in its root.
_WHEEL = _HERE.parents[1] / "shipped"
_PLACES = (_WHEEL, _HERE.parents[2], _HERE.parents[3])
FILES = (
    "main.py",
    "measure.py",
    "undertone-device.service",
    "examples/device.json",
    "examples/policy.json",
    "examples/own_loop.py",
    "examples/unix_device.py",
)
LISTS = ("package.json", "sensors.json")


def shipped(name: str) -> Path:
    """Return the path of the shipped file ``name``. Raises Invalid if the installation lacks it."""
    for place in _PLACES:
        if (place / name).is_file():
            return place / name
    raise Invalid(f"this installation lacks {name}: reinstall undertone-device")
