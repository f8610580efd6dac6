"""Less to load for a board, before mpy-cross: what only people and type checkers read is left out of a module.

A board keeps each distinct name for good, 8 bytes and its length, and every .mpy file lists the names that it uses. So
private names, parameters and what only these modules call each other by become short names, whole-number constants
become their values where they are used, and modules of one package import each other relatively. What a board's program
or an example says stays, with everything of the classes that it names; so do parameters that are passed by name.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence

from undertone_device.tools.names import (
    BUILTINS,
    ENDS,
    FOREIGN,
    LETTERS,
    bound,
    constants,
    defined,
    digits,
    keywords,
    strings,
    words,
)

Constants = Mapping[str, Mapping[str, int | str]]


class Shortener:
    """``modules``: dotted name to source of everything that boards load; ``callers``: sources of what uses them."""

    def __init__(self, modules: Mapping[str, str], callers: Iterable[str]) -> None:
        callers = list(callers)
        trees = {name: _Bare().visit(ast.parse(source)) for name, source in modules.items()}
        self._constants = {name: constants(source) for name, source in modules.items()}
        self._keywords = keywords(list(modules.values()) + callers)
        said = {name for source in callers for name in words(ast.parse(source))}
        said |= {word for tree in trees.values() for word in strings(tree)}
        for tree in trees.values():
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and node.name in said:
                    said |= set(defined(node))
        own = {name for tree in trees.values() for name in defined(tree)}
        modules_names = {part for name in modules for part in name.split(".")}
        self._said = frozenset(said)
        internal = [name for name in sorted(own - said - self._keywords - FOREIGN - modules_names) if name[0] != "_"]
        used = said | FOREIGN | self._keywords
        used |= {word for tree in trees.values() for word in words(tree)}
        used |= {node.arg for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.arg)}
        # One letter within a module, two beyond it.
        self._letters = [name for name in LETTERS if name not in used]
        pairs = (a + b for a in LETTERS for b in ENDS if a + b not in used)
        self._internal = dict(zip(internal, pairs, strict=False))

    def shorten(self, source: str, package: str) -> str:
        """A module's source for the compiler."""
        inlined = _Inlined(package, self._constants, constants(source), self._said)
        tree = ast.fix_missing_locations(inlined.visit(_Bare().visit(ast.parse(source))))
        return ast.unparse(
            ast.fix_missing_locations(_Renamed(tree, self._keywords, self._internal, self._letters).visit(tree))
        )


class _Bare(ast.NodeTransformer):
    """Drops what is for type checkers."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return None
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        target = node.targets[0]
        return None if isinstance(target, ast.Name) and target.id == "TYPE_CHECKING" else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return ast.Pass()
        return self.generic_visit(ast.Assign(targets=[node.target], value=node.value))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        for argument in node.args.args + node.args.kwonlyargs + [node.args.vararg, node.args.kwarg]:
            if argument is not None:
                argument.annotation = None
        return self.generic_visit(node)


class _Inlined(ast.NodeTransformer):
    """Puts constants in their places, imports within the package relatively."""

    def __init__(self, package: str, known: Constants, own: Mapping[str, int | str], said: frozenset[str]) -> None:
        self._package = package
        self._known = known
        self._values = dict(own)
        self._said = said
        self._modules: dict[str, str] = {}

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        target = node.targets[0]
        # Its value stands wherever it is used.
        if isinstance(target, ast.Name) and target.id in self._values and target.id not in self._said:
            return None
        return self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        for alias in node.names:
            self._modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        values = self._known.get(node.module or "", {})
        self._values |= {alias.name: values[alias.name] for alias in node.names if alias.name in values}
        node.names = [alias for alias in node.names if alias.name not in values]
        if not node.names:
            return None
        package, _, module = (node.module or "").partition(".")
        return ast.ImportFrom(module or None, node.names, 1) if package == self._package else node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load) and node.id in self._values:
            return ast.Constant(self._values[node.id])
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        module = self._modules.get(node.value.id, "") if isinstance(node.value, ast.Name) else ""
        if node.attr in self._known.get(module, {}):
            return ast.Constant(self._known[module][node.attr])
        return self.generic_visit(node)


class _Renamed(ast.NodeTransformer):
    """Private names and parameters as A, B, ..., _0, _1, ... in the order of first use: the same in every module."""

    def __init__(
        self, tree: ast.AST, kept: frozenset[str], internal: Mapping[str, str], letters: Sequence[str]
    ) -> None:
        self._internal = internal
        self._letters = letters
        public = {name for statement in getattr(tree, "body", ()) for name in bound(statement)}
        parameters = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        free = BUILTINS | public | kept | {"self", "cls"}
        self._parameters = {name for name in parameters if name not in free}
        self._short: dict[str, str] = {}

    def _new(self, name: str) -> str:
        if name in self._parameters or (name.startswith("_") and not name.startswith("__")):
            number = len(self._short) - len(self._letters)
            return self._short.setdefault(name, f"_{digits(number)}" if number >= 0 else self._letters[number])
        return self._internal.get(name, name)

    def _member(self, name: str) -> str:
        """The name of an attribute or a function, which is no parameter's whatever it is called."""
        return self._internal.get(name, name) if name in self._parameters else self._new(name)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._new(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self._new(node.arg)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.attr = self._member(node.attr)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._member(node.name)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self._new(node.name)
        return self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> ast.AST:
        node.names = [self._new(name) for name in node.names]
        return node

    visit_Nonlocal = visit_Global  # type: ignore[assignment]

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = None if node.name is None else self._new(node.name)
        return self.generic_visit(node)

    def visit_alias(self, node: ast.alias) -> ast.AST:
        local = self._new(node.asname or node.name)
        node.name = self._internal.get(node.name, node.name)
        node.asname = local if local != node.name else None
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        if node.arg is not None and node.arg not in self._parameters:
            node.arg = self._new(node.arg)
        return self.generic_visit(node)
