"""Experiments: each module is one; see `undertone_studies.registry`."""
