"""Readings: what simulated meters measure, from files or from synthetic populations.

Start reading: ``readings.py`` for the protocol, ``populations/`` for the synthetic ones.
"""
