"""A campaign's life: what an operator may do to one that runs, from any process; its server takes it up."""

from collections.abc import Callable
from functools import partial

from undertone_aggregator.binding import PAUSED, RETIRED, RUNNING, STATE
from undertone_aggregator.collect.store import open_store
from undertone_aggregator.home import Home
from undertone_shared.errors import Invalid

# Changes a campaign of a name, or the device of it that is named second; says what was done.
Action = Callable[[str, str], str]
# What is asked for, and the state that it leads to.
VERBS = {"pause": PAUSED, "resume": RUNNING, "retire": RETIRED}


def change_state(home: Home, name: str, state: str) -> str:
    """Bring a campaign into a state; what was done, in a sentence. Raises Invalid, also for one that is retired."""
    config = home.config(home.only(name))
    with open_store(config.store_url, campaign=name) as store, store.transaction():
        before = store.meta().get(STATE)
        if before is None:
            raise Invalid(f"campaign {name} has not begun: remove {home.file(name)} instead")
        if before == RETIRED and state != RETIRED:
            raise Invalid(f"campaign {name} is retired, which is for good: make a new one")
        store.set_meta({STATE: state})
    return f"campaign {name} is {state}, it was {before}"


def actions(home: Home) -> dict[str, Action]:
    """By verb, what changes a campaign of this name."""
    return {verb: partial(_change, home, state) for verb, state in VERBS.items()}


def _change(home: Home, state: str, name: str, device: str) -> str:
    if device:
        raise Invalid(f"device is {device!r}, expected none: the whole campaign is changed")
    return change_state(home, name, state)
