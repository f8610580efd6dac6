"""Noise: random numbers for releases of raw values, drawn exactly: coins, Laplace, geometric and Gaussian noise.

Owns the random bytes and the noise of undertone_central.
May import: nothing.
Start reading: ``entropy.py`` for the bytes, ``laplace.py`` for the noise that most mechanisms add.
"""
