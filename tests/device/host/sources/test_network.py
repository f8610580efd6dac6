"""Samples from topics of a real broker, and from a server that answers as Home Assistant does."""

import http.server
import json
import socket
import threading

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from support.paho_client import leave
from support.private_broker import PrivateBroker
from support.waiting import wait_for
from undertone_device.host.sources import network
from undertone_device.host.sources.network import number_in
from undertone_shared.errors import Invalid


@pytest.fixture
def broker(mosquitto_binary, tmp_path, free_port):
    with PrivateBroker(mosquitto_binary, tmp_path, free_port()) as running:
        yield running


@pytest.fixture
def publish(broker):
    client = paho.Client(CallbackAPIVersion.VERSION2, "home")
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    yield lambda topic, text, **options: client.publish(topic, text, qos=1, **options).wait_for_publish(30)
    leave(client)


def readings_of(source, publish, topic, text):
    """The readings that a message gives. The message is published repeatedly, until the source has subscribed."""
    return set(wait_for(lambda: publish(topic, text) or source.arrived(), what="a reading"))


def trouble_of(source, words=""):
    """What a source without readings says about its trouble, as soon as it says so."""

    def trouble():
        assert source.arrived() == []
        return source.trouble if words in source.trouble else ""

    return wait_for(trouble, what="the trouble")


def test_a_zigbee_plug(opened, broker, publish, topic_prefix):
    topic = f"{topic_prefix}/zigbee2mqtt/plug"
    source = opened(kind="mqtt", host="localhost", tcp_port=broker.port, topic=topic, field="energy", scale=[1000, 1])
    assert readings_of(source, publish, topic, '{"energy": 12.345, "linkquality": 90}') == {12345}
    publish(topic, '{"linkquality": 90}')
    wait_for(lambda: source.arrived() is not None and source.trouble)
    assert "no field 'energy'" in source.trouble


def test_what_a_busy_topic_says_is_not_heard_ever_later(opened, broker, publish, topic_prefix):
    topic = f"{topic_prefix}/busy"
    source = opened(kind="mqtt", host="localhost", tcp_port=broker.port, topic=topic)
    readings_of(source, publish, topic, "1")
    heard, subscribed = [], threading.Event()
    witness = paho.Client(CallbackAPIVersion.VERSION2, "witness")
    witness.on_message = lambda _client, _data, message: heard.append(message.payload)
    witness.on_subscribe = lambda *_: subscribed.set()
    witness.connect("127.0.0.1", broker.port)
    witness.subscribe(topic)
    witness.loop_start()
    assert subscribed.wait(60)
    for number in range(201):
        publish(topic, str(number))
    # The broker sends each message to all subscribers before it sends the next one, so the source has all messages,
    # too.
    wait_for(lambda: b"200" in heard)
    leave(witness)
    # Each call stands for a round of the loop.
    assert len(source.arrived() + source.arrived() + source.arrived()) >= 200


def test_a_statestream_and_what_was_retained(opened, broker, publish, topic_prefix):
    topic = f"{topic_prefix}/statestream/sensor/energy/state"
    publish(topic, "1.0", retain=True)
    source = opened(kind="mqtt", host="localhost", tcp_port=broker.port, topic=topic)
    # If the source took the retained message, its reading would come first.
    assert readings_of(source, publish, topic, "42") == {42}


def test_a_wrong_certificate_of_the_own_broker_is_named_by_its_file(opened, tmp_path):
    ca = tmp_path / "home.crt"
    ca.write_text("nothing", encoding="ascii")
    with pytest.raises(Invalid, match=f"^{ca} holds no certificate"):
        opened(kind="mqtt", host="localhost", topic="t", ca=str(ca))
    ca.unlink()
    with pytest.raises(Invalid, match=f"{ca}"):
        opened(kind="mqtt", host="localhost", topic="t", ca=str(ca))


def test_a_broker_that_is_gone_is_said(opened, free_port):
    source = opened(kind="mqtt", host="localhost", tcp_port=free_port(), topic="a")
    assert "refused" in trouble_of(source)


def test_a_broker_that_cannot_be_reached_keeps_nobody_waiting(opened, monkeypatch):
    answered = threading.Event()

    def getaddrinfo(*arguments):
        assert answered.wait(60)
        raise OSError("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    source = opened(kind="mqtt", host="broker.example", topic="a")
    for _ in range(3):
        assert source.arrived() == []
    assert source.trouble == ""
    answered.set()
    assert trouble_of(source) == "no sample: no such name"


@pytest.mark.parametrize(
    ("text", "field", "reading"),
    [
        (b" 7 ", None, 7),
        (b"-1.25", None, -125),
        (b'{"ENERGY": {"Total": 0.1}}', "ENERGY.Total", 10),
        (b'{"a": "3"}', "a", 300),
    ],
)
def test_numbers_are_exact(text, field, reading):
    assert number_in(text, field, (1 if reading == 7 else 100, 1)) == reading


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (b"unavailable", None),
        (b"\xff", None),
        (b"{", "a"),
        (b"[]", "a"),
        (b'{"a": null}', "a"),
        (b'{"a": {"b": 1}}', "a"),
        (b'{"a": 1e400}', "a"),
        (b'{"a": true}', "a"),
        (b'{"a": NaN}', "a"),
    ],
)
def test_what_is_no_number(text, field):
    with pytest.raises(ValueError, match=r".*"):
        number_in(text, field, (1, 1))


