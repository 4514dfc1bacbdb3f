"""The stubs say what the functions take."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import attrs
import pytest

import rlx_core as rlx
from rlx_core.ir.apply import OpFunction, op_function
from rlx_core.ops import Op, Sample, define_op, field
from rlx_core.public import FUNCTIONS
from rlx_core.testing.api import stubs
from rlx_core.testing.api.stubs import Writer


def test_the_stubs_are_what_would_be_printed(pytestconfig: pytest.Config) -> None:
    """`make stubs` writes them."""
    if pytestconfig.getoption("--update"):
        stubs.main(["--update"])
    stale = [path for path, text in stubs.stubs().items() if path.read_text(encoding="utf-8") != text]
    assert stale == []


def definitions() -> dict[str, ast.FunctionDef]:
    stub = Path(rlx.__path__[0], "__init__.pyi").read_text(encoding="utf-8")
    return {node.name: node for node in ast.parse(stub).body if isinstance(node, ast.FunctionDef)}


def test_every_op_function_has_its_operands_its_attributes_and_its_docstring_there() -> None:
    defined = definitions()
    functions = {name: getattr(rlx, name) for name in FUNCTIONS}
    ops = {name: f for name, f in functions.items() if isinstance(f, OpFunction)}
    assert len(ops) > 90
    for name, function in ops.items():
        arguments = defined[name].args
        named = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        operands = [o.name for o in function.op.operands if not o.is_variadic]
        assert named == [*operands, *(a.name for a in attrs.fields(function.op)), "name"]
        assert ast.get_docstring(defined[name]) is not None


@define_op(domain="acme")
class Kinds(Op):
    """Of every kind."""

    axes: tuple[int, ...] = field(converter=tuple)
    mode: str = "a"
    scale: float | None = None

    def decompose(self, x: Any, weight: Any = None) -> Any:
        return x, x

    @classmethod
    def samples(cls) -> Any:
        yield Sample("f32[3]", axes=(0,))


def test_a_signature_is_printed_from_the_class() -> None:
    parameters, result = stubs._of_op(Writer(frozenset()), op_function(Kinds))

    assert parameters == [
        "x: ArrayLike",
        "weight: ArrayLike | None = None",
        "*",
        "axes: Sequence[int]",
        "mode: str = 'a'",
        "scale: float | None = None",
        "name: str | None = None",
    ]
    assert result == "tuple[Array, Array]"


def test_a_builtin_that_a_public_name_hides_is_named_in_full() -> None:
    assert Writer(frozenset({"bool"})).text(bool | int) == "builtins.bool | int"


def test_what_is_stale_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "stub.pyi"
    path.write_text("old", encoding="utf-8")
    monkeypatch.setattr(stubs, "stubs", lambda: {path: "new"})

    assert stubs.main([]) == 1
    assert "is not what the functions are" in capsys.readouterr().err
    assert stubs.main(["--update"]) == 0
    assert path.read_text(encoding="utf-8") == "new"
