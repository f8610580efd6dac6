"""Run by test_tls.py under both interpreters: connects to HOST PORT by TLS with the authorities in CA."""

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
        new = [event[0] for event in transport.poll(100)]
        events += new
        if "connected" in new:
            transport.publish("undertone-test/x", bytes(900))
        if "acked" in new or "lost" in new:
            break
    transport.close()
    print(events)


main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
