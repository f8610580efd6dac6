"""Meters on pseudo-terminals, and a real Modbus server."""

import contextlib
import socket
import struct
import termios
import threading
import time
from types import SimpleNamespace

import pytest
import serial
from frames import OBIS_1_8_0, SML, TELEGRAM, flipped

from support.waiting import wait_for
from undertone_device.host.sources import buses
from undertone_device.sensors.crc import MODBUS, crc16
from undertone_device.sensors.iec62056 import SIGN_ON, answer_to, even


def with_crc(frame):
    return frame + struct.pack("<H", crc16(frame, MODBUS, 0xFFFF))


def readings_of(source):
    return wait_for(source.arrived, what="a reading")


def test_a_p1_port(opened, meter):
    source = opened(kind="p1", port=meter.path, obis=["1-0:1.8.1", "1-0:1.8.2"])
    assert not source.polled
    assert source.arrived() == []
    meter.say(TELEGRAM[:50])
    source.arrived()
    meter.say(TELEGRAM[50:] + TELEGRAM)
    readings = readings_of(source)
    assert set(readings) == {246913578}
    assert source.trouble == ""


def test_an_sml_port(opened, meter):
    source = opened(kind="sml", port=meter.path, obis="1-0:1.8.0", scale=[1, 10])
    source.arrived()
    meter.say(SML)
    assert readings_of(source) == [7914]
    assert buses._obis_bytes(("1-0:1.8.0",)) == OBIS_1_8_0


def test_an_unplugged_port_is_said_and_found_again(opened, meter, tmp_path, monkeypatch):
    monkeypatch.setattr(buses, "_RETRY_SECONDS", 0)
    port = tmp_path / "ttyUSB0"
    port.symlink_to(meter.path)
    source = opened(kind="p1", port=str(port), obis="1-0:1.8.1")
    source.arrived()
    meter.say(TELEGRAM)
    assert readings_of(source) == [123456789]
    port.unlink()
    meter.unplug()
    wait_for(lambda: source.arrived() == [] and source.trouble)
    assert source.trouble.startswith("no sample: ")
    again = type(meter)(tmp_path / "another")
    try:
        port.symlink_to(again.path)
        source.arrived()
        again.say(TELEGRAM)
        assert readings_of(source) == [123456789]
        assert source.trouble == ""
    finally:
        source.close()
        again.close()


def test_a_silent_or_strange_meter_is_said(opened, meter, monkeypatch):
    monkeypatch.setattr(buses, "_SILENT_SECONDS", 0)
    source = opened(kind="p1", port=meter.path, obis="1-0:9.9.9")
    source.arrived()
    meter.say(TELEGRAM)
    end = time.monotonic() + 30
    while "bad frames: 1" not in source.trouble and time.monotonic() < end:
        source.arrived()
    assert "silent, or its messages are damaged" in source.trouble


NAME = even(b"/LGZ5\\2ZMD\r\n")


def readout(lines):
    check = 3
    for byte in lines:
        check ^= byte
    return even(b"\x02" + lines + b"\x03" + bytes([check & 0x7F]))


def test_an_optical_head(opened, meter):
    answer = readout(b"0.0.0(1)\r\n1.8.1(00100.000*kWh)\r\n1.8.2(00023.456*kWh)\r\n!\r\n")
    source = opened(kind="iec62056", port=meter.path, obis=["1.8.1", "1.8.2"])
    meter.answer((SIGN_ON, NAME), (answer_to(NAME)[0], answer))
    assert source.read(0) == 123456
    assert meter.asked == SIGN_ON + even(b"\x06050\r\n")
    meter.answer((SIGN_ON, NAME), (answer_to(NAME)[0], answer[:-1] + b"\x00"))
    with pytest.raises(ValueError, match="damaged"):
        source.read(0)
    assert "damaged" in source.trouble


@pytest.mark.parametrize(("offer", "baud"), [("5", 9600), ("0", 300)])
def test_the_line_takes_the_speed_that_the_meter_offers(opened, meter, offer, baud, monkeypatch):
    """A readout of 9,000 characters takes five minutes at 300 baud and ten seconds at 9600."""
    name = even(f"/LGZ{offer}\\2ZMD\r\n".encode())
    history = b"".join(b"1.8.0*%02d(00001.000*kWh)\r\n" % (i % 100) for i in range(400))
    answer = readout(b"1.8.0(00123.456*kWh)\r\n" + history + b"!\r\n")
    assert len(answer) > 9000
    ports = []

    def open_port(path, baud):
        ports.append(serial.Serial(path, baud, timeout=0))
        return ports[-1]

    def sleep_ms(milliseconds):
        # Six characters of ten bits take 200 ms at 300 baud. The meter's thread may take longer to read them.
        assert (milliseconds, ports[0].baudrate) == (200, 300)
        wait_for(lambda: len(meter.speeds) == 2)

    monkeypatch.setattr(buses, "clock", SimpleNamespace(ticks=lambda: 0, sleep_ms=sleep_ms))
    monkeypatch.setattr(buses, "open_port", open_port)
    source = opened(kind="iec62056", port=meter.path, obis="1.8.0")
    meter.answer((SIGN_ON, name), (answer_to(name)[0], answer))
    assert source.read(0) == 123456
    # The question that selects the speed is still sent at 300 baud.
    assert meter.speeds == [termios.B300, termios.B300]
    assert ports[0].baudrate == baud
    assert not ports[0].is_open


