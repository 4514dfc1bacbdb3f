"""Torch's own samples of its operators, through the compilers of the dynamo backend: results and gradients, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="pip install 'rlx-torch[torch]'")
pytest.importorskip("expecttest", reason="pip install 'rlx-torch[models]'")

from torch._functorch.aot_autograd import aot_function, make_boxed_func  # noqa: E402  # torch first
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.utils._pytree import tree_flatten, tree_unflatten  # noqa: E402

from rlx_core.errors import UnsupportedError  # noqa: E402
from rlx_torch.decompositions import for_autograd  # noqa: E402
from rlx_torch.dynamo import CompiledModule  # noqa: E402

SAMPLES = 2
"""Of each operator: the first, and one from the middle."""

DRAWN = {
    *(
        "bernoulli",
        "cauchy",
        "exponential",
        "geometric",
        "log_normal",
        "multinomial",
        "normal",
        "rand",
        "rand_like",
        "randint",
    ),
    *("randint_like", "randn", "randn_like", "uniform", "nn.functional.alpha_dropout", "nn.functional.dropout"),
    *("nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout", "pca_lowrank"),
    *("nn.functional.multi_head_attention_forward", "nn.functional.scaled_dot_product_attention", "svd_lowrank"),
    *("nn.functional.rrelu", "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d"),
}
"""Random numbers are rlx's own; of those with a rate, samples without one are tried."""

NOT_COMPARED = {
    **dict.fromkeys(
        ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"), "no values"
    ),
    **dict.fromkeys(("qr", "linalg.qr", "linalg.eigh", "linalg.svd", "svd"), "signs of vectors are free"),
    **dict.fromkeys(("linalg.eig", "linalg.eigvals"), "the order of eigenvalues is free"),
    **dict.fromkeys(("sparse.sampled_addmm", "sparse.mm", "to_sparse"), "aot_autograd itself fails"),
    "chalf": "rlx has no complex numbers of half floats",
}


def pairs() -> list[Any]:
    here = [op for op in op_db if not op.name.startswith("jiterator")]  # which runs on GPUs alone
    every = [op for op in here if op.supported_dtypes("cpu") & {torch.float64, torch.int64}]
    return [
        pytest.param(op, id=f"{op.name}-{op.variant_test_name}" if op.variant_test_name else op.name) for op in every
    ]


def compiler(graph: Any, _: Any) -> Callable[..., Any]:
    """As the backend's, but nothing is left to torch: what is unsupported is said."""
    return make_boxed_func(CompiledModule(graph, {}))  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize("op", pairs())
def test_an_operator_of_torchs(op: Any) -> None:
    if op.name in NOT_COMPARED or (op.name in DRAWN and not op.name.startswith("nn.functional.")):
        pytest.skip(NOT_COMPARED.get(op.name, "drawn from rlx's stream"))
    dtype = torch.float64 if torch.float64 in op.supported_dtypes("cpu") else torch.int64
    needs_grad = op.supports_autograd and dtype.is_floating_point
    samples = [s for s in op.sample_inputs("cpu", dtype, requires_grad=needs_grad) if not is_drawn(op, s)]
    if not samples:
        pytest.skip("every sample draws")
    for sample in (samples[0], samples[len(samples) // 2])[:SAMPLES]:
        compare(op, sample)


def is_drawn(op: Any, sample: Any) -> bool:
    if op.name not in DRAWN:
        return False
    rates = [sample.kwargs.get(name) for name in ("p", "dropout_p")]
    return sample.kwargs.get("training", True) is not False and not any(rate == 0 for rate in rates)


def compare(op: Any, sample: Any) -> None:
    leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def function(*tensors: Any) -> Any:
        given = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        first, args, named = tree_unflatten(given, spec)
        return tuple(y for y in tree_flatten(op(first, *args, **named))[0] if isinstance(y, torch.Tensor))

    def copies() -> list[Any]:
        return [leaves[i].detach().clone().requires_grad_(leaves[i].requires_grad) for i in places]

    theirs = copies()
    wanted = function(*theirs)
    ours = copies()
    try:
        found = aot_function(function, fw_compiler=compiler, bw_compiler=compiler, decompositions=for_autograd())(*ours)
    except UnsupportedError as problem:
        pytest.skip(str(problem).splitlines()[0])
    except Exception as problem:
        kind = type(problem).__name__
        if "FakeTensor" in str(problem) or kind in ("DataDependentOutputException", "DynamicOutputShapeException"):
            pytest.skip(f"torch does not trace it: {kind}")
        raise
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6, equal_nan=True)
    smooth = [i for i, y in enumerate(wanted) if y.requires_grad and y.is_floating_point()]
    if smooth:
        compare_gradients([found[i] for i in smooth], [wanted[i] for i in smooth], ours, theirs)


def compare_gradients(found: list[Any], wanted: list[Any], ours: list[Any], theirs: list[Any]) -> None:
    weights = [torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).reshape(y.shape) for y in wanted]
    given = {"allow_unused": True, "grad_outputs": weights}
    try:
        mine = torch.autograd.grad(found, [x for x in ours if x.requires_grad], **given)
    except UnsupportedError as problem:
        pytest.skip(f"backward: {str(problem).splitlines()[0]}")
    right = torch.autograd.grad(wanted, [x for x in theirs if x.requires_grad], **given)
    for got, want in zip(mine, right, strict=True):
        if want is None:
            assert got is None or not got.any()
        else:
            torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6, equal_nan=True)
