"""The states of devices that a worker holds in memory. A store keeps each state by its name, as segments of bytes.

A segment is either a snapshot of a whole state, or records that were appended to a snapshot. The class of the state
defines the format of both. A new state is a field of `DeviceStates`; stores need no change for it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields

from undertone_aggregator.counts.chains import Chains
from undertone_aggregator.counts.seen import Seen
from undertone_aggregator.counts.sequences import Sequences
from undertone_shared.topics import SHARDS

# Names of the states in a store: the names of the fields of `DeviceStates`.
SEEN, CHAINS, SEQUENCES = "seen", "chains", "sequences"
# A piece of a state in a store: True for a snapshot or False for appended records, and the data.
Segment = tuple[bool, bytes]


@dataclass
class DeviceStates:
    """The memory of devices' reports: the slots that were reported, the streams' chains, the sequence numbers."""

    seen: Seen = field(default_factory=Seen)
    chains: Chains = field(default_factory=Chains)
    sequences: Sequences = field(default_factory=Sequences)

    def load(self, segments: Callable[[str], Iterable[Segment]], shards: Iterable[int] = range(SHARDS)) -> None:
        """Load each state from ``segments(name)``, oldest first, for the devices of these shards. Raises Invalid."""
        shards = list(shards)
        for part in fields(self):
            getattr(self, part.name).load(segments(part.name), shards)

    def snapshots(self) -> Iterator[tuple[str, bytes]]:
        """Yield (name, snapshot) of each state that knows a device."""
        for part in fields(self):
            state = getattr(self, part.name)
            if len(state):
                yield part.name, state.snapshot()
