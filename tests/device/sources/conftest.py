"""Pseudo-terminals as serial ports, and a configuration's source."""

import contextlib
import json
import os
import threading
import tty

import pytest

from undertone_device.config import parse_config
from undertone_device.sources import open_source


@pytest.fixture
def opened():
    """Opens a source by its fields and closes it after the test."""
    with contextlib.ExitStack() as closing:

        def open_it(**fields):
            values = {"name": "m", "broker": {"host": "h"}, "campaigns": ["c"], "policy": "p", "state": "s"}
            source = open_source(parse_config(json.dumps({**values, "source": fields}).encode()))
            closing.callback(source.close)
            return source

        yield open_it


class Meter:
    """The other end of a serial line: says what it is told to, and answers a question after its last byte."""

    def __init__(self):
        self.end, other = os.openpty()
        tty.setraw(self.end)
        tty.setraw(other)
        self.path = os.ttyname(other)
        self._other = other
        self.asked = b""
        self._threads = []

    def say(self, data):
        os.write(self.end, data)

    def answer(self, *exchanges):
        """Each (question, answer) in turn, in a thread."""

        def serve():
            for question, answer in exchanges:
                heard = b""
                while len(heard) < len(question):
                    heard += os.read(self.end, len(question) - len(heard))
                self.asked += heard
                os.write(self.end, answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        self._threads.append(thread)

    def unplug(self):
        os.close(self.end)
        os.close(self._other)
        self.end = self._other = None

    def close(self):
        if self.end is not None:
            self.unplug()
        for thread in self._threads:
            thread.join(5)


@pytest.fixture
def meter():
    running = Meter()
    yield running
    running.close()
