"""Checks that the packages which an optional feature needs are installed, before the feature is started."""

from importlib.util import find_spec
from pathlib import Path

from undertone_shared.errors import Invalid

Need = tuple[str, tuple[str, ...], str]
# For each optional feature: (its name, the import names of its packages, the extra that installs them).
PAGE: Need = ("the page", ("starlette", "sse_starlette", "uvicorn", "markdown_it"), "web")
ALERTS: Need = ("alerts", ("apprise",), "alerts")
JOIN: Need = ("joining by a code", ("starlette", "uvicorn"), "web")
METRICS: Need = ("/metrics", ("prometheus_client",), "server")

_CHARTS = Path(__file__).parents[1] / "web/static/vendor/uPlot.iife.min.js"


def missing_packages(need: Need) -> str:
    """Return a sentence about the packages that are not installed; empty if all are installed."""
    what, packages, extra = need
    missing = [package for package in packages if find_spec(package) is None]
    return f"{what} needs {', '.join(missing)}: pip install 'undertone-ldp[{extra}]'" if missing else ""


def check_packages(need: Need) -> None:
    """Raise Invalid if a package is not installed."""
    if missing := missing_packages(need):
        raise Invalid(missing)


def chart_warning() -> str:
    """Return a sentence if the chart library is missing, without which the page draws no charts; empty if it is
    there.
    """
    if _CHARTS.exists():
        return ""
    return (
        f"the page draws no charts: its chart library is not at {_CHARTS};"
        " run python scripts/vendor.py in the checkout (it needs npm)"
    )