STATES = {"sensor.energy": "1234.567", "sensor.gone": "unavailable"}


class HomeAssistant(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        entity = self.path.removeprefix("/api/states/")
        if self.headers["Authorization"] != "Bearer secret" or entity not in STATES:
            self.send_error(401 if entity in STATES else 404)
            return
        body = json.dumps({"entity_id": entity, "state": STATES[entity]}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def home():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), HomeAssistant) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_home_assistant_entity(opened, home, tmp_path):
    token = tmp_path / "token"
    token.write_text("secret\n", encoding="utf-8")

    def entity(name):
        return opened(kind="home-assistant", url=home, entity=name, token_file=str(token), scale=[1000, 1])

    assert entity("sensor.energy").read(0) == 1234567
    gone = entity("sensor.gone")
    with pytest.raises(ValueError, match="number"):
        gone.read(0)
    with pytest.raises(OSError, match="404"):
        entity("sensor.absent").read(0)
    token.write_text("wrong\n", encoding="utf-8")
    with pytest.raises(OSError, match="401"):
        entity("sensor.energy").read(0)
    with pytest.raises(OSError, match="InvalidURL"):
        entity("sensor.energy of mine").read(0)
    # The bad token must appear neither in a log nor in the status.
    for text in (b"sec\nret", b"sec\xff", b"", b"s" * 2000, b"sec\x1bret"):
        token.write_bytes(text)
        with pytest.raises(Invalid, match=r"token holds no secret: expected one line") as refused:
            entity("sensor.energy")
        assert "sec\\n" not in str(refused.value)


def test_an_answer_that_is_no_http(opened, tmp_path):
    (tmp_path / "token").write_text("secret", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        source = opened(kind="home-assistant", url=url, entity="e", token_file=str(tmp_path / "token"))
        for answer in (b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"):
            thread = threading.Thread(target=answered, args=(server, answer))
            thread.start()
            with pytest.raises(OSError, match=r"BadStatusLine|IncompleteRead"):
                source.read(0)
            thread.join()
            assert source.trouble.startswith("no sample: ")


class Dribble:
    """A connection that sends its beginning at once and then a byte a second for ever."""

    def __init__(self, begun):
        self.now = 0.0
        self.deadlines = []
        self._begun = begun

    def settimeout(self, seconds):
        self.deadlines.append(seconds)

    def recv_into(self, buffer):
        self.now += 1
        piece, self._begun = self._begun or b"x", b""
        buffer[: len(piece)] = piece
        return len(piece)

    def sendall(self, data):
        pass

    def close(self):
        pass


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"])
def test_a_server_that_dribbles_has_one_deadline_for_the_whole_answer(opened, tmp_path, monkeypatch, begun):
    """Each byte comes in time, but the whole answer, with head and body, does not."""
    (tmp_path / "token").write_text("secret", encoding="utf-8")
    line = Dribble(begun)
    monkeypatch.setattr(http.client.HTTPConnection, "connect", lambda connection: setattr(connection, "sock", line))
    monkeypatch.setattr(network.time, "monotonic", lambda: line.now)
    source = opened(kind="home-assistant", url="http://h", entity="e", token_file=str(tmp_path / "token"))
    with pytest.raises(OSError, match="no whole answer within 5 s"):
        source.read(0)
    assert line.deadlines == [5, 4, 3, 2, 1]


def test_no_token_goes_where_an_answer_points(opened, home, tmp_path):
    (tmp_path / "token").write_text("secret", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        source = opened(kind="home-assistant", url=url, entity="e", token_file=str(tmp_path / "token"))
        there = f"{home.replace('127.0.0.1', 'localhost')}/api/states/sensor.energy"
        thread = threading.Thread(
            target=answered, args=(server, f"HTTP/1.1 302 x\r\nLocation: {there}\r\n\r\n".encode())
        )
        thread.start()
        with pytest.raises(OSError, match=r"answers with HTTP status 302 and redirects: give source\.url"):
            source.read(0)
        thread.join()
        assert "sensor.energy" not in source.trouble


def answered(server, answer):
    connection, _ = server.accept()
    with connection:
        connection.recv(4096)
        connection.sendall(answer)


def test_a_message_that_is_nested_too_deeply_is_no_number_and_hides_no_other(opened, broker, publish, topic_prefix):
    topic = f"{topic_prefix}/plug"
    source = opened(kind="mqtt", host="localhost", tcp_port=broker.port, topic=topic, field="energy")
    assert readings_of(source, publish, topic, '{"energy": 3}') == {3}
    publish(topic, "[" * 10000)
    # The repetitions of the first message may still arrive.
    wait_for(lambda: set(source.arrived()) <= {3} and "nested" in source.trouble)
    assert readings_of(source, publish, topic, '{"energy": 4}') == {4}


@pytest.mark.parametrize("url", ["http://me:hidden@h", "http://me:hidden@h:99999", "me:hidden@h"])
def test_an_address_with_a_password_is_refused_without_it(opened, url: str) -> None:
    with pytest.raises(Invalid, match=r"^source\.url has an @") as refused:
        opened(kind="home-assistant", url=url, entity="e", token_file="token")
    assert "hidden" not in str(refused.value)
