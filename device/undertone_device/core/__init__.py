"""The core, on which privacy depends: samples in, at most one report per slot out. It does no input or output itself.

Here are slot values, drawing, the ledger with its caps, pauses, and the decision which campaigns the device accepts.
May import: nothing.
Start reading: ``reporter.py``, then ``guard.py`` (may a slot be drawn?) and ``acceptance.py`` (is a campaign taken?).
"""
