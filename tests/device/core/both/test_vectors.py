"""The device's code reads the vectors of docs/vectors and gives the right answers under every interpreter."""

import json

from vector_player import play

# The files are listed by name, because the 32-bit interpreter gets only the files that a test names.
NAMES = (
    "campaigns",
    "draws",
    "handovers",
    "ledger",
    "mechanisms",
    "received",
    "refusals",
    "reports",
    "schedules",
    "signatures",
    "topics",
)
READS = tuple(["docs/vectors/%s.json" % name for name in NAMES])


def check(name):
    # This file is tests/device/core/both/test_vectors.py.
    repository = "/".join(__file__.split("/")[:-5]) or "."
    with open(repository + "/docs/vectors/%s.json" % name, encoding="utf-8") as file:
        content = json.loads(file.read())
    assert content["vectors"]
    for vector in content["vectors"]:
        made = play(content["kind"], vector["given"])
        assert made == vector["expected"], (vector["name"], made, vector["expected"])


def test_campaigns():
    check("campaigns")


def test_draws():
    check("draws")


def test_handovers():
    check("handovers")


def test_ledger():
    check("ledger")


def test_mechanisms():
    check("mechanisms")


def test_received():
    check("received")


def test_refusals():
    check("refusals")


def test_reports():
    check("reports")


def test_schedules():
    check("schedules")


def test_signatures():
    check("signatures")


def test_topics():
    check("topics")
