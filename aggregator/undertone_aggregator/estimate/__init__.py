"""Estimate: from counts to numbers with errors and intervals.

Owns reconstruction, the filter, the model of what truncation removes, ranges and quantiles, exports, results.
May import: base, counts, design, store, threshold.
Start reading: ``reconstruct.py`` for one slot, ``filter.py`` for a series, ``query.py`` for results.
"""
