"""The integration `loop_watch` of a tested Home Assistant measures how long `undertone` keeps the event loop busy.

It watches every callback of the loop in which code of custom_components/undertone ran. It notes the function that ran
first, the processor time of the loop's thread without garbage collections, and the time by the clock. When Home
Assistant ends, it writes them in seconds to loop_watch.json in Home Assistant's folder: {function: {"count",
"processor": longest, "clock": median, "clock_longest"}}. It also turns on asyncio's debug mode, which logs callbacks of
more than 50 ms.
"""

import asyncio
import gc
import json
import statistics
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

_TOOL = 4
_MARK = "custom_components/undertone/"


class _Watch:
    def __init__(self) -> None:
        self.loop_thread = threading.get_ident()
        self.ran = ""
        self.processor: dict[str, list[float]] = defaultdict(list)
        self.clock: dict[str, list[float]] = defaultdict(list)
        # The processor time that the garbage collector takes in the loop's thread, for the garbage of all code.
        self.collecting = 0.0
        self._collection_began = 0.0

    def collected(self, phase, _):
        """Note that the garbage collector begins or ends a collection."""
        if threading.get_ident() != self.loop_thread:
            return
        if phase == "start":
            self._collection_began = time.thread_time()
        else:
            self.collecting += time.thread_time() - self._collection_began

    def started(self, code, _):
        """Note that a function of the integration begins or goes on. Other functions are no longer watched."""
        if _MARK not in code.co_filename:
            return sys.monitoring.DISABLE
        if threading.get_ident() == self.loop_thread and not self.ran:
            self.ran = f"{Path(code.co_filename).name}:{code.co_qualname}"
        return None

    def wrap(self, run):
        """Return ``Handle._run`` with the measurement around it."""

        def measured(handle):
            if threading.get_ident() != self.loop_thread:
                return run(handle)
            self.ran = ""
            clock, processor = time.monotonic(), time.thread_time() - self.collecting
            try:
                return run(handle)
            finally:
                if self.ran:
                    self.processor[self.ran].append(time.thread_time() - self.collecting - processor)
                    self.clock[self.ran].append(time.monotonic() - clock)
                    self.ran = ""

        return measured

    def summary(self):
        return {
            name: {
                "count": len(times),
                "processor": max(times),
                "clock": statistics.median(self.clock[name]),
                "clock_longest": max(self.clock[name]),
            }
            for name, times in self.processor.items()
        }


async def async_setup(hass, config):
    """Begin to measure, until Home Assistant ends."""
    watch = _Watch()
    sys.monitoring.use_tool_id(_TOOL, "loop_watch")
    events = sys.monitoring.events
    for event in (events.PY_START, events.PY_RESUME):
        sys.monitoring.register_callback(_TOOL, event, watch.started)
    sys.monitoring.set_events(_TOOL, events.PY_START | events.PY_RESUME)
    gc.callbacks.append(watch.collected)
    asyncio.events.Handle._run = watch.wrap(asyncio.events.Handle._run)
    hass.loop.slow_callback_duration = 0.05
    hass.loop.set_debug(True)
    target = Path(hass.config.path("loop_watch.json"))

    async def write(_):
        text = json.dumps(watch.summary(), indent=1)
        await hass.async_add_executor_job(target.write_text, text)

    hass.bus.async_listen_once("homeassistant_final_write", write)
    return True
