"""undertone release: files, pipes, interruption by kill -9, range queries, and the MQTT gateway."""

import inspect
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from typer.main import get_command

from support.paho_client import leave
from support.private_broker import PrivateBroker
from support.refusal import refused
from support.waiting import wait_for
from undertone.__main__ import main
from undertone.app import app
from undertone_central.make import MECHANISMS, parameters
from undertone_central.release import open_release, release

UNDERTONE = [sys.executable, "-m", "undertone", "release"]
TOPS = ["tops", "--epsilon", "1", "--bound", "9", "--hold-out", "10", "--span", "16", "--fanout", "4"]


@pytest.fixture
def run(capsys, monkeypatch):
    """Return a function that runs the command in this process, with ``text`` as its standard input."""

    def called(*arguments, text="", code=0):
        read, write = os.pipe()
        os.write(write, text.encode())
        os.close(write)
        monkeypatch.setattr(sys, "argv", ["undertone", "release", *map(str, arguments)])
        with os.fdopen(read, encoding="utf-8") as standard:
            monkeypatch.setattr(sys, "stdin", standard)
            assert main() == code
        return capsys.readouterr()

    return called


def test_a_file_in_a_file_out_and_questions_to_it(tmp_path, run):
    values = tmp_path / "v.csv"
    values.write_text("v\n" + "\n".join(str(i % 7) for i in range(60)), encoding="utf-8")
    out = tmp_path / "out.csv"
    made = run(*TOPS, "--input", values, "--output", out, "--json")
    summary = json.loads(made.out)
    assert (summary["values"], summary["released"]) == (60, 50)
    assert "event-level" in summary["guarantee"]
    assert not Path(f"{out}.state").exists()
    answers = json.loads(run("query", out, "--range", "10:60", "--range", "30:40", "--json").out)
    assert [answer["range"] for answer in answers["answers"]] == ["10:60", "30:40"]
    assert all(answer["standard_error"] > 0 for answer in answers["answers"])
    assert "event-level" in answers["guarantee"]
    assert "10:60" in run("query", out, "--range", "0:5", code=2).err
    assert "FIRST:END" in run("query", out, "--range", "5", code=2).err
    assert "needs a question" in run("query", out, code=2).err
    assert "synthetic items" in run("query", out, "--quantile", "0.5", code=2).err
    # A second release of the same values would spend ε again.
    assert "exists" in run(*TOPS, "--input", values, "--output", out, code=2).err


def test_a_pipe_in_a_pipe_out(run):
    made = run("binary", "--epsilon", "2", "--bound", "1", "--horizon", "8", text="1\n0\n\n1\nx\n")
    lines = made.out.splitlines()
    assert lines[0].startswith("# undertone release {")
    assert lines[1:3] == ["position,count", '# piece {"first": 0, "theta": 1}']
    assert len(lines) == 3 + 4
    assert "'x' is not a whole number" in made.err


@pytest.mark.parametrize(
    "options",
    [
        "tops --hold-out 9 --span 16 --fanout 4 --smoothing 1 --smoother mean --objective count --c 7 --noise laplace",
        "tops --hold-out 9 --span 16 --fanout 4 --update sequential --share .2 --consistency least-absolute --monotone",
        "tops --theta 5 --span 64 --fanout 2",
        "pak --hold-out 10 --span 16 --fanout 4 --delta 1e-6 --percentile 0.9 --threshold s-p --noise gaussian",
        "pak --theta 5 --consistency least-squares",
        "simple-1 --horizon 60 --monotone",
        "simple-2",
        "two-level --horizon 60 --block 7",
        "binary --horizon 60",
        "k-ary --horizon 60 --fanout 5",
        "unbounded",
        "hybrid --monotone",
        "square-root --horizon 60 --delta 1e-6",
        "tops --hold-out 9 --span 16 --fanout 4 --as-papers",
        "sanitizer --block 16 --share 0.5 --last-block pad",
        "sanitizer --block 16 --concepts points --last-block pad",
    ],
)
def test_every_mechanism_with_its_options_is_released_and_asked(options, tmp_path, run):
    out = tmp_path / "out.csv"
    text = "".join(f"{i % 7}\n" for i in range(60))
    made = run(*options.split(), "--epsilon", "1", "--bound", "9", "--output", out, text=text)
    assert made.err.startswith("event-level differential privacy")
    items = "points" if "points" in options else options.partition(" ")[0]
    question = {"sanitizer": ["--quantile", "0.5"], "points": ["--share", "3"]}.get(items, ["--range", "20:60"])
    answer = json.loads(run("query", out, *question, "--json").out)
    assert len(answer["answers"]) == 1
    assert answer["guarantee"] in made.err
    if items == "sanitizer":
        row = answer["answers"][0]
        assert f"{row['value']}, between {row['low']} and {row['high']} (95 %)" in run("query", out, *question).out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["tops", "--epsilon", "much", "--bound", "5"], "epsilon is 'much'"),
        (["simple-2", "--epsilon", "1", "--bound", "5", "--input", "/nowhere.csv"], "nowhere.csv"),
        (["simple-2", "--epsilon", "1", "--bound", "5", "--input", "mqtt://h/t"], "needs --state"),
        (["simple-2", "--epsilon", "1", "--bound", "5", "--output", "mqtt://:x/"], "is not a valid address"),
        (["simple-2", "--epsilon", "1", "--bound", "5", "--output", "/"], "'/', a folder"),
        (
            ["simple-2", "--epsilon", "1", "--bound", "5", "--output", "mqtt://127.0.0.1:1/x"],
            "the broker at 127.0.0.1:1 cannot be reached",
        ),
        (["query", "/nowhere.csv"], "nowhere.csv"),
    ],
)
def test_errors_are_one_sentence(arguments, sentence, run):
    said = run(*arguments, code=2)
    assert sentence in said.err
    assert len(said.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["best", "--epsilon", "1", "--bound", "5"], "no such command 'best'"),
        (["tops", "--bound", "5"], "missing option '--epsilon'"),
        (["binary", "--epsilon", "1", "--bound", "5"], "missing option '--horizon'"),
        (["binary", "--epsilon", "1", "--bound", "5", "--horizon", "9", "--theta", "3"], "there is no option --theta"),
    ],
)
def test_a_wrong_use_is_named(arguments, sentence, run):
    said = run(*arguments, code=2)
    assert sentence in said.err
    assert len(said.err.strip().splitlines()) == 1


