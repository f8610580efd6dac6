"""Stands in for the owner's sensor.py."""


def read():
    return 21
