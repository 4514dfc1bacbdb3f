"""Names from elsewhere: what is said about them is right, and the page shows the same."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import rlx_core as rlx
from rlx_core import nn, ops, optim
from rlx_core.errors import AbsentNameError, TraceError
from rlx_core.hints.expected import ELSEWHERE, RENAMED, hint_for
from rlx_core.hints.keywords import CHANGED_ORDER, RENAMED_ARGUMENTS
from rlx_core.public import CORE, FUNCTIONS

PAGE = Path(__file__).parents[2] / "docs" / "names.md"
MODULES = {"rlx": rlx, "nn": nn, "optim": optim}
PUBLIC = {*CORE, *FUNCTIONS}


def rows() -> str:
    """The tables of the page."""
    renamed = [f"| {' '.join(f'`{n}`' for n in names.split())} | `{here}` |" for here, names in RENAMED.items()]
    elsewhere = [f"| `{name}` | {instead} |" for name, instead in ELSEWHERE.items()]
    head = "| elsewhere | here |\n|---|---|\n"
    return "\n\n".join(head + "\n".join(rows) for rows in (renamed, elsewhere))


def test_what_is_named_instead_exists() -> None:
    said = [*RENAMED, *ELSEWHERE.values()]
    named = {match for text in said for match in re.findall(r"\b(rlx|nn|optim)\.(\w+)", text)}
    assert len(named) > 80
    assert [f"{m}.{n}" for m, n in sorted(named) if not hasattr(MODULES[m], n)] == []


def test_no_name_that_rlx_has_is_said_to_be_elsewhere() -> None:
    others = [*ELSEWHERE, *(name for names in RENAMED.values() for name in names.split())]
    assert len(others) == len(set(others))
    assert set(others) & PUBLIC == set()


def test_every_op_that_is_listed_is_found_in_python_or_said_where() -> None:
    names = [op.name.removeprefix("rlx.") for op in ops.standard_ops()]
    assert [n for n in names if n not in PUBLIC and hint_for(n, ()) is None] == []


@pytest.mark.parametrize(
    ("module", "name", "says"),
    [
        (rlx, "cumsum", "rlx calls it rlx.cumulative_sum"),
        (rlx, "transpose", "rlx calls it rlx.permute_dims"),
        (rlx, "map_fn", "rlx calls it rlx.map"),
        (rlx, "randn", "rlx.random.normal"),
        (rlx, "ShapeError", "from rlx_core.errors import ShapeError"),
        (rlx, "sofmax", "did you mean `softmax`?"),
        (rlx, "fused_swiglu", "the compiler makes this op"),
        (nn, "Linear", "rlx calls it nn.linear"),
        (nn, "sofmax", "did you mean `softmax`?"),
        (nn, "grad", "it is rlx.grad"),
        (optim, "AdamW", "rlx calls it optim.adamw"),
        (optim, "adamx", "did you mean `adam`?"),
        (ops, "jit", "it is rlx.jit"),
        (rlx, "sharding", "there is no sharding"),
        (rlx, "pmap", "rlx.vmap maps over an axis"),
        (rlx, "float8_e4m3fn", "there is no such element type"),
        (rlx, "quantize", "rlx.quantization.quantize_linear(x, scale)"),
        (rlx, "config", "options are arguments"),
        (rlx, "array", "rlx.asarray"),
        (rlx, "ragged_dot", "where ragged_dot takes sizes of groups"),
        (ops, "concatenate", "rlx calls it rlx.concat"),
    ],
)
def test_an_absent_name_says_what_there_is_instead(module: object, name: str, says: str) -> None:
    with pytest.raises(AbsentNameError) as caught:
        getattr(module, name)
    assert says in str(caught.value.hint)
    assert not hasattr(module, name)


def test_a_name_like_nothing_else_has_no_hint() -> None:
    with pytest.raises(AbsentNameError) as caught:
        rlx.zzzz  # type: ignore[attr-defined]
    assert caught.value.hint is None


@pytest.mark.parametrize("name", ["key_reuse", "hard_shard", "floating8", "mesh_utils", "named_scope"])
def test_a_distant_name_is_not_suggested(name: str) -> None:
    with pytest.raises(AbsentNameError) as caught:
        getattr(rlx, name)
    assert "did you mean" not in str(caught.value.hint)


@pytest.mark.medium
def test_every_part_of_rlx_is_reachable_in_a_fresh_process() -> None:
    parts = "debug fft linalg nn optim random special".split()  # noqa: SIM905
    text = f"import rlx_core as rlx; [getattr(rlx, n) for n in {parts!r}]; print(rlx.nn.__name__)"
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert ran.stdout == "rlx_core.nn\n"


def test_importing_rlx_imports_no_namespace() -> None:
    text = "import sys, rlx_core; print([m for m in sys.modules if m.startswith('rlx_core.')])"
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert ran.stdout == "['rlx_core.public']\n"


def test_a_misspelt_method_of_a_traced_value_is_suggested() -> None:
    with pytest.raises(AbsentNameError, match="no attribute 'summ'") as caught:
        rlx.trace(lambda x: x.summ(), rlx.spec("f32[3]"))
    assert caught.value.hint == "did you mean `sum`?"


def test_a_slice_at_a_value_hints_at_dynamic_slice() -> None:
    with pytest.raises(TraceError) as caught:
        rlx.trace(lambda x, i: x[i : i + 2], rlx.spec("f32[3]"), rlx.spec("i32[]"))
    assert "rlx.dynamic_slice" in caught.value.hint


def test_probes_of_python_are_answered_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx_core.hints.expected.hint_for", lambda *_: pytest.fail("searched"))
    assert not hasattr(rlx, "__wrapped__")
    assert not hasattr(nn, "__wrapped__")


def arguments() -> str:
    """The renamed arguments, a function a row; functions with the same renamed arguments share one."""
    renamed: dict[str, list[str]] = {}
    for (function, old), new in RENAMED_ARGUMENTS.items():
        renamed.setdefault(function, []).append(f"`{old}` → {f'`{new}`' if new.endswith('=') else new}")
    shared: dict[str, list[str]] = {}
    for function in renamed:
        shared.setdefault("; ".join(renamed[function]), []).append(f"`{function}`")
    changed = [f"| `{function}` | {order} |" for function, order in CHANGED_ORDER.items()]
    table = [f"| {' '.join(functions)} | {cell} |" for cell, functions in shared.items()]
    head = "| function | arguments |\n|---|---|\n"
    return f"{head}{chr(10).join(table)}\n\n{head}{chr(10).join(changed)}\n"


def test_the_page_has_the_tables(pytestconfig: pytest.Config) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before = text[: text.index("| elsewhere")]
    between = text[text.index("\n## ") : text.index("| function | arguments |")]
    expected = f"{before}{rows()}\n{between}{arguments()}"
    if pytestconfig.getoption("--update"):
        PAGE.write_text(expected, encoding="utf-8")
        return
    assert text == expected
