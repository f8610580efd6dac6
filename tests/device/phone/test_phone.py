"""The phone's app in a real Chromium, used as a person uses it."""

import gzip
import itertools
import json
import re
import threading
import time
import urllib.request
from typing import Any

import pytest

from support.factory import DAY
from support.phone_site import CODE, LOUDNESS, PATIENCE, FastClock, PhoneSite, Receiver, WebSocketBroker
from support.phone_tap import Tap
from support.waiting import wait_for
from undertone_shared.topics import DEFAULT_PREFIX, config_topic

pytestmark = [pytest.mark.services, pytest.mark.waits]


def screen(page: Any, name: str) -> None:
    """Wait until the page shows this screen."""
    page.wait_for_selector(f"#screen[data-screen={name}]")


def press(page: Any, label: str) -> None:
    page.get_by_role("button", name=label).click()


def take_part(page: Any) -> None:
    """Agree to the offer of the link."""
    screen(page, "join")
    press(page, "How am I protected?")
    press(page, "I agree and take part")
    screen(page, "running")


def drawn(page: Any) -> int:
    """Return the number of reports that the page shows."""
    found = re.search(r"has made ([\d,]+) report", page.inner_text("#screen"))
    assert found is not None
    return int(found.group(1).replace(",", ""))


def says(page: Any, words: str) -> None:
    """Wait until the page shows these words."""
    page.wait_for_function("words => document.body.innerText.includes(words)", arg=words)


def test_a_phone_takes_part_by_a_link(phones: Any, site: PhoneSite, receiver: Receiver, now: int) -> None:
    receiver.issue(now)
    page = phones()
    screen(page, "join")
    assert site.keys == []
    take_part(page)
    reports = [receiver.report() for _ in range(3)]
    assert [report.sequence for report in reports] == [1, 2, 3]
    assert len({report.slot for report in reports}) == 3
    # The limit is for all files together, with the copies of the service worker.
    page.wait_for_function("() => navigator.serviceWorker.ready.then(() => true)")
    assert site.sent <= 700_000
    # The address of the page no longer has the code.
    assert page.url == site.address
    assert CODE not in page.content()


def test_nothing_is_drawn_before_the_person_agrees(phones: Any, site: PhoneSite, receiver: Receiver, now: int) -> None:
    receiver.issue(now)
    page = phones()
    screen(page, "join")
    for words in ("The town of Example", "Energy in Wh: the last value", "1 second"):
        assert words in page.inner_text("#screen")
    press(page, "How am I protected?")
    screen(page, "agree")
    for words in ("74 % sure", "practically sure", "999 reports at full strength"):
        assert words in page.inner_text("#screen")
    press(page, "No, thank you")
    screen(page, "none")
    assert site.keys == []
    assert [request for request in site.requests if "redeem" in request[1]] == []


def test_a_broken_connection_is_repeated_with_the_same_key(phones: Any, site: PhoneSite) -> None:
    phones.expected = ("net::ERR_", "Failed to load resource")
    site.failures = [0, 503, 429]
    page = phones()
    take_part(page)
    assert len(site.keys) == 4
    assert len(set(site.keys)) == 1
    assert re.fullmatch("[0-9a-f]{64}", site.keys[0])


def test_a_page_that_ends_while_it_redeems_goes_on_with_the_same_key(phones: Any, site: PhoneSite) -> None:
    phones.expected = ("net::ERR_", "Failed to load resource")
    site.failures = [0] * 1000
    context = phones.context()
    page = phones(context)
    screen(page, "join")
    press(page, "How am I protected?")
    press(page, "I agree and take part")
    screen(page, "joining")
    page.wait_for_function("() => document.body.innerText.length > 0")
    while not site.keys:
        page.wait_for_timeout(20)
    site.failures = []
    page.reload()
    screen(page, "running")
    assert len(set(site.keys)) == 1


def test_a_policy_that_was_not_shown_is_refused(phones: Any, site: PhoneSite) -> None:
    site.offer["policy"]["lifetime"] -= 1
    page = phones()
    screen(page, "join")
    press(page, "How am I protected?")
    press(page, "I agree and take part")
    screen(page, "none")
    says(page, "other rules than those that you were shown")


def test_a_phone_uses_up_no_code_that_it_cannot_use(phones: Any, site: PhoneSite) -> None:
    site.offer["credentials"] = "certificate"
    page = phones()
    screen(page, "none")
    says(page, "devices of this measurement log in with certificates, and a browser cannot")
    site.offer |= {"credentials": "password", "websocket": None}
    page.reload()
    screen(page, "none")
    says(page, "no address that a phone can use")
    assert site.keys == []


