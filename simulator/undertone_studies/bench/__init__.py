"""Benchmarks: baseline and ours in the same run, interleaved, as rows; see `undertone_studies.registry`."""
