"""NTP that fails at the first call."""

host = None
calls = []


def settime():
    calls.append(host)
    if len(calls) == 1:
        raise OSError(110)