def test_a_server_that_gives_no_password_is_refused_for_good(phones: Any, site: PhoneSite) -> None:
    del site.files["password"]
    page = phones()
    screen(page, "join")
    press(page, "How am I protected?")
    press(page, "I agree and take part")
    screen(page, "none")
    says(page, "files that this phone cannot use")
    page.reload()
    screen(page, "none")


def test_a_phone_follows_the_server_to_another_websocket(
    phones: Any, site: PhoneSite, broker: WebSocketBroker, receiver: Receiver, now: int, free_port: Any
) -> None:
    receiver.issue(now)
    context = phones.context()
    page = phones(context)
    take_part(page)
    receiver.report()
    page.wait_for_function("() => navigator.serviceWorker.ready.then(() => true)")
    heard: list[bytes] = []
    port = free_port()
    tap = Tap(port, ("127.0.0.1", broker.websocket), lambda topic, report: heard.append(report))
    try:
        phones.allowed.add(f"localhost:{port}")
        site.websocket = f"ws://localhost:{port}"
        # The new files wait until the app is closed, and are used when it is opened again.
        page.reload()
        screen(page, "running")
        waiting = "navigator.serviceWorker.getRegistration().then((found) => found.waiting !== null)"
        wait_for(lambda: page.evaluate(waiting), what="new files")
        page.close()
        again = phones(context, "")
        screen(again, "running")
        wait_for(lambda: heard, what="a report at the new address")
        receiver.check()
    finally:
        tap.close()


def test_a_reload_goes_on_where_the_page_was(phones: Any, receiver: Receiver, now: int) -> None:
    receiver.issue(now)
    page = phones()
    take_part(page)
    for _ in range(2):
        receiver.report()
    page.reload()
    screen(page, "running")
    for _ in range(2):
        receiver.report()
    assert [report.sequence for report in receiver.received] == [1, 2, 3, 4]
    receiver.check()


def test_a_second_tab_waits_until_the_first_is_closed(phones: Any, receiver: Receiver, now: int) -> None:
    receiver.issue(now)
    context = phones.context()
    first = phones(context)
    take_part(first)
    receiver.report()
    second = phones(context, "")
    screen(second, "busy")
    first.close()
    screen(second, "running")
    for _ in range(2):
        receiver.report()
    receiver.check()


SECOND = "This phone takes part already, so the new link was not opened and is not used up: leave first"


def test_a_second_link_is_not_opened_while_the_phone_takes_part(
    phones: Any, site: PhoneSite, receiver: Receiver, now: int
) -> None:
    receiver.issue(now)
    page = phones()
    page.on("dialog", lambda dialog: dialog.accept())
    screen(page, "join")
    assert "If you clear this browser" not in page.inner_text("#screen")
    press(page, "How am I protected?")
    says(page, "If you clear this browser’s data, taking part ends")  # noqa: RUF001
    press(page, "I agree and take part")
    screen(page, "running")
    asked = [path for _, path in site.requests].count("/api/join/offer")
    # The link by which the phone joined only opens the app.
    page.goto(f"{site.address}#{CODE}")
    page.reload()
    screen(page, "running")
    receiver.report()
    receiver.report()
    assert SECOND not in page.inner_text("#screen")
    page.goto(f"{site.address}#another-code")
    says(page, SECOND)
    page.get_by_text("Pause", exact=True).click()
    press(page, "For a day")
    screen(page, "paused")
    assert SECOND not in page.inner_text("#screen"), "the sentence goes once the person does something else"
    page.reload()
    says(page, SECOND)
    screen(page, "paused")
    assert [path for _, path in site.requests].count("/api/join/offer") == asked
    press(page, "Leave")
    screen(page, "left")
    press(page, "Open another link")
    assert SECOND not in page.inner_text("#screen")


