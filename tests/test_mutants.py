"""The list of equivalent mutants fits the code. If an entry fits no line any more, delete it or write it anew."""

import ast
import sys

from support.micropython import REPO

sys.path.append(str(REPO / "scripts"))
import mutants


def test_every_equivalent_mutant_is_one_of_the_code_and_has_its_tests() -> None:
    assert {file for file, _ in mutants.equivalent()} <= set(mutants.TESTS)
    for tests in mutants.TESTS.values():
        assert [path for path in tests if not (REPO / path).exists()] == []


SOURCE = """
import functools

LIMIT = 10

@functools.cache
def outer(x=20):
    def inner():
        return x < LIMIT
    return [y + 30 for y in range(40)] if inner() else None

class Kind:
    size = 50

    def grow(self):
        return self.size * 60
"""


def test_a_change_within_a_function_is_made_in_place_and_no_other() -> None:
    """Constants and nested functions are changed with their function.

    If code that runs at import changes, the module is imported anew.
    """
    tree = ast.parse(SOURCE)
    places = {}
    for number, (node, replacement) in enumerate(mutants.changes(tree)):
        replaced = mutants.replaced(SOURCE, number, "source.py")
        places[ast.unparse(node), ast.unparse(replacement)] = replaced and set(replaced)
    outer, grow = {("outer", 6)}, {("Kind.grow", 15)}
    assert places == {
        ("10", "11"): None,
        ("20", "21"): None,
        ("x < LIMIT", "x <= LIMIT"): outer,
        ("y + 30", "y - 30"): outer,
        ("30", "31"): outer,
        ("40", "41"): outer,
        ("50", "51"): None,
        ("self.size * 60", "self.size // 60"): grow,
        ("60", "61"): grow,
    }
