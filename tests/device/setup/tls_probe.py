"""Run by test_tls.py under both interpreters: connects to HOST PORT by TLS, and trusts the authorities in CA."""

import sys

from undertone_device.mqtt.session_transport import SessionTransport
from undertone_device.mqtt.socket_connection import SocketConnection
from undertone_device.setup import clock
from undertone_device.setup.tls_context import verified_context


def main(host, port, ca):
    with open(ca, "rb") as file:
        context = verified_context(file.read())
    transport = SessionTransport(
        lambda: SocketConnection(host, port, context, 60000), clock.ticks, "probe", "probe", "secret"
    )
    try:
        transport.connect()
    except OSError as error:
        print("refused", error)
        return
    events = []
    for _ in range(600):
        found = transport.poll(100)
        for event in found:
            if event[0] == "lost":
                print("refused", event[1])
                return
        new = [event[0] for event in found]
        events += new
        if "connected" in new:
            transport.publish("undertone-test/x", bytes(900))
        if "acked" in new:
            break
    transport.close()
    print(events)


main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
