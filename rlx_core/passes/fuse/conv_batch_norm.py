"""A batch norm with given statistics behind a convolution, folded into its weights and a bias.

`(conv(x, w) - mean)·s + beta` with s = gamma / sqrt(var + eps) is `conv(x, w·s) + (beta - mean·s)`: one number a channel, which
is worked out when parameters are bound. Products are rounded in another order than before.
"""

from __future__ import annotations

from typing import ClassVar

from rlx_core.ir.graph import Graph, Node, Value
from rlx_core.ir.rewrite import rebuild
from rlx_core.ir.types import normalize_axis
from rlx_core.ops.activation import rsqrt
from rlx_core.ops.batch_norm import BatchNormInference
from rlx_core.ops.convolution.conv import Conv
from rlx_core.ops.structural import reshape
from rlx_core.passes.engine.base import LOWERED, Context, Pass, Result, define_pass, each_graph
from rlx_core.passes.engine.bound_values import bound_nodes
from rlx_core.passes.engine.sweep import sweep


@define_pass("fuse-conv-batch-norm")
class FuseConvBatchNorm(Pass):
    """Fold a batch norm with given statistics into the weights of the convolution that it alone reads.

    Weights and statistics must be parameters or constants, or computed from them, so that the folding is done when they
    are bound and not in every run.
    """

    is_fusion: ClassVar[bool] = True
    requires: ClassVar = frozenset({LOWERED})

    def run(self, graph: Graph, context: Context) -> Result:
        return each_graph(graph, fold)


def fold(graph: Graph) -> Result:
    """Return `graph` with every batch norm of bound statistics folded into the convolution before it."""
    chosen = {n for n in graph.nodes if isinstance(n.op, BatchNormInference)}
    if chosen:
        bound = bound_nodes(graph)
        chosen = {n for n in chosen if is_foldable(graph, n, bound)}
    if not chosen:
        return Result.unchanged(graph)

    def replace(node: Node, operands: tuple[Value | None, ...]) -> Value | None:
        if node not in chosen:
            return None
        op, (y, *vectors) = node.op, [v for v in operands if v is not None]
        assert isinstance(op, BatchNormInference), "chosen because it is one"
        x, w = y.node.present()
        gamma, beta, mean, var = vectors
        scale = gamma * rsqrt(var + op.eps)
        lines = (w.shape[0], *(1,) * (w.ndim - 1))
        folded = y.node.op(x, w * reshape(scale, lines))
        result: Value = folded + reshape(beta - mean * scale, lines[:-1])
        return result

    rebuilt, values = rebuild(graph, replace, by=FuseConvBatchNorm.name)
    return Result(rebuilt, values, {"folded": len(chosen)}).then(sweep(rebuilt))


def is_foldable(graph: Graph, node: Node, bound: set[Node]) -> bool:
    """Return whether only a batch norm over its channels reads a convolution, and weights and statistics are bound."""
    y, *vectors = node.present()
    if not isinstance(node.op, BatchNormInference) or not isinstance(y.node.op, Conv):
        return False
    if normalize_axis(node.op.axis, y.ndim) != 1 or y in graph.output_set or len(graph.uses[y]) != 1:
        return False
    _, weights = y.node.present()
    is_one_dtype = all(v.dtype is y.dtype is y.dtype.accumulator for v in vectors)
    return is_one_dtype and all(v.node in bound for v in (weights, *vectors))
