"""Simulation of whole campaigns without a network, for fleets of any size, with exactly the symbols of real devices.

Start reading: ``simulation.py``; ``vectorised.py`` contains the mechanisms.
"""
