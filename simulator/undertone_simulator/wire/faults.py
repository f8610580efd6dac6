"""Faults that are injected into a fleet at chosen slots; the ledger records them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from undertone_shared.errors import Invalid
from undertone_simulator.wire.fleet import Fleet
from undertone_simulator.wire.wire_device import DEATHS

# Number of slots after which a killed device boots again, delayed reports are sent, and a wrong clock is corrected.
REST = 2
# Seconds by which a wrong clock is ahead.
AHEAD = 7


@dataclass(frozen=True)
class Fault:
    """The fault `name` of `device` in report slot number `slot` (0 is the first).

    kill: the device is killed at the slot's start; kill-drawn, kill-torn, kill-sent: it is killed when the slot's
    report is drawn and not sent, half sent, or sent and not acknowledged; duplicate: its report is published twice;
    disconnect: the TCP connection is aborted; hold: its reports are held back and sent REST slots later, the newest
    first; lie: from now on it always sends the largest symbol; step: its clock is AHEAD seconds ahead for REST slots.
    Raises Invalid for another name.
    """

    slot: int
    name: str
    device: str

    def __post_init__(self) -> None:
        if self.name not in FAULTS:
            raise Invalid(f"fault is {self.name!r}, expected one of {', '.join(FAULTS)}")

    @property
    def silences(self) -> range:
        """The slots whose reports the device never sends, counted from the slot of the fault.

        This is exact if every report is written before it is sent (write_seconds at most slot_seconds): the current
        report is lost only by a kill before its draw, and the slot of the boot is not reported, because only part of it
        is measured.
        """
        if not self.name.startswith("kill"):
            return range(0)
        return range(-1 if self.name == "kill" else 0, REST + 1)


FAULTS = ("kill", *(f"kill-{death}" for death in DEATHS), "duplicate", "disconnect", "hold", "lie", "step")


def schedule(fleet: Fleet, faults: Sequence[Fault]) -> Callable[[int], None]:
    """Return a function for `Fleet.run` that injects the faults.

    If slots are skipped, their faults happen in the first slot after them.
    """
    last: int | None = None
    under_way: list[tuple[Fault, int]] = []

    def on_slot(slot: int) -> None:
        nonlocal last
        before, last = slot - 1 if last is None else last, slot
        if fleet.report_slot is None:
            return
        for fault in faults:
            if before < fleet.report_slot + fault.slot <= slot:
                _begin(fleet, fault)
                under_way.append((fault, slot))
        under_way[:] = [entry for entry in under_way if slot < entry[1] + REST or not _ended(fleet, entry[0])]

    return on_slot


def _ended(fleet: Fleet, fault: Fault) -> bool:
    """End a fault that lasts, for example restart a killed device. Other faults need no end.

    Return False, and leave the fault, if the device has yet to be killed.
    """
    device = fleet[fault.device]
    if fault.name.startswith("kill"):
        if device.reporter is None:
            device.restart()
        return device.die_at is None
    if fault.name == "hold":
        device.release()
    elif fault.name == "step":
        device.ahead = 0
    return True


def _begin(fleet: Fleet, fault: Fault) -> None:
    device = fleet[fault.device]
    if fault.name == "kill":
        device.kill()
    elif fault.name.startswith("kill-"):
        device.die_at = fault.name.removeprefix("kill-")
    elif fault.name == "duplicate":
        device.duplicate_next = True
    elif fault.name == "disconnect":
        device.drop_connection()
    elif fault.name == "lie":
        device.lie()
    elif fault.name == "step":
        fleet.wire.ledger.fault("stepped", fault.device)
        device.ahead = AHEAD
    else:
        device.hold_back()
