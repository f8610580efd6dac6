"""Draws from a fixed stream of bytes, under any interpreter.

Prints one digest for every thousand draws of each mechanism.
"""

import hashlib

from shipped import mechanisms
from small_mechanisms import SMALL

from undertone_shared.entropy import BUFFER_BYTES, Entropy

NAMES = ("table", "square wave", "stochastic rounding 0.5", "piecewise 2", "hybrid 1")
THETA = {"stochastic rounding 0.5": 613, "piecewise 2": 1000, "hybrid 1": 613}
DRAWS = 20000
TEXT = b"undertone stream %d"


class Stream:
    """16 KB of chained sha256 digests.

    Each refill begins to read at another place, an odd number of bytes further on.
    """

    def __init__(self):
        digest = b""
        data = b""
        for i in range(512):
            digest = hashlib.sha256(digest + TEXT % i).digest()
            data += digest
        self.data = data + data[:BUFFER_BYTES]
        self.next = 0

    def seek(self, draw):
        self.next = draw * 211 % 16384

    def fill(self, entropy):
        """Fill the buffer as ``refill`` does, but without the health test, which would take most of the time here."""
        entropy._buffer[:] = self.data[self.next : self.next + BUFFER_BYTES]
        entropy._next = 0

    def __call__(self, n):
        taken = self.data[self.next : self.next + n]
        self.next += n
        return taken


def reading(draw, theta):
    """The reading in [0, theta] for the draw of number ``draw``."""
    return draw * 7919 % (theta + 1)


def chosen():
    known = [(name, mechanism, THETA.get(name, theta)) for name, mechanism, theta in SMALL + mechanisms()]
    return [(name, mechanism, theta or 50) for name, mechanism, theta in known if name in NAMES]


def digests(draws=DRAWS):
    """Yield a line for each 1000 draws: the mechanism's name, the number of the line, the digest of the symbols."""
    stream = Stream()
    entropy = Entropy(stream)
    for name, mechanism, theta in chosen():
        symbols = b""
        for i in range(draws):
            stream.seek(i)
            if i % 10:
                stream.fill(entropy)
            else:
                entropy.refill()
            part = mechanism.choose(entropy)
            symbol = part.draw(part.level(reading(i, theta), theta, entropy), entropy)
            symbols += bytes((symbol & 255, symbol >> 8 & 255, symbol >> 16, 0))
            if i % 1000 == 999:
                yield line(name, i // 1000, symbols)
                symbols = b""


def line(name, thousand, symbols):
    return "%s %d %s" % (name, thousand, "".join("%02x" % byte for byte in hashlib.sha256(symbols).digest()[:8]))


if __name__ == "__main__":
    for text in digests():
        print(text)
