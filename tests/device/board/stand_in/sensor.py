"""The user's part."""


def read():
    return 21
