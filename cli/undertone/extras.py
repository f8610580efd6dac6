"""Which extra of the distribution holds a package that is missing: a plain install is the device alone."""

DISTRIBUTION = "undertone-ldp"
_EXTRAS = {
    "datasketches": "sketches",
    "duckdb": "recount",
    "matplotlib": "simulator",
    "pandas": "all",
    "pyarrow": "all",
    "pyspark": "spark",
}
# Whose pictures need matplotlib.
_DRAW = ("bench", "demo", "experiment")


def advice(module: str, command: str = "") -> str:
    """One sentence for the user whose ``command`` misses a top-level package."""
    extra = _EXTRAS.get(module, "simulator" if command in _DRAW else "aggregator")
    return f"this needs {module}; install it with: pip install '{DISTRIBUTION}[{extra}]'"
