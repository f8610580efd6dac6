"""CPython, numpy and MicroPython give the same symbols for 100,000 draws from one stream of bytes."""

from pathlib import Path

import numpy as np
import pytest
import stream_draws as shared

from support import micropython as mp
from undertone_shared.entropy import BUFFER_BYTES
from undertone_simulator.fast.draws import GivenWords
from undertone_simulator.fast.vectorised import symbols

HERE = Path(__file__).parent / "both"


@pytest.fixture(scope="module")
def expected():
    lines = list(shared.digests())
    assert len(lines) * 1000 == 100_000
    return lines


def test_numpy(expected):
    stream = shared.Stream()
    draws = np.arange(shared.DRAWS)
    data = np.frombuffer(stream.data, dtype=np.uint8)
    words = data[(draws * 211 % 16384)[:, None] + np.arange(BUFFER_BYTES)].copy().view("<u4").astype(np.uint32)
    lines = []
    for name, mechanism, theta in shared.chosen():
        drawn = symbols(mechanism, shared.reading(draws, theta), theta, GivenWords(words)).astype("<u4")
        lines += [shared.line(name, i, part.tobytes()) for i, part in enumerate(drawn.reshape(-1, 1000))]
    assert lines == expected


def test_micropython(expected, micropython):
    result = micropython(HERE / "stream_draws.py", paths=(*mp.SOURCES, HERE))
    assert result.stdout.splitlines() == expected, result.stderr


@pytest.mark.micropython
@pytest.mark.micropython32
@pytest.mark.skipif(mp.interpreter32() is None, reason=mp.MISSING32)
@pytest.mark.parametrize("draws", [4000, pytest.param(shared.DRAWS, marks=pytest.mark.slow)])
def test_micropython32(expected, draws):
    files = {f"/lib/{p.name}": p for p in HERE.glob("*.py")}
    code = (HERE / "stream_draws.py").read_text(encoding="utf-8").replace("__main__", "never")
    result = mp.run_micropython32(
        code + f"\nfor text in digests({draws}):\n    print(text)\n", files=files, timeout=280
    )
    among = [line for line in expected if int(line.split()[-2]) < draws // 1000]
    assert result.stdout.splitlines() == among, result.stderr
