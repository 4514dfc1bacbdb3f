"""Syntax trees of the sources, which several tests read: each file is parsed once in a process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement of a tree, those inside others included; expressions, which are most of a tree, are not visited."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.expr):
            yield node
            yield from statements(node)
