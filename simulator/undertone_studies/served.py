"""A server with a fixed clock, for benchmarks: it stores one campaign's reports, in a process of its own.

    python -m undertone_studies.served INTAKE ADMISSION FOLDER PORT

INTAKE: direct (devices connect to it), readers (the same, and it publishes ten messages a second to readers), broker
(our subscriber), paho (one packet per call through paho), or sockets (no server: it answers every packet
and ignores the content). ADMISSION: lane (the fast path), or plain (one by one). The program ends when its standard
input ends.
"""

import contextlib
import itertools
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from undertone_aggregator.ingest import fast_path
from undertone_aggregator.ingest.ingest import Ingest
from undertone_aggregator.ingest.intake import Intake
from undertone_aggregator.mqtt import credentials, packets
from undertone_aggregator.mqtt.endpoint.endpoint import Endpoint
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.mqtt.endpoint.limits import Limits
from undertone_aggregator.mqtt.endpoint.listener import Listener
from undertone_aggregator.mqtt.link import Address
from undertone_aggregator.mqtt.sessions import open_intake
from undertone_aggregator.store.store import open_store
from undertone_shared.off_board.issue import aggregate_topic
from undertone_studies.bench import ingest as bench
from undertone_studies.paho_intake import PahoIntake

INTAKES = ("direct", "readers", "broker", "paho", "sockets")
ADMISSIONS = ("lane", "plain")
# Pause in seconds between two publications to readers, and the length of a publication in bytes.
_PUBLISH_SECONDS = 0.1
_ESTIMATE_BYTES = 600


def serve(intake_name: str, admission: str, folder: Path, port: int) -> None:
    """Receive and store reports until the end of standard input."""
    if admission == "plain":
        fast_path.LEAST = sys.maxsize
    stop = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    if intake_name == "sockets":
        answer(port, stop)
        return
    address = Address("127.0.0.1", port, credentials.AGGREGATOR, bench.PASSWORD)
    openers: dict[str, Callable[[], Intake]] = {
        "broker": lambda: open_intake([address], bench.PLAN, print),
        "paho": lambda: PahoIntake(address, bench.PLAN.client_id, bench.FILTER, 2000),
    }
    with open_store(folder / "s.sqlite") as store:
        if intake_name not in ("direct", "readers"):
            run(Ingest(bench.PLAN, store, openers[intake_name](), clock=lambda: bench.NOW), stop)
            return
        limits = Limits(burst=10**9, strangers=10**9, strangers_of_address=10**9)
        gate = Gate(folder / "passwords", credentials.servers_names(), folder / "access")
        listener = Listener(port=port)
        plan = bench.PLAN
        with Endpoint(listener, gate, limits, plan.prefix, batch=plan.batch) as endpoint:
            endpoint.listen()
            intake = endpoint.open(bench.CAMPAIGN, plan.slot_seconds)
            if intake_name == "readers":
                threading.Thread(target=publish, args=(endpoint, stop), daemon=True).start()
            run(Ingest(plan, store, intake, clock=lambda: bench.NOW), stop)


def run(ingest: Ingest, stop: threading.Event) -> None:
    """Receive and store reports until ``stop`` is set; it may already be set."""
    ingest.run(stop, lambda ready: print("ready", flush=True) if ready else None)


def publish(endpoint: Endpoint, stop: threading.Event) -> None:
    """Publish ten messages a second, each as long as an estimate, until ``stop`` is set."""
    topics = [aggregate_topic(bench.PLAN.prefix, bench.CAMPAIGN, f"g{number}/raw") for number in range(10)]
    for topic in itertools.cycle(topics):
        if stop.wait(_PUBLISH_SECONDS):
            return
        endpoint.publish(topic, b"." * _ESTIMATE_BYTES)


def answer(port: int, stop: threading.Event) -> None:
    """Answer every packet, in batches of 20 ms.

    The time that this takes is the cost of waiting, receiving and sending alone in Python.
    """
    selector = selectors.DefaultSelector()
    listening = socket.create_server(("127.0.0.1", port), backlog=4096)
    listening.setblocking(False)
    selector.register(listening, selectors.EVENT_READ)
    print("ready", flush=True)
    while not stop.is_set():
        if selector.select(0.1):
            time.sleep(0.02)
        answers = []
        for key, _ in selector.select(0):
            if key.data is None:
                _accept_all(listening, selector)
            elif data := key.data.recv(4096):
                answers.append((key.data, data))
            else:
                selector.unregister(key.data)
        for device, data in answers:
            at = data.find(b"/report") + len(b"/report")
            device.send(packets.connack(0) if data[0] == packets.CONNECT else b"\x40\x02" + data[at : at + 2])


def _accept_all(listening: socket.socket, selector: selectors.BaseSelector) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            device, _ = listening.accept()
            device.setblocking(False)
            device.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(device, selectors.EVENT_READ, device)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
