"""Meters on pseudo-terminals, and a real Modbus server."""

import contextlib
import socket
import struct
import threading
import time

import pytest
from frames import OBIS_1_8_0, SML, TELEGRAM, flipped

from undertone_device.sensors.crc import MODBUS, crc16
from undertone_device.sensors.iec62056 import READ_OUT, SIGN_ON, even
from undertone_device.sources import buses


def with_crc(frame):
    return frame + struct.pack("<H", crc16(frame, MODBUS, 0xFFFF))


def wait_for(source, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        readings = source.arrived()
        if readings:
            return readings
        time.sleep(0.01)
    pytest.fail(f"no reading: {source.trouble}")


def test_a_p1_port(opened, meter):
    source = opened(kind="p1", port=meter.path, obis=["1-0:1.8.1", "1-0:1.8.2"])
    assert not source.polled
    assert source.arrived() == []
    meter.say(TELEGRAM[:50])
    source.arrived()
    meter.say(TELEGRAM[50:] + TELEGRAM)
    readings = wait_for(source)
    assert set(readings) == {246913578}
    assert source.trouble == ""


def test_an_sml_port(opened, meter):
    source = opened(kind="sml", port=meter.path, obis="1-0:1.8.0", scale=[1, 10])
    source.arrived()
    meter.say(SML)
    assert wait_for(source) == [7914]
    assert buses._obis_bytes(("1-0:1.8.0",)) == OBIS_1_8_0


def test_an_unplugged_port_is_said_and_found_again(opened, meter, tmp_path, monkeypatch):
    monkeypatch.setattr(buses, "_RETRY_SECONDS", 0)
    port = tmp_path / "ttyUSB0"
    port.symlink_to(meter.path)
    source = opened(kind="p1", port=str(port), obis="1-0:1.8.1")
    source.arrived()
    meter.say(TELEGRAM)
    assert wait_for(source) == [123456789]
    port.unlink()
    meter.unplug()
    end = time.monotonic() + 30
    while not source.trouble and time.monotonic() < end:
        assert source.arrived() == []
    assert source.trouble.startswith("no sample: ")
    again = type(meter)()
    try:
        port.symlink_to(again.path)
        source.arrived()
        again.say(TELEGRAM)
        assert wait_for(source) == [123456789]
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
    while "1 frames" not in source.trouble and time.monotonic() < end:
        source.arrived()
    assert "silent, or what it says is damaged" in source.trouble


def test_an_optical_head(opened, meter):
    lines = b"0.0.0(1)\r\n1.8.0(00123.456*kWh)\r\n!\r\n"
    check = 3
    for byte in lines:
        check ^= byte
    readout = even(b"\x02" + lines + b"\x03" + bytes([check & 0x7F]))
    source = opened(kind="iec62056", port=meter.path, obis="1.8.0")
    meter.answer((SIGN_ON, even(b"/LGZ5\\2ZMD\r\n")), (READ_OUT, readout))
    assert source.read(0) == 123456
    assert meter.asked == SIGN_ON + READ_OUT
    meter.answer((SIGN_ON, even(b"/LGZ5\\2ZMD\r\n")), (READ_OUT, readout[:-1] + b"\x00"))
    with pytest.raises(ValueError, match="damaged"):
        source.read(0)
    assert "damaged" in source.trouble


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
    with pytest.raises(ValueError, match="answer"):
        absent.read(0)
    assert absent.trouble.startswith("no sample: ")


def test_no_modbus_server(opened, free_port):
    source = opened(kind="modbus-tcp", host="127.0.0.1", tcp_port=free_port(), slave=1, address=1)
    with pytest.raises(OSError, match="refused"):
        source.read(0)


def test_no_bit_of_one_answer_over_tcp_may_change(opened, monkeypatch):
    """The protocol has no checksum: a reading is what two answers say."""
    answer = b"\x00\x00\x00\x07\x11\x03\x04\x00\x01\x86\xa0"
    damaged = [answer, *flipped(answer)]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            for first in damaged:
                connection, _ = server.accept()
                # A reader that waits no longer hangs up.
                with connection, contextlib.suppress(OSError):
                    # The damaged one alternates with what it should have been.
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
        # From here on an answer that is late is none, as it should be.
        monkeypatch.setattr(buses, "_ANSWER_SECONDS", 0.02)
        for frame in damaged[1:]:
            with pytest.raises((ValueError, OSError)):
                source.read(0)
            assert source.trouble.startswith("no sample: "), frame
        thread.join(30)
        assert not thread.is_alive()
