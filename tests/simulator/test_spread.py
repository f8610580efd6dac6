"""The results are the same to the last bit, however the parts of a fleet are divided among processes.

An interrupted run ends with all its processes.
"""

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from support import plans
from support.refusal import refused
from support.waiting import wait_for
from undertone_simulator.fast.parallel import workers
from undertone_simulator.fast.simulation import Simulation
from undertone_simulator.readings.behaviour import Behaviour
from undertone_simulator.readings.populations import population


def simulate(crew, stream):
    behaviour = Behaviour(3, drop_out=0.1, late=0.2, late_slots=4, liars=0.1)
    done = []
    simulation = Simulation(
        replace(plans.PLAN, report_slots=6),
        population("households", 1),
        300,
        1,
        stream=stream,
        behaviour=behaviour,
        chunk=70,
        workers=crew,
        progress=lambda *counts: done.append(counts),
    ).run()
    assert [count for count, _ in done] == sorted(count for count, _ in done)
    assert done[-1][0] == done[-1][1]
    return simulation


@pytest.fixture(scope="module")
def crew():
    with workers(2) as processes:
        yield processes


@pytest.mark.slow
@pytest.mark.parametrize("stream", [None, plans.STREAM], ids=["reports", "stream"])
def test_bit_identical_whoever_works(crew, stream):
    here, there = simulate(None, stream), simulate(crew, stream)
    assert there.partial == here.partial
    assert there.truths == here.truths
    assert [epoch.campaign.body for epoch in there.timeline.epochs] == [
        epoch.campaign.body for epoch in here.timeline.epochs
    ]


def busy_workers(parent):
    """How many worker processes of a process have begun: they have computed for longer than their imports take."""
    busy = 0
    with contextlib.suppress(OSError):
        for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="utf-8").split():
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            spawned = b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
            # The processor time of the process's own code, in clock ticks.
            busy += spawned and int(fields[11]) >= 1.5 * os.sysconf("SC_CLK_TCK")
    return busy


@pytest.mark.slow
def test_ctrl_c_ends_all_processes():
    command = [sys.executable, "-m", "undertone", "simulate", "--devices", "4000000", "--workers", "2"]
    # The command and its workers get a process group of their own, so that the test finds and kills all of them. Only
    # the command gets SIGINT, as from `kill`. Background jobs of a shell ignore SIGINT, and the command would inherit
    # that.
    child = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    group = child.pid
    try:
        wait_for(lambda: busy_workers(child.pid) == 2 or child.poll() is not None, 120, "work in both workers")
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        _, words = child.communicate(timeout=60)
        assert child.returncode == 130, words
        wait_for(lambda: not lives(group), 60, "the end of the workers")
    finally:
        if lives(group):
            os.killpg(group, signal.SIGKILL)
        child.wait()


def lives(group):
    """Whether any process of a process group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_refusals():
    with refused("workers", 0, 1, 1024), workers(0):
        pass