def test_the_options_of_a_command_are_those_of_its_mechanism():
    group = get_command(app).commands["release"]
    context = group.make_context("release", ["query"], resilient_parsing=True)
    common = {
        "epsilon",
        "bound",
        "source",
        "output",
        "column",
        "scale",
        "state",
        "continues",
        "user",
        "ca_file",
        "seconds",
    }
    for name in MECHANISMS:
        command = group.get_command(context, name)
        offered = {option.name for option in command.params} - common - {"as_json", "last_block"}
        assert offered == set(parameters(name)), name
        assert ("last_block" in {option.name for option in command.params}) == (name == "sanitizer")


def test_from_python_as_from_the_command_line(tmp_path, run):
    values = np.arange(60) % 7
    options = {"hold_out": 10, "span": 16, "fanout": 4}
    made = release("tops", values, tmp_path / "out.csv", epsilon=1, bound=9, **options)
    assert (made.values, made.numbers) == (60, 50)
    asked = open_release(tmp_path / "out.csv")
    assert asked.guarantee == made.guarantee
    answer = json.loads(run("query", tmp_path / "out.csv", "--range", "10:60", "--json").out)["answers"][0]
    assert answer["sum"] == asked.sum(10, 60).value
    assert answer["standard_error"] == asked.sum(10, 60).standard_error
    with refused("theta", "binary", "tops", "pak"):
        release("binary", values, "-", epsilon=1, bound=9, horizon=60, theta=3)


def test_the_summary_counts_the_padded_block_and_a_share_says_of_what(tmp_path, run):
    text = "".join(f"{i % 7}\n" for i in range(60))
    for concepts, which in (("thresholds", "up to"), ("points", "equal to")):
        out = tmp_path / concepts
        options = ("--block", "16", "--concepts", concepts, "--last-block", "pad", "--epsilon", "1", "--bound", "9")
        made = run("sanitizer", *options, "--output", out, text=text)
        assert made.err.endswith("60 values read, 64 numbers released\n")
        assert len(open_release(out).numbers) == 64
        assert run("query", out, "--share", "3").out.startswith(f"share of values {which} 3: 0.")


@pytest.mark.parametrize(("output", "resumes"), [("out.csv", True), ("-", False), ("mqtt://127.0.0.1:1/x", False)])
def test_an_interrupted_release_says_that_it_resumes_only_with_a_checkpoint(
    tmp_path, monkeypatch, capsys, output, resumes
):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("undertone_central.release.release", interrupt)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys, "argv", ["undertone", "release", "simple-2", "--epsilon", "1", "--bound", "5", "--output", output]
    )
    assert main() == 130
    assert ("resumes the release" in capsys.readouterr().err) == resumes


def test_epsilon_is_at_most_eight_as_everywhere(tmp_path):
    for epsilon in (8.01, "20", 0):
        with refused("epsilon", epsilon, "0.0001", 8):
            release("simple-2", [1], tmp_path / "out.csv", epsilon=epsilon, bound=9)
    assert release("simple-2", [1], tmp_path / "out.csv", epsilon=8, bound=9).values == 1


