"""Fast: whole campaigns without a wire, for fleets of any size, symbol for symbol what devices would draw.

Start reading: ``simulation.py``; ``vectorised.py`` holds the mechanisms.
"""
