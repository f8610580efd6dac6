"""The part that privacy rests on: samples go in, at most one report of each slot comes out. It does no input or output.

It owns slot values, drawing, the ledger with its caps, pauses, and which campaigns the device accepts.
May import: nothing.
Start reading: ``reporter.py``, then ``guard.py`` (may a slot be drawn?) and ``acceptance.py`` (is a campaign taken?).
"""
