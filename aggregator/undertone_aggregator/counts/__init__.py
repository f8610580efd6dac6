"""Counts: the server's memory of reports, as pure data structures without files or clocks.

Owns histograms and moments that add up (``Partial``), epochs, the slots that devices have reported, sequence numbers.
May import: base, design, threshold.
Start reading: ``partial.py``, then ``seen.py`` for deduplication.
"""