@pytest.mark.slow_but("9")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_and_resumed_from_a_pipe(tmp_path, run, end):
    out, state = tmp_path / "out.csv", tmp_path / "out.csv.state"
    command = [*UNDERTONE, *TOPS, "--output", str(out)]
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # Background jobs of a shell ignore SIGINT, and a child would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert child.stdin is not None
    for i in range(23):
        child.stdin.write(b"%d\n" % (i % 7))
    child.stdin.flush()
    wait_for(lambda: state.exists() and json.loads(state.read_text(encoding="utf-8"))["progress"]["consumed"] == 23)
    child.send_signal(end)
    said = child.communicate()[1].decode()
    assert child.returncode == (130 if end == signal.SIGINT else -signal.SIGKILL)
    assert ("the same command resumes" in said) == (end == signal.SIGINT)
    before = out.read_text(encoding="utf-8")
    everything = "".join(f"{i % 7}\n" for i in range(40))
    assert "does not begin" in run(*TOPS, "--output", out, text=everything.replace("3", "4"), code=2).err
    assert "values missing: 3" in run(*TOPS, "--output", out, text=everything[:40], code=2).err
    assert "other settings" in run(*TOPS, "--smoothing", "0", "--output", out, text="", code=2).err
    made = run(*TOPS, "--output", out, text=everything)
    assert "resuming; values read so far: 23" in made.err
    after = out.read_text(encoding="utf-8")
    assert after.startswith(before)
    positions = [int(line.split(",")[0]) for line in after.splitlines() if line[0].isdigit()]
    assert positions == list(range(10, 40))
    assert not state.exists()


class Listener:
    """A client that keeps everything that is published below a topic."""

    def __init__(self, port, topic):
        self.lines = []
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2)
        self.client.on_message = lambda _c, _u, message: self.lines.append((message.topic, message.payload.decode()))
        self.client.connect("127.0.0.1", port)
        self.client.subscribe(topic + "/#", 1)
        self.client.loop_start()

    def numbers(self):
        """Released counts by position. A restart may publish some of them again, but never with another number."""
        released = {}
        for _, payload in list(self.lines):
            if payload[:1].isdigit():
                position, _, count = payload.partition(",")
                assert released.setdefault(int(position), count) == count
        return released

    def wait(self, count):
        wait_for(lambda: len(self.numbers()) >= count, what=f"number {count}")


def test_the_help_of_each_mechanism_begins_with_a_whole_sentence():
    for name, maker in MECHANISMS.items():
        assert (inspect.getdoc(maker) or "").partition("\n")[0].endswith("."), name


def started(arguments, log):
    with log.open("ab") as errors:
        return subprocess.Popen([*UNDERTONE, *arguments], stderr=errors)


@pytest.mark.slow
def test_the_gateway_survives_kill_9_and_counts_every_reading_once(tmp_path, mosquitto_binary, free_port, topic_prefix):
    port = free_port()
    raw, private = f"{topic_prefix}/raw", f"{topic_prefix}/private"
    arguments = ["simple-2", "--epsilon", "8", "--bound", "1000", "--state", str(tmp_path / "state")]
    arguments += ["--input", f"mqtt://127.0.0.1:{port}/{raw}", "--output", f"mqtt://127.0.0.1:{port}/{private}"]
    with PrivateBroker(mosquitto_binary, tmp_path, port):
        listener = Listener(port, private)
        meter = mqtt.Client(CallbackAPIVersion.VERSION2)
        meter.connect("127.0.0.1", port)
        meter.loop_start()
        log = tmp_path / "log"
        child = started(arguments, log)
        try:
            # The gateway gets readings once it has subscribed, so the first reading is repeated until one arrives.
            wait_for(lambda: meter.publish(raw, "1 500", qos=1) and listener.numbers(), what="the first reading")
            for number in range(2, 21):
                meter.publish(raw, f"{number} 500", qos=1)
                # A repetition of an earlier reading must not count twice.
                meter.publish(raw, f"{number - 1} 500", qos=1)
            listener.wait(20)
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            for number in range(21, 31):
                meter.publish(raw, f"{number} {500 if number < 30 else 'broken'}", qos=1).wait_for_publish(60)
            child = started(arguments, log)
            listener.wait(30)
            child.terminate()
            child.wait(120)
        finally:
            child.kill()
            child.wait()
            for client in (listener.client, meter):
                leave(client)
    counts = listener.numbers()
    assert sorted(counts) == list(range(30))
    # At ε = 8 and B = 1000, the noise of a reading has the scale 125. There are 29 readings of 500, and one that is no
    # number and counts as 0.
    assert abs(int(counts[29]) - 29 * 500) < 125 * 14 * 30**0.5
    assert "is not a whole number" in log.read_text(encoding="utf-8")
    assert "after 30 values" in log.read_text(encoding="utf-8")
    about = [payload for topic, payload in listener.lines if topic.endswith("/about")]
    assert json.loads(about[0])["mechanism"] == "simple-2"