def test_a_meter_may_take_as_long_as_its_speed_needs(opened, meter, monkeypatch):
    """In this test, only the line's characters advance the clock: 4,560 characters at 300 baud take 152 s."""
    name = even(b"/LGZ0ZMD\r\n")
    answer = readout(b"1.8.0(00123.456*kWh)\r\n" + b"x" * 4525 + b"\r\n!\r\n")
    clock = Line()
    monkeypatch.setattr(buses, "time", clock)
    monkeypatch.setattr(buses, "clock", clock)
    monkeypatch.setattr(buses, "open_port", lambda path, baud: clock.port(name, answer))
    source = opened(kind="iec62056", port=meter.path, obis="1.8.0")
    assert source.read(0) == 123456
    assert 150 < clock.now < 160
    # The source gives up an answer that never ends.
    monkeypatch.setattr(buses, "open_port", lambda path, baud: clock.port(name, even(b"\x02" + b"x" * 100_000)))
    with pytest.raises(OSError, match="longer than 32768 characters"):
        source.read(0)
    monkeypatch.setattr(buses, "open_port", lambda path, baud: clock.port(name, answer[:1000]))
    with pytest.raises(OSError, match="falls silent at 300 baud"):
        source.read(0)
    monkeypatch.setattr(buses, "open_port", lambda path, baud: clock.port(b"", b""))
    with pytest.raises(OSError, match="gives no valid answer to the sign-on"):
        source.read(0)


class Line:
    """A clock that a serial line's characters advance, and ports on that line."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def ticks(self):
        return int(1000 * self.now)

    def sleep_ms(self, milliseconds):
        self.now += milliseconds / 1000

    def port(self, *answers):
        return LinePort(self, b"".join(answers))


class LinePort:
    def __init__(self, line, answer):
        self._line, self._answer = line, answer
        self.baudrate = 300
        self.timeout = 0
        self.in_waiting = 0

    def reset_input_buffer(self):
        pass

    def write(self, data):
        self._line.now += len(data) * 10 / self.baudrate

    def flush(self):
        pass

    def close(self):
        pass

    def read(self, size):
        data, self._answer = self._answer[:size], self._answer[size:]
        self._line.now += len(data) * 10 / self.baudrate if data else self.timeout
        return data

    def read_until(self, end):
        return self.read(self._answer.find(end) + 1)


def test_a_meter_that_pushes_text(opened, meter):
    source = opened(kind="iec62056-d", port=meter.path, obis="1.8.0")
    assert not source.polled
    source.arrived()
    meter.say(even(b"/HAG5eHZ010C_EHZ1ZA22\r\n\r\n1-0:1.8.0*255(001234.5678)\r\n!\r\n"))
    assert readings_of(source) == [1234568]


def test_a_serial_modbus_meter(opened, meter):
    source = opened(kind="modbus-rtu", port=meter.path, slave=17, address=107, scale=[1, 100])
    question = with_crc(b"\x11\x03\x00\x6b\x00\x02")
    meter.answer((question, with_crc(b"\x11\x03\x04\x00\x01\x86\xa0")))
    assert source.read(0) == 1000
    assert meter.asked == question


def test_a_real_modbus_server(opened, modbus_server):
    place = {"kind": "modbus-tcp", "host": "127.0.0.1", "tcp_port": modbus_server.port, "slave": 1}
    assert opened(**place, address=10, form="float", scale=[1000, 1]).read(0) == 123456
    assert opened(**place, address=20).read(0) == 100000
    absent = opened(**place, address=900)
    with pytest.raises(ValueError, match="no value for this register"):
        absent.read(0)
    assert absent.trouble.startswith("no sample: ")


def test_no_modbus_server(opened, free_port):
    source = opened(kind="modbus-tcp", host="127.0.0.1", tcp_port=free_port(), slave=1, address=1)
    with pytest.raises(OSError, match="refused"):
        source.read(0)


def test_no_bit_of_one_answer_over_tcp_may_change(opened, monkeypatch):
    """The protocol has no checksum, so a reading counts only if two answers agree."""
    answer = b"\x00\x00\x00\x07\x11\x03\x04\x00\x01\x86\xa0"
    damaged = [answer, *flipped(answer)]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            for first in damaged:
                connection, _ = server.accept()
                # A reader closes the connection when it stops waiting, so the sockets may fail here.
                with connection, contextlib.suppress(OSError):
                    # The damaged answer alternates with the right one.
                    for frame in (first, answer, first, answer):
                        question = connection.recv(12)
                        if len(question) < 12:
                            break
                        connection.sendall(question[:2] + frame)

        thread = threading.Thread(target=serve)
        thread.start()
        port = server.getsockname()[1]
        source = opened(kind="modbus-tcp", host="127.0.0.1", tcp_port=port, slave=17, address=107)
        assert source.read(0) == 100000
        # From here on, an answer counts as missing after a short time. Some damaged frames are no answers at all, and
        # the source would wait long for one.
        monkeypatch.setattr(buses, "_ANSWER_SECONDS", 0.02)
        for frame in damaged[1:]:
            with pytest.raises((ValueError, OSError)):
                source.read(0)
            assert source.trouble.startswith("no sample: "), frame
        thread.join(30)
        assert not thread.is_alive()