def test_a_pause_begins_and_ends_and_leaving_ends_everything(
    phones: Any, site: PhoneSite, receiver: Receiver, now: int
) -> None:
    receiver.issue(now)
    page = phones()
    page.on("dialog", lambda dialog: dialog.accept())
    take_part(page)
    receiver.report()
    page.get_by_text("Pause", exact=True).click()
    press(page, "For a day")
    screen(page, "paused")
    begun = int(time.time())
    press(page, "Go on")
    screen(page, "running")
    while receiver.report().slot <= begun:
        pass
    # The server hears of the leaving even if it can answer only after the app has been opened again.
    site.failures = [503] * 2
    phones.expected = ("Failed to load resource",)
    press(page, "Leave")
    screen(page, "left")
    made = drawn(page)
    assert made >= max(report.sequence for report in receiver.received)
    wait_for(lambda: len(site.failures) < 2, PATIENCE)
    page.reload()
    screen(page, "left")
    wait_for(lambda: set(site.gone) == set(site.keys), PATIENCE)
    assert drawn(page) == made
    # A device that joins again begins to count its reports anew. What was spent for this sensor still counts.
    site.keys.clear()
    press(page, "Open another link")
    page.fill("#link", f"{site.address}#{CODE}")
    press(page, "Open")
    take_part(page)
    while receiver.report().sequence != 1:
        pass
    page.get_by_text("For experts").last.click()
    spent = float(re.search(r"([\d.,]+) of 1,000 ever", page.inner_text("#screen")).group(1))  # type: ignore[union-attr]
    assert spent > made


