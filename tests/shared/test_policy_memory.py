"""How often a board collects garbage while it verifies a signature.

The test runs under CPython and stands in for MicroPython's `gc.threshold`.
"""

import gc

import pytest

from undertone_shared.errors import Refused
from undertone_shared.policy import parse_policy

POLICY = (
    b'{"version":1,"sensor":"energy","measures":["sum"],"cap":[2,1],"slot_seconds":1800,"theta":[1,1000],'
    b'"duration_seconds":86400,"signers":["%s"]}' % (b"00" * 32)
)


def test_a_signature_is_verified_without_collecting_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threshold is off during the verification.

    Then there is one collection, and the threshold is set as before.
    """
    calls: list[object] = []

    def threshold(*values: int) -> int:
        calls.append(values)
        return 4096

    monkeypatch.setattr(gc, "threshold", threshold, raising=False)
    monkeypatch.setattr(gc, "collect", lambda: calls.append("collect"))
    with pytest.raises(Refused) as refused:
        parse_policy(POLICY).check_signature(bytes(32), bytes(64))
    assert refused.value.reason == "signature"
    assert calls == [(), (-1,), "collect", (), (4096,)]


def test_cpython_collects_nothing_because_many_devices_may_share_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    monkeypatch.setattr(gc, "collect", lambda: calls.append("collect"))
    with pytest.raises(Refused):
        parse_policy(POLICY).check_signature(bytes(32), bytes(64))
    assert calls == []
