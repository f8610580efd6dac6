"""Experiment: the memory of the streaming sanitizer over the number of blocks, for both classes of questions."""

import tracemalloc

import numpy as np

from undertone_central import Sanitizer
from undertone_central.mechanisms.sanitizer import CLASSES
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.registry import StudyOptions
from undertone_studies.tops_methods import source

TITLE = "Streaming sanitizer: memory over blocks"
PARAGRAPH = (
    "The point of the paper by Kaplan and Stemmer is space: however long a stream is, its sanitizer needs no more "
    "memory than one block and the sanitizer of one block. While a stream is sanitized, the study measures the largest "
    "memory that Python and NumPy have allocated. The table shows this memory minus what was allocated before. "
    "Synthetic items are counted and thrown away, as in a release that writes them to a file. The study measures both "
    "classes of questions: `thresholds` (shares up to a value, quantiles) and `points` (shares of single values)."
)

BLOCK = 1000
BLOCKS = (1, 4, 16, 64, 256)
_BOUND = 4095
COLUMNS = ("class", "blocks k", "values", "released items", "held between blocks, bytes", "largest memory, bytes")


def run(options: StudyOptions) -> Outcome:
    """Measure the peak of the allocated memory for several numbers of blocks."""
    rows: list[tuple[Cell, ...]] = []
    for concepts in CLASSES:
        for k in BLOCKS[:3] if options.quick else BLOCKS:
            rows.append((concepts, k, k * BLOCK, *_measured(concepts, k, options.seed)))
    note = (
        f"The guarantee is pure ε = 1 for each value (event level). A block has {BLOCK} values from 0 to {_BOUND}, "
        "which arrive in parts of 100."
    )
    return Outcome(TITLE, COLUMNS, rows, [note, *notes_of(rows)])


def notes_of(rows: list[tuple[Cell, ...]]) -> list[str]:
    """Return by how much the memory grows from the fewest to the most blocks, as a sentence."""
    grown = []
    for concepts in CLASSES:
        of = [row for row in rows if row[0] == concepts]
        grown.append(f"{float(of[-1][5]) / float(of[0][5]):.2f} for `{concepts}`")
    most = rows[-1][1]
    return [
        f"The largest memory with {most} blocks, divided by the largest memory with one block, is "
        f"{' and '.join(grown)}."
    ]


def _measured(concepts: str, k: int, seed: int) -> tuple[int, int, int]:
    """Return (released items, largest number of bytes that are kept between blocks, largest memory in bytes)."""
    generator = np.random.default_rng(seed)
    made = Sanitizer(_BOUND, 1, source(seed, k, "space"), block=BLOCK, concepts=concepts)
    # Before the measurement, a first block makes everything that is made only once, such as the random bits of the
    # noise.
    made.extend(np.zeros(BLOCK, dtype=np.int64))
    tracemalloc.start()
    try:
        released = held = 0
        for _ in range(10 * k):
            released += len(made.extend(generator.integers(0, _BOUND + 1, BLOCK // 10)))
            held = max(held, 8 * len(made.state()["_held"]))
        return released, held, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
