"""Experiments: each module is one experiment; see `undertone_studies.registry`."""
