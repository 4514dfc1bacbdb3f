"""Sizes of torch as dims and back, and torch's containers as plain ones."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="pip install 'rlx-torch[torch]'")

from torch.fx.experimental.symbolic_shapes import ShapeEnv  # noqa: E402  # torch first
from torch.utils._pytree import tree_flatten  # noqa: E402

import rlx_core as rlx  # noqa: E402
from rlx_core.errors import DtypeError  # noqa: E402
from rlx_core.importing.symbols import SymbolTable  # noqa: E402
from rlx_torch.arrays import DTYPES, array_of, tensor_of  # noqa: E402
from rlx_torch.symbols import size_of, torch_size, type_of  # noqa: E402
from rlx_torch.trees import leaves, plain  # noqa: E402


def sizes() -> tuple[Any, Any]:
    """Two sizes that torch knows by name."""
    mode = torch._subclasses.FakeTensorMode(shape_env=ShapeEnv())
    context = torch.fx.experimental.symbolic_shapes.StatelessSymbolicContext(
        [torch.fx.experimental.symbolic_shapes.DimDynamic.DYNAMIC] * 2
    )
    like = mode.from_tensor(torch.zeros(5, 7), symbolic_context=context)
    return like.shape[0], like.shape[1]


def test_polynomials_and_quotients_of_sizes_go_there_and_back() -> None:
    a, b = sizes()
    names = SymbolTable({str(a): rlx.symbol("batch"), str(b): rlx.symbol("length")})
    known = {"batch": a, "length": b}
    for size in (a, 2 * a + 1, a * b - 3, a * a, (a + b) // 3, 8):
        dim = size_of(size, names)
        assert torch_size(dim, known) == size
    assert size_of(2 * a, names) == 2 * rlx.symbol("batch")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.complex64, torch.bool, torch.uint16])
def test_tensors_and_arrays_share_memory(dtype: Any) -> None:
    x = torch.ones(2, 3).to(dtype)
    array = array_of(x)
    assert tensor_of(array).dtype == dtype
    assert tensor_of(array).data_ptr() == x.data_ptr()
    assert str(type_of(x, SymbolTable())) == f"{DTYPES[dtype]}[2, 3]"


def test_a_conjugate_is_its_values() -> None:
    assert array_of(torch.tensor([1 + 2j]).conj()).tolist() == [1 - 2j]


def test_elements_that_rlx_lacks_are_refused() -> None:
    with pytest.raises(DtypeError, match="float8"):
        type_of(torch.zeros(2, dtype=torch.float8_e4m3fn), SymbolTable())


Pair = namedtuple("Pair", ["first", "second"])


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"b": [1, 2], "a": (3,)}, {"b": [1, 2], "a": (3,)}),
        (OrderedDict(y=1, x=[2, None]), {"y": 1, "x": [2, None]}),
        (Pair(1, (2, 3)), (1, (2, 3))),
        (4, 4),
    ],
)
def test_containers_are_plain(given: Any, wanted: Any) -> None:
    flat, spec = tree_flatten(given)
    assert plain(spec, flat) == wanted
    assert leaves(spec, wanted) == flat
