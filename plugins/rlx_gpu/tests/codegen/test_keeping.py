"""What stays in registers between the loops over a row."""

from __future__ import annotations

from rlx_core.codegen.schedule import schedule
from rlx_core.ops.normalization import LayerNorm
from rlx_core.ops.softmax import Softmax
from rlx_gpu.codegen.keeping import kept_values, uniform_values
from tests.codegen.kernels import kernel


def test_softmax_reads_its_row_once_and_computes_exponentials_once() -> None:
    """%0 is the load and %3 the exponential; the difference between them is cheap."""
    softmax = kernel(Softmax(), "f32[3, 70]")
    nests = schedule(softmax).nests
    assert kept_values(softmax, nests, 0, ()) == (0,)
    assert kept_values(softmax, nests, 1, (0,)) == (3,)
    assert kept_values(softmax, nests, 2, (0, 3)) == ()


def test_what_only_the_last_loop_reads_is_not_kept() -> None:
    norm = kernel(LayerNorm(), "f32[4, 36]", "f32[36]", "f32[36]")
    nests = schedule(norm).nests
    loads = {norm.values[v].buffer for v in kept_values(norm, nests, 0, ())}  # type: ignore[union-attr]
    assert loads == {0}


def test_what_is_one_a_row_is_computed_before_the_loop_that_needs_it() -> None:
    norm = kernel(LayerNorm(), "f32[4, 36]", "f32[36]", "f32[36]")
    nests = schedule(norm).nests
    early, late = (uniform_values(norm, nest, ()) for nest in (nests[0], nests[-1]))
    assert early == ()
    assert late
    assert not any(norm.varies[v] for v in late)
