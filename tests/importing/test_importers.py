"""All importers use one table and one report."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

import pytest

import rlx_core as rlx
from rlx_core.errors import ConfigError, UnsupportedError
from rlx_core.importing.dtypes import DtypeMap
from rlx_core.importing.table import Handler, HandlerTable


def import_onnx() -> None:
    from onnx_graphs import model, node  # type: ignore[import-not-found]

    from rlx_onnx import load

    nodes = [node("Foo", ["x"], ["a"], name="first"), node("Foo", ["a"], ["b"]), node("ImageDecoder", ["b"], ["y"])]
    for each in nodes[:2]:
        each.domain = "acme"
    load(model(nodes, ["x: f32[2]"], ["y: f32[2]"], domains={"acme": 1}))


def import_torch() -> None:
    import torch

    from rlx_torch.modules import from_torch

    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.special.airy_ai(torch.special.airy_ai(x)) + torch.linalg.ldl_factor(x)[0]

    from_torch(Module(), (torch.eye(3),))


def import_jax() -> None:
    import jax
    import jax.numpy as jnp

    from rlx_jax import from_jax

    def function(x: Any) -> Any:
        first = jax.lax.linalg.hessenberg(jnp.diag(x))[0]
        return jax.lax.linalg.schur(jax.lax.linalg.hessenberg(first)[0])[0]

    from_jax(function, rlx.spec("f32[3]"))


IMPORTERS: dict[str, tuple[str, str, str, Callable[[], None]]] = {
    "onnx": ("rlx_onnx.walking.table:TABLE", "rlx_onnx.reading.tensors:DTYPES", "Add", import_onnx),
    "torch": ("rlx_torch.aten.table:TABLE", "rlx_torch.arrays:DTYPES", "add.Tensor", import_torch),
    "jax": ("rlx_jax.walk:TABLE", "rlx_jax.sizes:DTYPES", "add", import_jax),
}
"""System → its table, its dtypes, an operation, and an import of a program with three uses of two unsupported operations."""


@pytest.fixture(params=IMPORTERS)
def system(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    pytest.importorskip(name, reason=f"python -m pip install {name}")
    pytest.importorskip(f"rlx_{name}")
    return name


def loaded(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def test_every_handler_is_in_the_table(system: str) -> None:
    """Each by its name, with the function that a module of handlers registered."""
    table = loaded(IMPORTERS[system][0])
    assert isinstance(table, HandlerTable)
    assert len(table.names()) > 150
    assert IMPORTERS[system][2] in table.names()
    for name in table.names():
        assert isinstance(table[name], Handler), name
        assert callable(table[name].function), name


def test_an_operation_has_one_handler(system: str) -> None:
    table, name = loaded(IMPORTERS[system][0]), IMPORTERS[system][2]
    assert name in table, "the table is loaded"
    with pytest.raises(ConfigError, match=rf"operation {re.escape(name)} has two handlers"):
        table.register(name)(len)


def test_alternatives_are_for_operations_without_a_handler(system: str) -> None:
    table = loaded(IMPORTERS[system][0])
    assert set(table.alternatives) & set(table.names()) == set()


def test_dtypes_map_in_both_directions(system: str) -> None:
    dtypes = loaded(IMPORTERS[system][1])
    assert isinstance(dtypes, DtypeMap)
    for element, dtype in dtypes.items():
        assert dtypes.element(dtype) == element
    assert {rlx.bool_, rlx.i64, rlx.f32, rlx.bf16, rlx.c128} <= set(dtypes.values())


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")  # of torch
def test_reports_of_unsupported_operations_have_one_format(system: str) -> None:
    """The program and the operations; each with its count and its first location; how to register a handler."""
    with pytest.raises(UnsupportedError) as caught:
        IMPORTERS[system][3]()

    error = caught.value
    assert re.fullmatch(r"[\w: ]+: 2 operations are not supported: [\w.]+, [\w.]+", error.message)
    twice, once = error.facts
    assert error.message.endswith(f"{twice.label}, {once.label}")
    assert str(twice.value) == "2 uses"
    assert re.fullmatch(r"1 use(; instead: .+)?", str(once.value))
    assert re.fullmatch(r"first: .*(node first|test_importers\.py:\d+).*", str(twice.where))
    assert re.search(r"node y|test_importers\.py:\d+", str(once.where))
    assert error.hint is not None
    assert re.fullmatch(rf'@rlx_{system}[\w.]+\("{re.escape(twice.label)}"\) registers a function of .+', error.hint)
    assert callable(loaded(":".join(error.hint[1:].partition("(")[0].rsplit(".", 1))))
