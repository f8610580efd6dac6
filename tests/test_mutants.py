"""The list of equivalent mutants fits the code: an entry that fits no line any more is deleted, or written anew."""

import sys

from support.micropython import REPO

sys.path.append(str(REPO / "scripts"))
import mutants


def test_every_equivalent_mutant_is_one_of_the_code_and_has_its_tests() -> None:
    assert {file for file, _ in mutants.equivalent()} <= set(mutants.TESTS)
    for tests in mutants.TESTS.values():
        assert [path for path in tests if not (REPO / path).exists()] == []
