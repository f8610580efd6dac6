"""Benchmarks: each measures our code, most of them beside a baseline in the same run.

See `undertone_studies.registry`.
"""
