"""Many devices of one process verify each signature once; see `undertone_simulator.wire.fleet_process.verify_once`."""

import pytest

from undertone_shared import ed25519
from undertone_simulator.wire.fleet_process import verify_once


def test_devices_that_share_a_processor_verify_a_signature_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """If each of 300 devices verified a new epoch itself, this would take longer than a slot of 2 s."""
    asked: list[bytes] = []

    def verify(key: bytes, message: bytes, signature: bytes, alive: object = None) -> bool:
        asked.append(message)
        return message == b"good"

    monkeypatch.setattr(ed25519, "verify", verify)
    verify_once()
    for _ in range(300):
        assert ed25519.verify(b"key", b"good", b"signature")
        assert not ed25519.verify(b"key", b"forged", b"signature")
    assert asked == [b"good", b"forged"]
    assert ed25519.verify(b"key", memoryview(b"good"), b"signature", lambda: None)  # type: ignore[arg-type]
