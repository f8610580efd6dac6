"""The extra of the distribution that provides a missing package; a plain install is the device alone."""

DISTRIBUTION = "undertone-ldp"
_EXTRAS = {
    "datasketches": "sketches",
    "duckdb": "recount",
    "matplotlib": "simulator",
    "pandas": "all",
    "pyarrow": "all",
    "pyspark": "spark",
}
# Commands that draw with matplotlib.
_DRAW = ("bench", "demo", "experiment")


def advice(module: str, command: str = "") -> str:
    """Return one sentence that says how to install a top-level package that ``command`` needs."""
    extra = _EXTRAS.get(module, "simulator" if command in _DRAW else "aggregator")
    return f"this needs {module}; install it with: pip install '{DISTRIBUTION}[{extra}]'"
