"""Simulated fleets: readings, campaigns without a network, fleets of real connections, plans, demonstrations.

May import: undertone_operate, undertone_central and all that they import.
Start reading: ``fast/`` for whole campaigns in numpy, ``wire/`` for real connections, ``planning/`` for predictions;
``readings/`` is what devices measure, and ``seeded.py`` the random words of all simulations.
"""
