"""Readings of simulated meters, from files or from synthetic populations.

Start reading: ``readings.py`` for the protocol, ``populations/`` for the synthetic ones.
"""
