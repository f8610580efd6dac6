"""Names of the extras that contain a missing package; a plain install contains only the device."""

DISTRIBUTION = "undertone-ldp"
_EXTRAS = {
    "datasketches": "sketches",
    "duckdb": "recount",
    "matplotlib": "simulator",
    "pandas": "all",
    "pyarrow": "all",
    "pyspark": "spark",
}
# Commands whose pictures need matplotlib.
_DRAW = ("bench", "demo", "experiment")


def advice(module: str, command: str = "") -> str:
    """Return a sentence for a user whose ``command`` needs a missing top-level package."""
    extra = _EXTRAS.get(module, "simulator" if command in _DRAW else "aggregator")
    return f"this needs {module}; install it with: pip install '{DISTRIBUTION}[{extra}]'"
