"""The whole browser is killed at every step of a write: nothing is drawn twice, nothing is lost, no cap is exceeded."""

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from support.phone_browser import KilledPhone
from support.phone_site import CODE, PATIENCE, FastClock, PhoneSite, Receiver

# The file clock.js of a page that asks the test before and after each step of a write. One of these questions gets no
# answer, because the test kills the browser instead.
ASKING = b"""
const ask = (word) => {
    const request = new XMLHttpRequest();
    request.open('GET', '/step/' + word, false);
    request.send();
};
for (const name of ['write', 'flush']) {
    const plain = FileSystemSyncAccessHandle.prototype[name];
    FileSystemSyncAccessHandle.prototype[name] = function (...values) {
        ask('before-' + name);
        const result = plain.apply(this, values);
        ask('after-' + name);
        return result;
    };
}
"""
CAP, PERIOD = 8, 30


class Killer:
    """Answers the questions of a page. After ``at`` answers, it kills the browser at the next question."""

    def __init__(self, phone: KilledPhone) -> None:
        self._phone = phone
        self._lock = threading.Lock()
        self.at: int | None = None
        self.asked = 0
        self.word = ""
        self.killed = threading.Event()

    def __call__(self, word: str) -> None:
        with self._lock:
            self.asked += 1
            if self.at is not None and self.asked > self.at:
                self.word = word
                self._phone.kill()
                self.killed.set()

    def arm(self, at: int | None) -> None:
        self.at, self.asked = at, 0
        self.killed.clear()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.services
@pytest.mark.parametrize("kills", [10, 200])
def test_killed_at_every_step_of_a_write(
    chromium: Any, site: PhoneSite, receiver: Receiver, tmp_path: Path, kills: int
) -> None:
    clock = FastClock(time.time(), 5)
    site.replaced["clock.js"] = clock.script() + ASKING
    site.allow(reports_per_period=CAP, period_seconds=PERIOD)
    receiver.issue(clock.now())
    phone = KilledPhone(chromium, site, tmp_path / "profile")
    killer = site.step = Killer(phone)
    words = set()
    # The runs of the browser end at different steps: first while it joins, then while it draws.
    for kill in range(kills):
        killer.arm(3 * kill % 25)
        shown = ""
        with phone.running(f"#{CODE}") as page, contextlib.suppress(Exception):
            # The page's errors are those of a browser that was killed.
            agree_if_asked(page, killer)
            if not killer.killed.wait(PATIENCE):
                shown = page.inner_text("body")
        assert killer.killed.is_set(), f"kill {kill} at {killer.at}: {killer.asked} steps; {shown}"
        words.add(killer.word)
    assert words == {"before-write", "after-write", "before-flush", "after-flush"}
    # Now the browser runs without a kill until no report waits to be sent.
    killer.arm(None)
    with phone.running() as page:
        page.wait_for_selector("#screen[data-screen=running]", timeout=1000 * PATIENCE)
        last = receiver.report().sequence
        while receiver.report().sequence < last + 3:
            pass
    receiver.check()
    received = sorted(receiver.received, key=lambda report: report.sequence)
    assert [report.sequence for report in received] == list(range(1, len(received) + 1))
    slots = sorted(report.slot for report in received)
    # No window of the policy's period has more reports than its cap.
    for first, beyond in zip(slots, slots[CAP:], strict=False):
        assert beyond - first >= PERIOD
    assert len(set(site.keys)) == 1


def agree_if_asked(page: Any, killer: Killer) -> None:
    """Agree, unless the page already takes part."""
    while not killer.killed.is_set():
        screen = page.locator("#screen").get_attribute("data-screen", timeout=5000)
        if screen == "join":
            page.get_by_role("button", name="How am I protected?").click()
            page.get_by_role("button", name="I agree and take part").click()
            return
        if screen in ("running", "joining"):
            return
        page.wait_for_timeout(20)
