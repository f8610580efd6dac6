"""Counts: the server's data about reports, as pure data structures without files or clocks.

Owns histograms and moments that add up (``Partial``), epochs, which intervals a device has reported, sequence numbers.
May import: design, threshold.
Start reading: ``partial.py``, then ``seen.py`` for deduplication.
"""
