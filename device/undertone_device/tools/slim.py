"""Removal of names that a board never looks up, from the sources that are compiled for it.

Each name of a program needs a place in MicroPython's table of names, which is never freed. Each global name also needs
a place in its module. mpy-cross keeps all of them, because it sees one module at a time. Four kinds are removed: blocks
for type checkers; base classes from modules that no board carries; private constants of a module; and constants that
modules import from each other, unless a program on the board may use them.

A compiled file also contains the name of each module from which it imports. To need fewer modules, a name that another
of these modules has imported is imported from that module. To need shorter names, imports at the top of a file name
modules of the same package relative to the file.
"""

import ast
import copy
from collections.abc import Iterable, Mapping

Value = int | str | bytes
_CHECKED = "TYPE_CHECKING"
# An owner's sensor.py imports from these modules, so they keep all constants without an underscore.
_SENSORS = "undertone_device.sensors."


class Constants:
    """The constants of modules: names in capitals that are assigned once, an integer or a literal text or bytes.

    ``trees``: the modules of a board by dotted name. ``programs``: programs that may import the constants, such as
    main.py. A constant whose name begins with an underscore never stays. Any other one stays if a program imports it,
    if any code reads an attribute of that name, or if its module is one of the sensors'.
    """

    def __init__(self, trees: Mapping[str, ast.Module], programs: Iterable[ast.Module] = ()):
        self._trees = trees
        self._found: dict[str, dict[str, Value]] = {}
        self._imports: dict[str, set[tuple[str | None, str]]] = {}
        everything = list(trees.values()) + list(programs)
        self._kept = {node.attr for tree in everything for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        self._kept |= {name.name for tree in programs for name in _imported(tree)}

    def of(self, module: str) -> dict[str, Value]:
        """Return the values of the constants that ``module`` defines or imports, by their names in it."""
        if module not in self._found:
            self._found[module] = {}
            tree = self._trees.get(module, ast.Module([], []))
            stored = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and _is_stored(node)]
            found = self._found[module]
            for node in tree.body:
                if isinstance(node, ast.ImportFrom):
                    imported = self.of(node.module or "")
                    found.update(
                        {name.asname or name.name: imported[name.name] for name in node.names if name.name in imported}
                    )
                elif (name := _assigned(node)) and name.lstrip("_").isupper() and stored.count(name) == 1:
                    assert isinstance(node, ast.Assign)
                    value = _value(node.value, found)
                    if value is not None:
                        found[name] = value
        return self._found[module]

    def on_boards(self, module: str) -> bool:
        """Return False for a module of this project that no board carries, True for any other module."""
        return not module.startswith("undertone_") or module in self._trees

    def is_package(self, module: str) -> bool:
        """Return True if ``module`` is a package from which a board has modules."""
        return any(name.startswith(module + ".") for name in self._trees)

    def imports(self, module: str) -> set[tuple[str | None, str]]:
        """Return (module, name) of each name that the compiled ``module`` imports at its top and does not rename."""
        if module not in self._imports:
            self._imports[module] = set()
            if module in self._trees:
                body = _Slim(self, module).visit(copy.deepcopy(self._trees[module])).body
                self._imports[module] = {
                    (node.module, each.name)
                    for node in body
                    if isinstance(node, ast.ImportFrom)
                    for each in node.names
                    if each.asname is None
                }
        return self._imports[module]

    def removed(self, module: str) -> set[str]:
        """Return the names of the constants in ``of(module)`` that the compiled module does not contain."""
        shown = module.startswith(_SENSORS)
        return {name for name in self.of(module) if name.startswith("_") or not (shown or name in self._kept)}


class _Slim(ast.NodeTransformer):
    def __init__(self, constants: Constants, module: str):
        self._constants = constants
        self._module = module
        self._values = constants.of(module)
        self._removed = constants.removed(module)
        self._absent: set[str] = set()

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.AST]:
        if ast.unparse(node.test) == _CHECKED:
            return [self.visit(statement) for statement in node.orelse]
        return self.generic_visit(node)

    def visit_Try(self, node: ast.Try) -> ast.AST | None:
        first = node.body[0]
        if isinstance(first, ast.ImportFrom) and not self._constants.on_boards(first.module or ""):
            self._absent.update(name.name for name in first.names)
            return None
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.bases = [base for base in node.bases if ast.unparse(base) not in self._absent]
        return self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        node.names = [name for name in node.names if (name.asname or name.name) not in self._values]
        return node if node.names else None

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        name = _assigned(node)
        if name in self._removed or name == _CHECKED:
            return None
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load) and node.id in self._values:
            return ast.copy_location(ast.Constant(self._values[node.id]), node)
        return node


def slim(tree: ast.Module, constants: Constants, module: str) -> str:
    """Return the source of ``tree``, which is ``module``, without the names that a board never looks up."""
    slimmed = _Slim(constants, module).visit(tree)
    _join_imports(slimmed, constants)
    _shorten_imports(slimmed, constants, module)
    return ast.unparse(ast.fix_missing_locations(slimmed)) + "\n"


def _join_imports(tree: ast.Module, constants: Constants) -> None:
    """If ``tree`` imports from modules A and B, and A has imported the same names from B, import all of them from A."""
    for node in [node for node in tree.body if isinstance(node, ast.ImportFrom)]:
        for other in tree.body:
            if isinstance(other, ast.ImportFrom) and other is not node:
                known = constants.imports(other.module or "")
                if all(each.asname is None and (node.module, each.name) in known for each in node.names):
                    other.names += node.names
                    tree.body.remove(node)
                    break


def _shorten_imports(tree: ast.Module, constants: Constants, module: str) -> None:
    """Name modules of the package that contains ``module`` relative to it, at the top of ``tree``."""
    if constants.is_package(module):
        return
    here = module.split(".")
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and not node.level:
            there = (node.module or "").split(".")
            common = 0
            while common < min(len(here) - 1, len(there)) and here[common] == there[common]:
                common += 1
            if common:
                node.level = len(here) - common
                node.module = ".".join(there[common:]) or None


def _imported(tree: ast.Module) -> list[ast.alias]:
    return [name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names]


def _assigned(node: ast.AST) -> str | None:
    """Return the name that a statement ``NAME = value`` assigns."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None


def _is_stored(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)


def _value(node: ast.expr, names: Mapping[str, Value]) -> Value | None:
    """Return the value of literals, or of an integer expression of literals and ``names``; None for others."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) in (int, str, bytes) else None  # type: ignore[return-value]
    try:
        value = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}}, dict(names))
    except Exception:  # The expression uses a name that only a board or another module knows.
        return None
    return value if type(value) is int else None
