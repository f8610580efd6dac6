"""Which names a module says, defines and binds, and which belong to somebody else: what `shorten` decides by."""

import ast
import binascii
import builtins
import errno
import gc
import hashlib
import io
import json
import os
import select
import socket
import ssl
import string
import struct
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any


def keywords(sources: Iterable[str]) -> frozenset[str]:
    """The names that callers in these sources pass arguments by."""
    return frozenset(
        keyword.arg
        for source in sources
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if keyword.arg is not None
    )


def constants(source: str) -> dict[str, int | str]:
    """The whole numbers and texts that a module names once at its top, all in capitals."""
    tree = ast.parse(source)
    values: dict[str, int | str] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name) and target.id.isupper():
                text = statement.value.value if isinstance(statement.value, ast.Constant) else None
                value = text if isinstance(text, str) else _integer(statement.value, values)
                if value is not None:
                    values[target.id] = value
    bound = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return {name: value for name, value in values.items() if bound.count(name) == 1}


def bound(statement: ast.stmt) -> Iterable[str]:
    """Names that a statement of a module binds there."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]


def _integer(node: ast.expr, values: Mapping[str, int | str]) -> int | None:
    """The whole number of an expression of numbers and constants, None for any other."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.Name):
        value = values.get(node.id)
        return value if isinstance(value, int) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        operand = _integer(node.operand, values)
        return None if operand is None else -operand
    if isinstance(node, ast.BinOp):
        left, right = _integer(node.left, values), _integer(node.right, values)
        if left is None or right is None:
            return None
        return _OPERATIONS[type(node.op)](left, right) if type(node.op) in _OPERATIONS else None
    return None


def digits(number: int) -> str:
    """A number in the fewest characters of a name."""
    return ENDS[number] if number < len(ENDS) else digits(number // len(ENDS)) + ENDS[number % len(ENDS)]


def words(tree: ast.AST) -> Iterable[str]:
    """Every name that a source says."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield from node.name.split(".")
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
    yield from strings(tree)


def strings(tree: ast.AST) -> Iterable[str]:
    """Words in a source's strings, but for what it says of itself: fields of files, names that getattr asks for."""
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield from node.value.replace(".", " ").split()


def defined(tree: ast.AST) -> Iterable[str]:
    """What a module or class defines: functions, classes, constants, attributes of self."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name) and target.id.isupper())


BUILTINS = frozenset(dir(builtins))
LETTERS = string.ascii_uppercase
ENDS = string.digits + string.ascii_lowercase + string.ascii_uppercase
# What strings, files, sockets and modules of other people have.
_THINGS: tuple[Any, ...] = (
    "", b"", bytearray(), memoryview(b""), 0, [], {}, (), set(), io.BytesIO(), OSError(), binascii, errno, gc, hashlib,
    hashlib.sha256(), json, os, select, select.poll(), socket, socket.socket, ssl, ssl.SSLContext, struct, sys, time,
)  # fmt: skip
FOREIGN = frozenset(name for thing in _THINGS for name in dir(thing)) | {
    "readinto", "ipoll", "ticks_ms", "ticks_diff", "sleep_ms", "mem_free", "mem_alloc",
}  # fmt: skip
_OPERATIONS = {
    ast.Add: int.__add__,
    ast.Sub: int.__sub__,
    ast.Mult: int.__mul__,
    ast.LShift: int.__lshift__,
    ast.FloorDiv: int.__floordiv__,
}
