"""Benchmarks: each measures the baseline and our code in the same run, interleaved; see
`undertone_studies.registry`.
"""
