"""What the tree promises: imports point one way, the core names nothing that a plugin provides, importing is cheap."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest

pytestmark = pytest.mark.every_case

ROOT = Path(__file__).parents[1]
CORE = ROOT / "rlx_core"

LAYERS = (
    ("errors", "public", "expected", "locks", "private", "floating"),
    ("ir", "typing"),
    ("contributions", "hooks"),
    ("plugins",),
    ("ops", "nn", "linalg"),
    ("codegen",),
    ("transforms",),
    ("passes",),
    ("pipeline",),
    ("builtin", "formats"),
    ("runtime", "builder"),
    ("testing",),
    ("cli",),
)
"""From the bottom up: a module may import from its own layer and from those above it in this list."""

HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}

PACKAGES = {"sklearn": "scikit_learn"}
"""Packages that are imported by another name."""

DECLARED = {
    # Each arrow that runs backwards on purpose, with the reason beside the import itself.
    ("pipeline", "builtin"),
}


def modules() -> list[Path]:
    return sorted(p for p in CORE.rglob("*.py") if p.name != "__init__.py" or p.parent != CORE)


def part_of(path: Path) -> str:
    first = path.relative_to(CORE).parts[0]
    return first.removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    """The parts of rlx_core that a module imports, at its top or inside a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rlx_core"):
            names = [node.module] if node.module != "rlx_core" else [f"rlx_core.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names if a.name.startswith("rlx_core.")]
        else:
            continue
        found |= {name.split(".")[1] for name in names if "." in name}
    return found


def test_imports_point_one_way() -> None:
    backwards = [
        f"{path.relative_to(ROOT)} imports rlx_core.{part}, which is above it"
        for path in modules()
        for part in imported_parts(path)
        if part in HEIGHT
        and part_of(path) in HEIGHT
        and HEIGHT[part] > HEIGHT[part_of(path)]
        and (part_of(path), part) not in DECLARED
    ]
    assert not backwards, "\n".join(backwards)


def test_the_version_is_said_alike() -> None:
    """Packages of one checkout are released together."""
    import rlx_core

    said = {
        p: tomllib.loads(p.read_text())["project"]["version"]
        for p in [ROOT / "pyproject.toml", *ROOT.glob("plugins/*/pyproject.toml")]
    }
    assert set(said.values()) == {rlx_core.__version__}


def test_every_part_has_its_layer() -> None:
    parts = {part_of(p) for p in modules()}
    assert parts - HEIGHT.keys() == set(), "say in LAYERS where it stands"


def test_make_test_installs_whatever_tests_are_skipped_without() -> None:
    """A skip for want of a package is for those who run tests without `make`."""
    declared = [
        tomllib.loads(p.read_text())["project"]
        for p in (ROOT / "pyproject.toml", *ROOT.glob("plugins/*/pyproject.toml"))
    ]
    wanted = [
        d
        for p in declared
        for d in (p["name"], *p["dependencies"], *chain.from_iterable(p.get("optional-dependencies", {}).values()))
    ]
    installed = {re.split(r"[^\w-]", name)[0].replace("-", "_") for name in wanted}
    files = [p for folder in ("tests", "plugins") for p in (ROOT / folder).rglob("*.py") if "oracle" not in p.parts]
    asked = re.compile(r"""(?:importorskip|find_spec)\(\s*["'](\w+)""")
    needed = {name for p in files for name in asked.findall(p.read_text(encoding="utf-8"))}
    assert {"rlx_cpu", "llvmlite", "tokenizers"} <= needed
    assert {PACKAGES.get(name, name) for name in needed} <= installed


def test_plugins_import_the_core_and_never_one_another() -> None:
    packages = {p.parent.name for p in (ROOT / "plugins").glob("*/src/*/__init__.py")}
    for package in packages:
        others = packages - {package}
        for path in (ROOT / "plugins").glob(f"*/src/{package}/**/*.py"):
            text = path.read_text()
            assert not re.findall(rf"^\s*(?:from|import) ({'|'.join(others) or 'none'})\b", text, re.M), path


NEUTRAL = ("ir", "contributions", "hooks", "plugins", "transforms", "pipeline", "runtime")


def names_of_things() -> list[str]:
    """The full names of ops and passes, and of backends: what only `ops/`, `passes/` and plugins may say."""
    from rlx_core.ops import standard_ops

    ops = [op.name for op in standard_ops()]
    passes = re.findall(r'@define_pass\("([\w-]+)"', "".join(p.read_text() for p in (CORE / "passes").glob("*.py")))
    return ops + [f"rlx.{p}" for p in passes]


def test_the_core_names_no_op_and_no_pass() -> None:
    quoted = re.compile(r"""["'](rlx\.[a-z0-9_-]+)["']""")
    known = set(names_of_things())
    said = [
        f"{path.relative_to(ROOT)} says {name}"
        for part in NEUTRAL
        for path in ([CORE / f"{part}.py"] if (CORE / f"{part}.py").exists() else sorted((CORE / part).rglob("*.py")))
        for name in quoted.findall(path.read_text())
        if name in known
    ]
    assert not said, "\n".join(said)


@pytest.mark.parametrize("backend", ["cuda", "rocm", "metal", "wgpu", "cpu"])
def test_the_core_names_no_backend(backend: str) -> None:
    said = [
        str(path.relative_to(ROOT))
        for part in NEUTRAL
        for path in ([CORE / f"{part}.py"] if (CORE / f"{part}.py").exists() else sorted((CORE / part).rglob("*.py")))
        for constant in string_constants(path)
        if constant == backend
    ]
    assert not said, f"{backend!r} in {said}"


def string_constants(path: Path) -> list[str]:
    """Strings that the program uses; docstrings are for people."""
    return [
        n.value
        for n in ast.walk(ast.parse(path.read_text()))
        if isinstance(n, ast.Constant) and isinstance(n.value, str)
    ]


def test_importing_rlx_imports_no_plugin_and_none_of_its_parts() -> None:
    code = "import sys, rlx_core; print(sorted(m for m in sys.modules if m.startswith('rlx')))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "['rlx_core', 'rlx_core.public']"


def test_public_names_exist_and_the_stub_has_the_same() -> None:
    import rlx_core
    import rlx_core.ops

    for package in (rlx_core, rlx_core.ops):
        stub = ast.parse(Path(package.__path__[0], "__init__.pyi").read_text())
        # `import x as x` is what a stub offers; what it imports otherwise is for its own annotations.
        stubbed = {a.asname for n in stub.body if isinstance(n, ast.ImportFrom) for a in n.names if a.asname}
        stubbed |= {n.name for n in stub.body if isinstance(n, ast.FunctionDef)}
        for name in package.__all__:
            assert hasattr(package, name), name
        assert stubbed == set(package.__all__)


def test_a_public_name_is_looked_up_once() -> None:
    code = (
        "import rlx_core as rlx; from rlx_core import transforms\n"
        "print('exp' in vars(rlx), rlx.exp is rlx.exp, 'exp' in vars(rlx), callable(transforms.linearize) and "
        "transforms.linearize is transforms.linearize)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "False True True True"


def test_no_public_name_of_ops_is_a_module_of_it() -> None:
    """Such a name would mean the function or the module, by which of them was imported first."""
    from rlx_core import ops

    assert not set(ops.__all__) & set(ops.family_names())
