"""The password file is read again: only new and changed entries are checked, and a damaged file changes nothing."""

import pytest

from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.endpoint import gate
from undertone_shared.errors import Invalid


def test_a_reload_checks_only_the_entries_that_changed(tmp_path, monkeypatch):
    path = tmp_path / "passwords"
    credentials.write_passwords(path, {f"load-{number:03d}": credentials.new_password() for number in range(50)})
    users = gate.Gate(path)
    checked = []
    whole = gate.password_matches
    monkeypatch.setattr(
        gate, "password_matches", lambda entry, password: checked.append(entry) or whole(entry, password)
    )
    credentials.change_passwords(path, {"load-050": "a password", "load-007": "another password"})
    assert users.reload() == {"load-007"}
    assert len(checked) == 2
    assert users.admits("load-007", "another password")
    kept = path.read_text(encoding="utf-8")
    for damaged in ("$7$damaged", "$6$1$c2FsdA==$aGFzaA=="):
        path.write_text(f"{kept}load-051:{damaged}\n", encoding="utf-8")
        with pytest.raises(Invalid):
            users.reload()
    assert users.admits("load-050", "a password")
