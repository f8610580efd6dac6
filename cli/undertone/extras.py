"""Which extra of the distribution installs a missing package. A plain install contains only the device."""

DISTRIBUTION = "undertone-ldp"
_EXTRAS = {
    "datasketches": "sketches",
    "duckdb": "recount",
    "matplotlib": "simulator",
    "pandas": "all",
    "pyarrow": "all",
    "pyspark": "spark",
}
# Commands that simulate or draw with matplotlib: they need the extra ``simulator``.
_SIMULATE = ("bench", "demo", "experiment", "fleet", "plan", "reproduce", "simulate")
# Commands that work without a server: they need the extra ``aggregator``. For all commands that are in neither list,
# the advice is ``server``, which contains ``aggregator``.
_ALONE = ("certify", "export", "query", "verify")


def advice(module: str, command: str = "") -> str:
    """Return one sentence that says how to install a top-level package that ``command`` needs."""
    general = "simulator" if command in _SIMULATE else "aggregator" if command in _ALONE else "server"
    extra = _EXTRAS.get(module, general)
    return f"this command needs {module}; install it with: pip install '{DISTRIBUTION}[{extra}]'"
