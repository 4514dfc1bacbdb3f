"""Numbers of the tree that may fall and not rise: a change that lowers one writes the lower number here."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from .source_trees import parsed, statements

pytestmark = pytest.mark.every_case

ROOT = Path(__file__).parents[1]

MAX_REPEATED_CLASS_NAMES = 10
"""How many names may belong to more than one class, over `rlx_core` and the plugins without their tests."""


MAX_IMPORTED_MODULES = (358, 150)
"""How many modules of rlx the first `jit` of one op imports: with an empty cache, and with a full one."""

FIRST_JIT = """
import sys
import numpy as np
import rlx_core as rlx

rlx.jit(lambda x: x + 1)(np.ones(4, np.float32))
print(sum(name.partition(".")[0] in ("rlx_core", "rlx_cpu") for name in sys.modules))
"""


@cache
def sources() -> Mapping[str, ast.Module]:
    """The parsed modules of the core and the plugins, by their dotted names; tests are left out."""
    roots = [ROOT, *ROOT.glob("plugins/*/src")]
    paths = [(root, path) for root in roots for path in root.glob("rlx_*/**/*.py") if not path.name.startswith("test_")]
    return {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): parsed(path)
        for root, path in paths
    }


@cache
def class_names() -> dict[str, list[str]]:
    """The modules that define a class of each name, nested classes included."""
    defined: dict[str, list[str]] = {}
    for module, tree in sources().items():
        for node in statements(tree):
            if isinstance(node, ast.ClassDef):
                defined.setdefault(node.name, []).append(module)
    return defined


def imported(module: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The module and the name of everything that a module imports from the tree by `from … import …`."""
    is_package = any(other.startswith(f"{module}.") for other in sources())
    for node in statements(tree):
        if isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            base = parts[: len(parts) - node.level + is_package] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((source, alias.name) for alias in node.names)


def defining(source: str, name: str) -> str:
    """The module that defines a name which another may pass on."""
    tree = sources().get(source)
    if tree is not None and not any(isinstance(n, ast.ClassDef) and n.name == name for n in tree.body):
        for origin, each in imported(source, tree):
            if each == name or (each == "*" and origin in class_names().get(name, ())):
                return defining(origin, name)
    return source


def test_few_class_names_are_repeated() -> None:
    repeated = {name: modules for name, modules in class_names().items() if len(modules) > 1}
    listing = "\n".join(f"{name}: {', '.join(modules)}" for name, modules in sorted(repeated.items()))
    assert len(repeated) == MAX_REPEATED_CLASS_NAMES, f"{len(repeated)} names belong to several classes:\n{listing}"


def test_the_first_jit_imports_few_modules(tmp_path: Path) -> None:
    environment = {**os.environ, "RLX_CACHE_DIR": str(tmp_path)}
    for most in MAX_IMPORTED_MODULES:
        done = subprocess.run(
            [sys.executable, "-c", FIRST_JIT], capture_output=True, text=True, check=True, env=environment
        )
        assert int(done.stdout) <= most


def test_classes_of_one_module_have_different_names() -> None:
    """A module imports no two classes of one name, and none of the name of a class of its own."""
    classes = class_names()
    clashes: dict[str, set[str]] = {}
    for module, tree in sources().items():
        own = {(module, node.name) for node in tree.body if isinstance(node, ast.ClassDef)}
        places: dict[str, set[str]] = {}
        for source, name in {*imported(module, tree), *own}:
            if name in classes and source in sources():
                places.setdefault(name, set()).add(defining(source, name))
        for name, found in places.items():
            if len(found) > 1:
                clashes.setdefault(name, set()).add(module)
    assert not clashes, f"modules that see two classes of one name: {clashes}"
