"""A stand-in for a broker.

It sends prepared reports to each session as fast as the session takes them, and does little else.

    python -m undertone_studies.stand_in PARTITIONS REPORTS

It prints its port once it has prepared the reports. It starts to send when it reads a line from standard input, and
exits at the end of standard input.
"""

import selectors
import socket
import sys

from undertone_aggregator.mqtt import packets
from undertone_simulator.mosquitto import HOST
from undertone_studies.backlog import numbered, plan_of, reports_of
from undertone_studies.bench import ingest as bench

_CHUNK = 1 << 18


class Session:
    """One worker's connection. ``left``: the data that are still to be sent."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.left = memoryview(b"")
        self._client_id = ""
        self._subscribed = False

    def receive(self, prepared: dict[str, bytes]) -> bool:
        """Answer the received packets; acknowledgements need no answer. Return False at the end of the connection."""
        data = self.connection.recv(_CHUNK)
        # Until it has subscribed, a worker waits for an answer after each packet, so no packet is split between two
        # reads.
        for first, start, end in packets.split(data)[0] if not self._subscribed else ():
            if first == packets.CONNECT:
                size = int.from_bytes(data[start + 10 : start + 12], "big")
                self._client_id = data[start + 12 : start + 12 + size].decode()
                self.connection.sendall(packets.connack(packets.ACCEPTED))
            elif first == packets.SUBSCRIBE:
                number, filters = packets.parse_subscribe(data[start:end])
                self.connection.sendall(packets.suback(number, [1] * len(filters)))
                self.left = memoryview(prepared[self._client_id])
                self._subscribed = True
        return bool(data)


def main() -> None:
    """Prepare the reports, and serve sessions until the end of standard input."""
    partitions, reports = map(int, sys.argv[1:])
    plan = plan_of(partitions)
    campaign = bench.make_campaign()
    prepared = {}
    for partition, topics in enumerate(reports_of(campaign, partitions, reports)):
        number = (numbered(i, topic, payload) for i, (topic, payload) in enumerate(topics))
        prepared[plan(partition).client_id] = b"".join(number)
    waiting = selectors.DefaultSelector()
    listener = socket.create_server((HOST, 0))
    waiting.register(listener, selectors.EVENT_READ)
    waiting.register(sys.stdin, selectors.EVENT_READ)
    print(listener.getsockname()[1], flush=True)
    sessions: list[Session] = []
    sending = False
    while True:
        for key, events in waiting.select():
            if key.fileobj is listener:
                sessions.append(Session(listener.accept()[0]))
                waiting.register(sessions[-1].connection, selectors.EVENT_READ, sessions[-1])
            elif key.data is None:
                if not sys.stdin.readline():
                    return
                sending = True
                for session in sessions:
                    waiting.modify(session.connection, selectors.EVENT_READ | selectors.EVENT_WRITE, session)
            else:
                session = key.data
                if events & selectors.EVENT_READ and not session.receive(prepared):
                    waiting.unregister(session.connection)
                    sessions.remove(session)
                elif sending and events & selectors.EVENT_WRITE:
                    sent = session.connection.send(session.left[:_CHUNK], socket.MSG_DONTWAIT)
                    session.left = session.left[sent:]
                    if not session.left:
                        waiting.modify(session.connection, selectors.EVENT_READ, session)


if __name__ == "__main__":
    main()