def test_a_phone_tells_of_each_leaving_also_if_it_takes_part_elsewhere_meanwhile(
    phones: Any, site: PhoneSite, receiver: Receiver, now: int
) -> None:
    receiver.issue(now)
    answer, reached, told = site.answer, threading.Event(), []

    def busy(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        if path != "/api/join/leave":
            return answer(path, body)
        if not reached.is_set():
            return 503, {"reason": "unavailable", "error": "later"}
        told.append(body["key"])
        return 200, {"device": "phone-1"}

    site.answer = busy  # type: ignore[method-assign]
    phones.expected = ("Failed to load resource",)
    page = phones()
    page.on("dialog", lambda dialog: dialog.accept())
    take_part(page)
    keys = [*site.keys]
    press(page, "Leave")
    screen(page, "left")
    site.keys.clear()
    press(page, "Open another link")
    page.fill("#link", f"{site.address}#{CODE}")
    press(page, "Open")
    take_part(page)
    keys += site.keys
    press(page, "Leave")
    screen(page, "left")
    page.reload()
    screen(page, "left")
    assert told == []
    reached.set()
    wait_for(lambda: sorted(told) == sorted(keys), PATIENCE)


def test_an_entered_number_waits_for_the_end_of_its_slot(phones: Any, site: PhoneSite, receiver: Receiver) -> None:
    # Slots of an hour, of which one passes in 6 s.
    clock = FastClock(1_800_000_000, 600)
    site.replaced["clock.js"] = clock.script()
    site.allow(slot_seconds=3600)
    receiver.issue(clock.now(), 3600)
    page = phones()
    take_part(page)
    first = receiver.report().slot
    page.fill("#number", "740")
    press(page, "Save")
    says(page, "You entered 740 Wh")
    says(page, "You have entered nothing for this period")
    assert receiver.report().slot > first


# The bytes of the app's files. While the app writes, a browser may refuse to read a file.
DISK = """async () => {
    const root = await navigator.storage.getDirectory();
    const read = async (suffix) => (await (await root.getFileHandle("undertone." + suffix)).getFile()).arrayBuffer();
    try {
        const files = await Promise.all(["a", "b"].map(read));
        return files.map((file) => new TextDecoder("latin1").decode(file)).join("\\n");
    } catch (error) {
        return error.message;
    }
}"""


def test_nothing_that_was_removed_can_be_read_on_the_disk(phones: Any, site: PhoneSite, receiver: Receiver) -> None:
    # Slots of an hour, of which one passes in 6 s.
    clock = FastClock(1_800_000_000, 600)
    site.replaced["clock.js"] = clock.script()
    site.allow(slot_seconds=3600)
    receiver.issue(clock.now(), 3600)
    page = phones()
    page.on("dialog", lambda dialog: dialog.accept())

    def disk(pattern: str, found: bool) -> None:
        def as_expected() -> bool:
            content = page.evaluate(DISK)
            return "UTJ1" in content and bool(re.search(pattern, content)) == found

        wait_for(as_expected, PATIENCE, f"{pattern} {'on' if found else 'off'} the disk")

    take_part(page)
    receiver.report()
    page.fill("#number", "740")
    press(page, "Save")
    entered, compared = r"\[18\d{8}, 740\]", r"\[50\d{4}, 740\]"
    disk(entered, True)
    disk(compared, True)
    # No further number is entered: the app itself removes the entered number and keeps the compared one.
    disk(entered, False)
    disk(compared, True)
    page.get_by_label("Show me beside the others").uncheck()
    disk(r"\b740\b", False)
    page.fill("#number", "741")
    press(page, "Save")
    disk(r"\b741\b", True)
    disk("secret", True)
    press(page, "Leave")
    screen(page, "left")
    disk(r"\b741\b", False)
    disk("secret", False)


def test_a_number_that_does_not_count_is_asked_about_and_kept_only_then(
    phones: Any, site: PhoneSite, receiver: Receiver
) -> None:
    # Slots of an hour, of which one passes in 30 s.
    clock = FastClock(1_800_000_000, 120)
    site.replaced["clock.js"] = clock.script()
    site.allow(slot_seconds=3600)
    receiver.issue(clock.now(), 3600)
    page = phones()
    asked: list[str] = []
    answer = {"yes": False}

    def hear(dialog: Any) -> None:
        asked.append(dialog.message)
        dialog.accept() if answer["yes"] else dialog.dismiss()

    page.on("dialog", hear)
    take_part(page)
    # The range comes with the campaign. The first report is for the first whole slot, and comes in the first half of
    # the next slot. The page then stays in one slot for as long as the questions below take.
    receiver.report(PATIENCE + 2.5 * 3600 / 120)
    page.fill("#number", "99999")
    press(page, "Save")
    assert asked == ["99,999 Wh is too large: the limit is 1,000. Send 1,000?"]
    assert page.input_value("#number") == "99999", "nothing was kept"
    says(page, "You have entered nothing for this period")
    answer["yes"] = True
    press(page, "Save")
    says(page, "You entered 1,000 Wh")
    for text, question in (
        ("-5", "-5 Wh is too small: the limit is 0. Send 0?"),
        ("3.7", "Only whole numbers count here: 3.7 Wh is not one. Send 4?"),
    ):
        page.fill("#number", text)
        press(page, "Save")
        assert asked[-1] == question
    says(page, "You entered 4 Wh")
    page.fill("#number", "seven")
    press(page, "Save")
    says(page, "This is not a number")


def test_a_campaign_outside_what_was_agreed_to_is_a_new_question(
    phones: Any, site: PhoneSite, receiver: Receiver, now: int
) -> None:
    # A hand-over needs a signature, for which the stand-in of the server has no key. So the app's code is changed: it
    # loads the state that follows from such a hand-over.
    receiver.issue(now)
    context = phones.context()
    page = phones(context)
    take_part(page)
    receiver.report()
    page.wait_for_function("() => navigator.serviceWorker.ready.then(() => true)")
    code = json.loads(site_file(site, "code.json"))
    place = "undertone_device/core/handover.py"
    code[place] = code[place].replace("def take(", LOADED)
    page.close()
    site.replaced["code.json"] = json.dumps(code).encode()
    again = phones(phones.context())
    site.keys.clear()
    take_part(again)
    says(again, "A new question for you: may heat follow? That is outside what you agreed to")
    again.get_by_text("About this measurement").click()
    says(again, "followed by load-2, within what you agreed to")


LOADED = (
    'def load(storage):\n    return {"outside": ["heat"], "history": [[1800000000, ["load-2"]]], "number": 1}\n\n\n'
    "def take("
)


def site_file(site: PhoneSite, name: str) -> bytes:
    """Return a file of the app as the site sends it."""
    with urllib.request.urlopen(site.address + name, timeout=PATIENCE) as answer:
        return gzip.decompress(answer.read())


def test_days_without_a_network_lose_nothing(
    phones: Any, site: PhoneSite, broker: WebSocketBroker, receiver: Receiver
) -> None:
    # A day passes in 12 s.
    clock = FastClock(1_800_000_000, 7200)
    site.replaced["clock.js"] = clock.script()
    receiver.issue(clock.now(), 3 * 3600)
    phones.expected = ("WebSocket connection",)
    page = phones()
    take_part(page)
    receiver.report()
    broker.stop()
    says(page, "cannot be reached")
    offline = clock.now()
    says(page, "8 reports wait to be sent")
    broker.start()
    receiver.wait_until_subscribed()
    receiver.repeat(clock.now())
    reports = [receiver.report()]
    while reports[-1].slot * 10800 < clock.now() - 2 * 10800:
        reports.append(receiver.report())
    assert clock.now() - offline > DAY
    receiver.check()
    slots = sorted(report.slot for report in receiver.received)
    assert max(later - slot for slot, later in itertools.pairwise(slots)) == 1


@pytest.mark.parametrize("ahead", [-3 * DAY, 3 * DAY])
def test_a_wrong_clock_draws_nothing_and_the_page_says_so(
    phones: Any, site: PhoneSite, receiver: Receiver, now: int, ahead: int
) -> None:
    clock = FastClock(now, 1)
    site.replaced["clock.js"] = clock.script(ahead)
    receiver.issue(now)
    page = phones()
    take_part(page)
    says(page, f"This phone’s clock is 3 days {'ahead of' if ahead > 0 else 'behind'} the server’s time")  # noqa: RUF001
    assert "issued at" not in page.inner_text("#screen")
    assert drawn(page) == 0
    site.replaced["clock.js"] = clock.script()
    page.evaluate("caches.keys().then((names) => Promise.all(names.map((name) => caches.delete(name))))")
    page.reload()
    screen(page, "running")
    receiver.report()


def test_the_cost_of_a_stream_is_no_zero(phones: Any, site: PhoneSite) -> None:
    site.allow(cap=[1, 1], lifetime=0, stream={"rho": 1000, "period_seconds": DAY, "lifetime": 2000})
    page = phones()
    take_part(page)
    assert drawn(page) == 0
    spent = page.locator("section.spent")
    assert "no limit" not in spent.inner_text()
    assert [spent.locator(name).is_visible() for name in ("progress", "details")] == [False, False]


def test_cleared_storage_makes_the_code_useless_and_is_no_device(phones: Any, site: PhoneSite) -> None:
    phones.expected = ("Failed to load resource",)
    context = phones.context()
    page = phones(context)
    take_part(page)
    page.get_by_text("About this measurement").click()
    says(page, "forgets what it has sent")
    session = context.new_cdp_session(page)
    page.goto("about:blank")
    session.send("Storage.clearDataForOrigin", {"origin": site.address[:-6], "storageTypes": "all"})
    again = phones(context)
    screen(again, "join")
    press(again, "How am I protected?")
    press(again, "I agree and take part")
    screen(again, "none")
    says(again, "this code is used up")


def test_the_app_opens_without_a_network(phones: Any, site: PhoneSite, receiver: Receiver, now: int) -> None:
    receiver.issue(now)
    context = phones.context()
    page = phones(context)
    take_part(page)
    made = receiver.report().sequence
    page.wait_for_function("() => navigator.serviceWorker.ready.then(() => true)")
    page.close()
    site.close()
    again = phones(context, "")
    screen(again, "running")
    assert drawn(again) >= made
    receiver.report()
    receiver.check()


def test_a_topic_of_another_campaign_is_no_campaign(phones: Any, receiver: Receiver, now: int) -> None:
    receiver.issue(now, name="another")
    message = json.dumps({"not": "a campaign"}).encode()
    receiver.client.publish(config_topic(DEFAULT_PREFIX, "meters"), message, 1, retain=True).wait_for_publish(PATIENCE)
    page = phones()
    take_part(page)
    says(page, "Your phone refused what the server asked for")
    assert drawn(page) == 0


# Notes what the page does with sound: what it sends to its worker, and what it plays, records or hands to other code.
SOUND = """() => {
    window.sent = [];
    window.used = [];
    const watch = (owner, name, note) => {
        const original = owner[name];
        owner[name] = function (...values) {
            note(this, values);
            return original.apply(this, values);
        };
    };
    watch(Worker.prototype, "postMessage", (worker, [message]) => sent.push(message));
    watch(AudioNode.prototype, "connect", (node, [next]) => used.push(next.constructor.name));
    for (const name of ["MediaRecorder", "AudioWorkletNode", "MediaStreamTrackProcessor", "RTCPeerConnection"])
        window[name] = class { constructor() { used.push(name); } };
}"""


def test_the_microphone_gives_a_level_and_no_sound(phones: Any, site: PhoneSite, receiver: Receiver, now: int) -> None:
    site.allow(unit="dB")
    receiver.issue(now, unit="dB")
    page = phones()
    take_part(page)
    # The service worker has fetched its copies of the app's files.
    page.wait_for_function("() => navigator.serviceWorker.ready.then(() => true)")
    page.evaluate(SOUND)
    asked = len(site.requests)
    press(page, "Turn the microphone on")
    says(page, f"It is {LOUDNESS} dB loud here")
    # The page was open in these slots from beginning to end.
    for _ in range(3):
        receiver.report()
    receiver.check()
    assert page.evaluate("used") == ["AnalyserNode"], "the sound is measured, and neither played nor recorded"
    sent = page.evaluate("sent")
    assert {"do": "sample", "value": LOUDNESS} in sent
    assert all(message == {"do": "sample", "value": int(message["value"])} for message in sent)
    assert site.requests[asked:] == []
