"""Studies, benchmarks and the soak test (a long run under faults), which measure Undertone.

They run from a clone; the wheel does not contain them.

Owns ``undertone experiment`` (``experiments/``), ``undertone bench`` (``bench/``) and ``make chaos`` (``chaos/``).
May import: undertone_simulator and everything that it imports.
Start reading: ``registry.py``, which finds each study by its module; the modules beside it are shared by several.
"""
