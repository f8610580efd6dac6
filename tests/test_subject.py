"""The subject of a commit names an area and fits into one line of a log."""

import subprocess

import pytest

from support.micropython import REPO


def checked(subject, tmp_path):
    message = tmp_path / "message"
    message.write_text(f"{subject}\n\nMore lines, however long they are, are not the subject.\n", encoding="utf-8")
    command = [REPO / "scripts/subject.sh", message]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=False)


@pytest.mark.parametrize(
    "subject",
    [
        "endpoint: raise the limit of open files",
        "device core: keep the number of a hand-over",
        "docs: " + "x" * 66,
        'Revert "endpoint: raise the limit of open files"',
    ],
)
def test_a_subject_with_an_area_passes(subject, tmp_path):
    done = checked(subject, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "subject",
    ["Raise the limit of open files", "docs: " + "x" * 67, "docs: end.", "docs:no space", "docs: ", ""],
)
def test_any_other_subject_is_refused_in_a_sentence(subject, tmp_path):
    done = checked(subject, tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"the subject is '{subject}', expected 'area: what the commit does'")
