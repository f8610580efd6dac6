"""Pseudo-terminals that stand for serial ports, and sources made from a configuration."""

import asyncio
import contextlib
import json
import os
import termios
import threading
import tty

import pytest

from support.ci import pseudo_terminal
from undertone_device.host.sources import open_source
from undertone_device.setup.config import parse_config


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
    """The other end of a serial line: sends what it is told to, and answers a question after the question's last byte.

    ``path`` is a link that is removed when the meter is unplugged. Otherwise, another test could get the same name for
    its terminal, and a source that still looks for its meter would find the other test's meter.
    """

    def __init__(self, path):
        self.end, other = pseudo_terminal()
        tty.setraw(self.end)
        tty.setraw(other)
        path.symlink_to(os.ttyname(other))
        self._link, self.path = path, str(path)
        self._other = other
        self.asked = b""
        # The line's speed at each question, as a constant of `termios`.
        self.speeds = []
        self._threads = []

    def say(self, data):
        os.write(self.end, data)

    def answer(self, *exchanges):
        """Answer each (question, answer) in turn, in a thread, which ends after the last answer.

        A question that is repeated before the next one comes is answered again, except the last.
        """
        end = self.end

        def serve():
            turn, heard = 0, b""
            with contextlib.suppress(OSError):
                while turn < len(exchanges):
                    heard += os.read(end, 256)
                    # A source that stopped waiting asks again.
                    if turn and heard.endswith(exchanges[turn - 1][0]):
                        turn -= 1
                    question, answer = exchanges[turn]
                    if not heard.endswith(question):
                        continue
                    heard = b""
                    self.asked += question
                    # After the meter is unplugged, its file number may belong to another file.
                    if self.end != end:
                        return
                    self.speeds.append(termios.tcgetattr(end)[5])
                    os.write(end, answer)
                    turn += 1

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        self._threads.append(thread)

    def unplug(self):
        end, self.end = self.end, None
        self._link.unlink()
        os.close(end)
        os.close(self._other)

    def close(self):
        if self.end is not None:
            self.unplug()
        for thread in self._threads:
            thread.join(30)


@pytest.fixture
def meter(tmp_path):
    running = Meter(tmp_path / "meter")
    yield running
    running.close()


class ModbusServer:
    """pymodbus' own server with a float and an integer in its registers."""

    def __init__(self, port):
        self.port = port
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,))
        self._thread.start()
        assert ready.wait(60)

    def _run(self, ready):
        from pymodbus.server import ModbusTcpServer
        from pymodbus.simulator import DataType, SimData, SimDevice

        data = [
            SimData(10, values=[123.456], datatype=DataType.FLOAT32),
            SimData(20, values=[1, 0x86A0], datatype=DataType.REGISTERS),
        ]
        asyncio.set_event_loop(self._loop)

        async def start():
            server = ModbusTcpServer(SimDevice(1, simdata=data), address=("127.0.0.1", self.port))
            await server.serve_forever(background=True)
            return server

        server = self._loop.run_until_complete(start())
        ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(server.shutdown())
        # The sockets of closed connections are freed in the next round of the loop.
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def stop(self):
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(60)


@pytest.fixture
def modbus_server(free_port):
    server = ModbusServer(free_port())
    yield server
    server.stop()
