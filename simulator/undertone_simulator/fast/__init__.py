"""Simulation of whole campaigns without a network, for fleets of any size.

From the same random words, simulated devices draw the same symbols as real ones.

Start reading: ``simulation.py``; ``vectorised.py`` contains the mechanisms.
"""
