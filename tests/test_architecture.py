"""What the tree promises: imports point one way, the core names nothing that a plugin provides, importing is cheap."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import pytest

from .source_trees import parsed, statements

pytestmark = pytest.mark.every_case

ROOT = Path(__file__).parents[1]
CORE = ROOT / "rlx_core"

LAYERS = (
    ("errors", "public", "hints", "system"),
    ("ir", "typing", "trees"),
    ("device", "tuning"),
    ("models", "contributions", "hooks"),
    ("plugins",),
    ("ops", "linalg", "random", "fft"),
    ("codegen",),
    ("transforms",),
    ("passes",),
    ("pipeline",),
    ("run",),
    ("emit",),
    ("draw",),
    ("builtin", "kit"),
    ("runtime",),
    ("functions", "debug", "nn", "optim", "sequences", "special", "quantization", "builder"),
    ("files", "importing"),
    ("testing",),
    ("cli",),
)
"""From the bottom up: a module may import from its own layer and from those above it in this list."""

HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}

PACKAGES = {
    "sklearn": "scikit_learn",
    "pocl_binary_distribution": "pyopencl",
    "tests": "pyopencl",
    "Metal": "pyobjc_framework_Metal",
    "Foundation": "pyobjc_framework_Metal",
    "cupy": "cupy_cuda13x",
}
"""Packages that are imported by another name, or come with another."""

OF_PYTHON = {"_testcapi"}
"""Modules of CPython itself, which not every build of it has."""

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
    for node in statements(parsed(path)):
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


def within(path: Path) -> str:
    """A module by its full name."""
    source = CORE.parent if path.is_relative_to(CORE) else next(p for p in path.parents if p.name == "src")
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def imports(tree: ast.AST, is_late: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import that is ever run, and whether it stands inside a function; those for type checkers are not run."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, is_late
        elif not isinstance(node, ast.expr) and not (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ):
            yield from imports(node, is_late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def module_graph(paths: Iterable[Path]) -> dict[str, set[str]]:
    """Module → the modules that it imports, sooner or later, also as attributes of a package (decision 0078)."""
    files = {within(path): path for path in paths}
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        found: set[str] = set()
        tree, text = parsed(path), path.read_text(encoding="utf-8")
        for node, _ in imports(tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif node.module:
                found |= {s if (s := f"{node.module}.{alias.name}") in files else node.module for alias in node.names}
        packages = {each.rpartition(".")[2]: each for each in found}
        attributes = {f"{packages[a]}.{b}" for a, b in re.findall(r"\b(\w+)\.(\w+)", text) if a in packages}
        for node in ast.walk(tree) if attributes & files.keys() - found else ():
            if isinstance(node, ast.Attribute):
                package, _, attribute = ast.unparse(node).partition(".")
                found.add(f"{packages.get(package, '')}.{attribute}")
        graph[name] = found & files.keys() - {name}
    return graph


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Modules that reach one another: what is left when whatever is reached by, or reaches, nothing else in a circle is gone."""
    left = {name: set(found) for name, found in graph.items()}
    while True:
        reached = set().union(*left.values()) if left else set()
        ends = {name for name, found in left.items() if not found or name not in reached}
        if not ends:
            break
        left = {name: found - ends for name, found in left.items() if name not in ends}
    reach = {name: reachable(left, name) for name in left}
    return list({frozenset(m for m in reach[n] if n in reach[m]): None for n in left if n in reach[n]})


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        new = graph[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


def test_no_modules_import_one_another_in_a_circle() -> None:
    """Neither when they are imported nor later; what an earlier layer calls of a later one is registered with it."""
    assert circles(module_graph([*modules(), *(ROOT / "plugins").glob("*/src/**/*.py")])) == []


NATIVE = (
    ("packs", "machine", "threads"),
    ("contract",),
    ("work",),
    ("table",),
    ("llvm",),
    ("scalars", "movement"),
    ("loops", "scans", "ordering", "indexing", "fourier", "systems", "control", "runtime"),
    ("products",),
    ("attention",),
    ("listing", "replay", "sharing", "tuning"),
)
"""Folders and modules of the CPU's native tier, from the bottom up: each imports only itself and what is below it."""


def test_folders_of_native_code_import_only_what_is_below_them() -> None:
    package = "rlx_cpu.native."
    floor = {name: height for height, names in enumerate(NATIVE) for name in names}
    graph = module_graph((ROOT / "plugins/rlx_cpu/src/rlx_cpu/native").rglob("*.py"))
    part = {module: module.removeprefix(package).split(".")[0] for module in graph if module.startswith(package)}
    assert set(part.values()) == floor.keys(), "say in NATIVE where it stands"

    arrows = {(a, b) for a in part for b in graph[a] & part.keys() if part[a] != part[b]}
    assert [f"{a} imports {b}" for a, b in sorted(arrows) if floor[part[b]] >= floor[part[a]]] == []


def test_a_circle_is_found_wherever_it_lies() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": {"e"}, "e": set(), "f": {"g"}, "g": {"f", "a"}}
    assert sorted(map(sorted, circles(graph))) == [["b", "c"], ["f", "g"]]


def test_an_import_inside_a_function_says_why() -> None:
    """Only what is lazy for the sake of start-up is imported there. Commands and the tests of laws start late as a whole."""
    silent = []
    for path in modules():
        if part_of(path) in ("cli", "testing"):
            continue
        lines = path.read_text().splitlines()
        late = {n.lineno: n for n, is_late in imports(parsed(path)) if is_late}
        for number, node in late.items():
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            is_first = not any(n.end_lineno == number - 1 for n in late.values())
            is_said = "#" in lines[number - 1] or lines[number - 2].lstrip().startswith("#")
            if is_first and not is_said and any(name.startswith("rlx_core") for name in names):
                silent.append(f"{path.relative_to(ROOT)}:{number}")
    assert not silent


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
    files = [
        p
        for folder in ("tests", "plugins")
        for p in (ROOT / folder).rglob("*.py")
        if "tests" in p.parts and "oracle" not in p.parts
    ]
    asked = re.compile(r"""(?:importorskip|find_spec)\(\s*["'](\w+)""")
    needed = {name for p in files for name in asked.findall(p.read_text(encoding="utf-8"))}
    assert {"rlx_cpu", "llvmlite", "tokenizers"} <= needed
    deleted = {name for name in needed if name.startswith("rlx_") and not (ROOT / "plugins" / name).exists()}
    assert {PACKAGES.get(name, name) for name in needed - OF_PYTHON - deleted} <= installed


EMITTER_API = {"rlx_cpu.emitters", "rlx_cpu.native.table"}
"""What a package needs for machine code of its own on target `cpu` (decision 0021): loaded for that target only."""


SHARED = {"rlx_gpu", "rlx_models"}
"""Plugins that are also libraries, which other plugins may import."""


def test_plugins_import_the_core_shared_libraries_and_the_emitter_api() -> None:
    packages = {p.parent.name for p in (ROOT / "plugins").glob("*/src/*/__init__.py")}
    for package in packages:
        others = packages - {package} - (set() if package in SHARED else SHARED)
        for path in (ROOT / "plugins").glob(f"*/src/{package}/**/*.py"):
            text = path.read_text()
            imported = re.findall(rf"^(?:from|import) ((?:{'|'.join(others) or 'none'})\b[\w.]*)", text, re.M)
            assert set(imported) <= EMITTER_API, path
            assert set(re.findall(rf"^[ \t]+(?:from|import) ({'|'.join(others) or 'none'})\b", text, re.M)) == set(), (
                path
            )


NEUTRAL = ("ir", "contributions", "hooks", "plugins", "transforms", "pipeline", "runtime", "tuning")


def names_of_things() -> list[str]:
    """The full names of ops and passes, and of backends: what only `ops/`, `passes/` and plugins may say."""
    from rlx_core.ops import standard_ops

    ops = [op.name for op in standard_ops()]
    passes = re.findall(r'@define_pass\("([\w-]+)"', "".join(p.read_text() for p in (CORE / "passes").rglob("*.py")))
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


@pytest.mark.parametrize("system", ["onnx", "torch", "jax"])
def test_the_library_of_importers_names_no_other_system(system: str) -> None:
    named = [path.name for path in (CORE / "importing").glob("*.py") if system in path.read_text().lower()]
    assert not named


def test_the_core_names_no_backend_of_the_cpu() -> None:
    said = [
        str(path.relative_to(ROOT))
        for part in NEUTRAL
        for path in ([CORE / f"{part}.py"] if (CORE / f"{part}.py").exists() else sorted((CORE / part).rglob("*.py")))
        for constant in string_constants(path)
        if constant == "cpu"
    ]
    assert not said


VENDORS = frozenset(
    "amd ampere apple cublas cublaslt cubin cuda cudnn cufft cupy cupyx cusolver directx hip hipcc hiprtc hopper lavapipe metal "  # noqa: SIM905
    "msl naga nvcc nvidia nvrtc opencl pocl ptx ptxas pyobjc pyopencl rocblas rocm simdgroup spirv vulkan warpgroup warpgroups "
    "webgpu wgmma wgpu wgsl wmma xcode".split()
)
"""GPU vendors, and their products, interfaces and languages."""

INDEX_OF_PACKAGES = CORE / "hints" / "known_packages.toml"
"""Targets that a user may request before their packages are installed: their names are in no plugin yet."""


def words_of(text: str) -> set[str]:
    """The words of a text in lower case, and the parts of identifiers (`CUDA_HOME`, `CudaArray`)."""
    runs = re.findall(r"[A-Za-z]+", text.replace("amd64", ""))  # Windows' name of x86-64
    parts = (part for run in runs for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", run))
    return {word.lower() for word in chain(runs, parts)}


def test_no_file_of_the_core_mentions_a_vendor() -> None:
    """Neither in code, nor in prose, data or a file's name: `rlx_gpu` and the packages of targets have what depends on one."""
    files = [path for path in CORE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {".py", ".pyi", ".toml", ".tmpl"} <= {path.suffix for path in files}
    mentions = [
        f"{path.relative_to(ROOT)}: {', '.join(sorted(words))}"
        for path in files
        if path != INDEX_OF_PACKAGES
        and (words := VENDORS & words_of(f"{path.relative_to(CORE)}\n{path.read_text(encoding='utf-8')}"))
    ]
    assert mentions == []


@pytest.mark.parametrize(
    "text", ["CUDA_HOME", "for AMD's", "CudaArray", "has_metal", "sm90_ptx", "cupy.cuda", "OpenCL C", "`hip`"]
)
def test_a_vendor_is_found_in_text_and_identifiers(text: str) -> None:
    assert VENDORS & words_of(text)


@pytest.mark.parametrize("text", ["relationship", "amd64", "chip", "metallic", "scripted", "whip"])
def test_words_that_contain_the_letters_of_a_vendor_are_allowed(text: str) -> None:
    assert not VENDORS & words_of(text)


def test_the_core_imports_no_plugin_and_no_shared_library() -> None:
    """Not even late: packages of targets import the core, and are loaded by the addresses that they register."""
    plugins = {p.parent.name for p in (ROOT / "plugins").glob("*/src/*/__init__.py")}
    imported = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in modules()
        for node, _ in imports(parsed(path))
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
        if name.partition(".")[0] in plugins
    ]
    assert imported == []


def string_constants(path: Path) -> list[str]:
    """Strings that the program uses; docstrings are for people."""
    return [n.value for n in ast.walk(parsed(path)) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


DOORS = {
    "passes": {name: f"engine.{name}" for name in ("apply_rules", "base", "rule_checks", "rules", "runner")},
    "pipeline": {"config_reading": "config.reading"},
}
"""What the pages for authors import, and what is behind it."""


@pytest.mark.parametrize(("part", "door"), [(part, door) for part, doors in DOORS.items() for door in doors])
def test_a_door_for_authors_offers_all_that_is_behind_it(part: str, door: str) -> None:
    public = importlib.import_module(f"rlx_core.{part}.{door}")
    behind = importlib.import_module(f"rlx_core.{part}.{DOORS[part][door]}")
    assert set(public.__all__) == set(behind.__all__)
    assert all(vars(public)[name] is vars(behind)[name] for name in public.__all__)


def test_the_core_names_no_option_of_a_plugin() -> None:
    """Neither in code nor in what it says."""
    options = [
        name
        for path in (ROOT / "plugins").glob("*/src/*/plugin.py")
        for name in re.findall(r'OptionSpec\(\s*"([\w.-]+)"', path.read_text())
    ]
    said = [
        f"{path.relative_to(ROOT)} says {name}"
        for path in CORE.rglob("*")
        if path.is_file() and path.suffix in (".py", ".pyi", ".tmpl", ".toml")
        for name in options
        if name in path.read_text()
    ]
    assert not said


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
