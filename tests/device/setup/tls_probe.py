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
        events += transport.poll(100)
        if events and events[-1][0] == "connected":
            transport.publish("undertone-test/x", bytes(900))
        if events and events[-1][0] in ("acked", "lost"):
            break
    transport.close()
    print([event[0] for event in events])


main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
