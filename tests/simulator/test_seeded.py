import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from undertone_shared.entropy import BUFFER_BYTES, Entropy, EntropyError
from undertone_shared.errors import Invalid
from undertone_simulator.seeded import WORDS, Memory, Seeded

REPO = Path(__file__).parents[2]


def table(seeded, slot, devices):
    words = seeded.words(slot, devices)
    out = np.empty((WORDS, len(words)), dtype=np.uint32)
    for word in range(WORDS):
        words.column(word, Memory(), out[word])
    return out.T


def test_numpy_and_scalar_entropy_read_the_same_words():
    seeded = Seeded(7)
    devices = [0, 1, 5, 10**6, 2**32 - 1]
    words = table(seeded, 994314, devices)
    for i, device in enumerate(devices):
        source = seeded.source(device)
        source.seek(994314)
        assert b"".join(source(32) for _ in range(BUFFER_BYTES // 32)) == words[i].astype("<u4").tobytes()


def test_first_words_are_frozen():
    assert [hex(w) for w in table(Seeded(1), 2, [3])[0, :4]] == FROZEN


FROZEN = ["0x20907e3f", "0x4b2e29bd", "0x44e16a04", "0x963b2806"]


def test_chunks_and_order_do_not_matter():
    seeded = Seeded(7)
    whole = table(seeded, 5, range(1000))
    order = np.random.default_rng(1).permutation(1000)
    assert np.array_equal(table(seeded, 5, order), whole[order])
    assert np.array_equal(table(seeded, 5, range(300, 400)), whole[300:400])


def test_seed_slot_device_and_word_all_matter():
    first = table(Seeded(1), 1, range(64))
    assert len(np.unique(first)) > 64 * 64 - 8
    for other in (table(Seeded(2), 1, range(64)), table(Seeded(1), 2, range(64))):
        assert np.count_nonzero(first == other) < 3


@pytest.mark.slow
def test_bits_are_balanced_and_neighbours_independent():
    # In 2^20 words, each of the 32 bits is fair, and so is its agreement with the next device and with the next word. 3
    # * 32 tests at |z| < 6 have a chance below 2e-7 of a false alarm.
    words = table(Seeded(11), 3, range(1 << 14))
    bits = (words[..., None] >> np.arange(32, dtype=np.uint32)) & 1
    for sample in (bits, bits[1:] ^ bits[:-1], bits[:, 1:] ^ bits[:, :-1]):
        n = sample.shape[0] * sample.shape[1]
        z = (sample.sum(axis=(0, 1)) - n / 2) / (n / 4) ** 0.5
        assert np.abs(z).max() < 6


def test_a_second_refill_has_other_words():
    source = Seeded(1).source(3)
    first = source(BUFFER_BYTES)
    assert source(BUFFER_BYTES) != first
    source.seek(0)
    assert source(BUFFER_BYTES) == first
    Entropy(source).refill()


def test_words_run_out():
    with pytest.raises(EntropyError, match="used up"):
        Seeded(1).words(0, [1]).column(WORDS, Memory(), np.empty(1, dtype=np.uint32))


@pytest.mark.parametrize(
    "call",
    [
        lambda: Seeded(-1),
        lambda: Seeded(1).words(-1, [0]),
        lambda: Seeded(1).source(2**32),
        lambda: Seeded(1).words(0, [2**32]),
    ],
)
def test_bad_numbers(call):
    with pytest.raises(Invalid, match="expected an integer from 0 to"):
        call()


def test_no_device_reaches_seeded_entropy():
    """Import everything that is flashed or run as a device: none of it imports the simulator."""
    modules = [
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        for root in (REPO / "shared", REPO / "device")
        for path in sorted(root.glob("undertone_*/**/*.py"))
        # pulses.py needs a board's pin, so it cannot be imported here
        if path.name != "pulses.py"
    ]
    assert "undertone_device.core.reporter" in modules
    assert "undertone_device.__main__" in modules
    code = (
        f"import sys, importlib\nfor name in {modules!r}:\n    importlib.import_module(name)\n"
        "found = [name for name in sys.modules if name.startswith('undertone_simulator')]\n"
        "print(found)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=60)
    assert result.stdout.strip() == "[]", result.stderr
    for path in [*REPO.glob("shared/**/*.py"), *REPO.glob("device/**/*.py")]:
        assert "undertone_simulator" not in path.read_text(encoding="utf-8"), path
