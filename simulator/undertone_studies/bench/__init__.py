"""Benchmarks: each measures the baseline and our code in the same run, interleaved.

See `undertone_studies.registry`.
"""
