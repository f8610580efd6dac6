"""Mechanisms: counters, hierarchies, ToPS and PAK, sanitizers and quantiles, each with its (ε, δ).

Owns what is released about a stream of values, and the variance of what is released.
May import: noise.
Start reading: ``continual.py``, their protocol; ``counting.py`` for the simplest ones; ``tops.py`` for the publisher.
"""
