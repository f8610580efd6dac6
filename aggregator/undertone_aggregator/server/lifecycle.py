"""Pause, resume, retire and delete a campaign, from any process; the running server notices the change."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from undertone_aggregator.base.durations import utc
from undertone_aggregator.base.plural import many
from undertone_aggregator.campaign.binding import PAUSED, RETIRED, RUNNING, STATE
from undertone_aggregator.campaign.state import CampaignState, read_state
from undertone_aggregator.server.folder import Home
from undertone_aggregator.server.history import note
from undertone_aggregator.settings.config import Config
from undertone_aggregator.store.digests import key_beside
from undertone_aggregator.store.store import RECEIVED, NoStore, open_store
from undertone_aggregator.store.store_address import store_address
from undertone_shared.errors import Invalid

# Seconds to wait for the server to stop broadcasting a campaign.
_PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.2

# Function of (campaign, device) that changes the campaign, or a device of it, and returns a sentence about what it did.
Action = Callable[[str, str], str]
# Verb of the request -> state to which it leads.
VERBS = {"pause": PAUSED, "resume": RUNNING, "retire": RETIRED}


def change_state(home: Home, name: str, state: str, user: str | None = None, *, although_waiting: bool = False) -> str:
    """Set a campaign's state; return a sentence about what was done.

    ``user``: who asked for it; None for the user who runs this. Raises Invalid if a retired campaign would be paused or
    resumed, if no server has begun the campaign, and, without ``although_waiting``, if a campaign would be retired
    before its successor has begun.
    """
    config = home.config(home.only(name))
    successor = home.successor(name) if state == RETIRED and not although_waiting else None
    if successor is not None and not _has_begun(home.config(successor)):
        raise Invalid(
            f"campaign {successor} succeeds {name} and has not begun: devices that have not received the hand-over"
            f" would stay behind; retire {name} when {successor} runs, or add --although-waiting"
        )
    if not _is_in_store(config):
        raise Invalid(_not_begun(home, config, state))
    with open_store(config.store_url, campaign=name) as store, store.transaction():
        before = store.meta()[STATE]
        if before == RETIRED and state != RETIRED:
            raise Invalid(f"campaign {name} is retired for good: make a new one")
        store.set_meta({STATE: state})
    note(home.folder, name, f"{state}; it was {before} before", user)
    return f"campaign {name} is set to {state}; before, it was set to {before}"


def _not_begun(home: Home, config: Config, state: str) -> str:
    """Return a sentence about a campaign that no server has begun: when it begins, and for RETIRED how to remove it."""
    name, start = config.campaign.name, config.campaign.start
    when = f"when undertone serve {home.folder} runs"
    if start is not None and start > time.time():
        when = f"at {utc(start)}, if undertone serve {home.folder} runs then"
    verb = next(verb for verb, leads_to in VERBS.items() if leads_to == state)
    remove = ""
    if state == RETIRED:
        # `delete` refuses a campaign whose store is in a database.
        in_file = store_address(config.store_url).file is not None
        remove = f"undertone campaign delete {home.folder} {name}" if in_file else f"deleting {home.file(name)}"
        remove = f"; {remove} removes it"
    return f"campaign {name} has not begun, so you cannot {verb} it: it begins {when}{remove}"


def _is_in_store(config: Config) -> bool:
    """Return True if the campaign's server has made the campaign's store. This check makes no store itself."""
    try:
        with open_store(config.store_url, campaign=config.campaign.name, read_only=True) as store:
            return STATE in store.meta()
    except NoStore:
        return False


def _has_begun(config: Config) -> bool:
    try:
        with open_store(config.store_url, campaign=config.campaign.name, read_only=True) as store:
            return store.epoch_count() > 0
    except NoStore:
        return False


def delete(home: Home, name: str) -> str:
    """Delete the plan and store of a campaign without any report; return a sentence about what was done.

    The running server first stops the campaign's broadcast. Raises Invalid.
    """
    path = home.file(home.only(name))
    successor = home.successor(name)
    if successor is not None:
        raise Invalid(f"campaign {successor} follows {name} and uses its devices: delete {successor} first")
    url = home.stores().get(name)
    file = None if url is None else store_address(url).file
    if url is not None and file is None:
        raise Invalid(
            f"campaign {name} is in a database and cannot be deleted: retire it, or if it has not begun, delete {path}"
        )
    if url is not None:
        with open_store(url, campaign=name) as store:
            epochs, received = store.epoch_count(), store.outcomes()[RECEIVED]
            life = store.meta().get(STATE)
        if received:
            raise Invalid(
                f"campaign {name} has {many(received, 'delivery', 'deliveries')}, expected none: retire it instead"
            )
        if epochs:
            served = read_state(home.state)
            if served is None or not served.alive(time.time()):
                raise Invalid(f"campaign {name} was broadcast, so only a running server can delete it: start one")
            if life != RETIRED:
                change_state(home, name, RETIRED)
            failure = f"the server still broadcasts campaign {name} after {_PATIENCE_SECONDS:.0f} s: try again"
            _wait(home, name, lambda state: state is not None and state.state == RETIRED, failure)
    home.remove(name)
    note(home.folder, name, "deleted")
    failure = f"{path} is deleted, but after {_PATIENCE_SECONDS:.0f} s the server still runs campaign {name}"
    if file is not None:
        failure += f": when it has stopped, delete its store {file}"
    _wait(home, name, lambda state: state is None, failure)
    if file is not None:
        # The store's locks, logs and key are deleted, too.
        for suffix in ("", "-wal", "-shm", ".lock", ".server"):
            Path(f"{file}{suffix}").unlink(missing_ok=True)
        key_beside(file).unlink(missing_ok=True)
    return f"campaign {name} is deleted: {path} and its store are gone"


def _wait(home: Home, name: str, until: Callable[[CampaignState | None], bool], failure: str) -> None:
    """Wait until the running server, if any, reports the wanted state of a campaign. Raises Invalid with the sentence
    ``failure`` after a timeout.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        served = read_state(home.state)
        if served is None or not served.alive(time.time()) or until(served.campaigns.get(name)):
            return
        if time.monotonic() > deadline:
            raise Invalid(failure)
        time.sleep(_LOOK_SECONDS)


def actions(home: Home) -> dict[str, Action]:
    """Return a map: verb -> function that changes a campaign of a given name."""
    return {verb: partial(_change, home, state) for verb, state in VERBS.items()}


def _change(home: Home, state: str, name: str, device: str) -> str:
    if device:
        raise Invalid(f"device is {device!r}, expected none: this action is for the whole campaign")
    return change_state(home, name, state, "the page")
