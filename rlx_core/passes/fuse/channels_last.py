"""Convolutions with their channels last, and all that lies between them: windows are then read where they lie.

Ops mean the same wherever channels are; this decides where they lie in memory. A value of a convolution's dims is made as
`[n, l.., c]`, and `[n, c, l..]` is a view of it, which is only read where an op has to. Element-wise ops, norms, pools, sums and
paddings are computed in those dims if their operands are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from attrs import evolve

from rlx_core.ir.dtypes import f32, f64, i16, i32
from rlx_core.ir.graph import Graph, Node, Value, as_results
from rlx_core.ir.op import Op
from rlx_core.ir.rewrite import rebuild
from rlx_core.ir.types import normalize_axes, normalize_axis
from rlx_core.ops.batch_norm import ChannelOp
from rlx_core.ops.convolution import channels_last
from rlx_core.ops.convolution.conv import Conv, ConvBackwardInput, ConvBackwardWeight, Convolution
from rlx_core.ops.convolution.folded import FoldedMatMul
from rlx_core.ops.convolution.geometry import Geometry
from rlx_core.ops.convolution.transposed import ConvTranspose
from rlx_core.ops.movement import Concat, Pad
from rlx_core.ops.pooling.extremes import ExtremePool
from rlx_core.ops.pooling.pool import PoolOp
from rlx_core.ops.pooling.totals import AvgPool, SumPool
from rlx_core.ops.structural import Expand, Reduction, Transpose, reshape
from rlx_core.passes.engine.base import Context, Result, define_pass
from rlx_core.passes.engine.fusion import FusionPass
from rlx_core.passes.engine.sweep import sweep
from rlx_core.passes.fuse.mark_elementwise_regions import is_step

FEWEST_RESULTS: Final = 8
"""Channels of a result below which a product would leave most of a vector empty."""


@define_pass("channels-last")
class ChannelsLast(FusionPass):
    """Make convolutions products with rows that are windows, where the target reads such rows where they lie.

    Only f32, f64 and i16 with sums in i32, and only if there is a convolution of more than one cell: products alone need no
    other layout.
    """

    makes: ClassVar = (FoldedMatMul,)

    def fuse(self, graph: Graph, context: Context) -> Result:
        chosen = [n for n in graph.nodes if isinstance(n.op, Convolution) and is_wanted(n)]
        if not any(geometry_of(n).cells > 1 for n in chosen):
            return Result.unchanged(graph)
        walk = ChannelsLastWalk()
        rebuilt, values = rebuild(graph, walk.replace, by=self.name)
        return Result(rebuilt, values, {"moved": walk.count}).then(sweep(rebuilt))


def geometry_of(node: Node) -> Geometry:
    """The windows of one of the three convolutions."""
    op = node.op
    if isinstance(op, ConvBackwardWeight):
        return op.geometry(op.kernel)
    assert isinstance(op, Convolution), "asked of convolutions alone"
    return op.geometry([*node.present()][1].shape[2:])


def is_wanted(node: Node) -> bool:
    """Return whether a convolution is a product of one group that fills vectors, or a depthwise one.

    A transposed one is the cotangent of a convolution unless cells are added at its end.
    How many images there are need not be known.
    """
    op, (a, b) = node.op, node.present()
    if not has_supported_dtypes(node) or 0 in (*a.shape, *b.shape) or not (has_known_images(a) and has_known_images(b)):
        return False
    assert isinstance(op, Convolution), "asked of convolutions alone"
    if isinstance(op, ConvTranspose) and any(op.output_padding):
        return False
    if op.groups == 1:
        results = a.shape[1] if isinstance(op, Conv) else node.type.shape[1]
        width = (
            node.type.shape[1]
            if isinstance(op, Conv)
            else b.shape[1]
            if isinstance(op, ConvBackwardWeight)
            else results
        )
        return isinstance(width, int) and width >= FEWEST_RESULTS and 0 not in node.type.shape
    return isinstance(op, Conv) and op.groups == a.shape[1] == b.shape[0] and 0 not in node.type.shape


def has_supported_dtypes(node: Node) -> bool:
    """Return whether a convolution is one of f32 or f64, or of i16 with sums in i32."""
    if isinstance(node.op, Conv) and node.op.acc_dtype is not None:
        return node.op.acc_dtype is i32 and next(iter(node.present())).dtype is i16
    return node.type.dtype in (f32, f64)


def has_known_images(value: Value) -> bool:
    """Return whether all sizes except the batch size are known."""
    return all(isinstance(size, int) for size in value.shape[1:])


class ChannelsLastWalk:
    """One walk over a graph: which values of the new one are views of others with the channels last.

    Attributes:
        last: Value → the same with its channels last.
        count: Number of nodes that were converted.
    """

    def __init__(self) -> None:
        self.last: dict[Value, Value] = {}
        self.count = 0

    def replace(self, node: Node, operands: tuple[Value | None, ...]) -> tuple[Value, ...] | None:
        """Return the results of a node that is computed with channels last; `None` for one that is unchanged."""
        present = [v for v in operands if v is not None]
        if len(present) < len(operands):
            return None
        rule = next((rule for kind, rule in RULES if isinstance(node.op, kind)), elementwise)
        results = rule(self, node, present)
        self.count += results is not None
        return results

    def has(self, value: Value) -> bool:
        """Return whether a value lies, or would lie, with its channels last."""
        return value in self.last or is_moved_back(value)

    def of(self, value: Value) -> Value:
        """A value with its channels last."""
        if value not in self.last:
            self.last[value] = next(value.node.present()) if is_moved_back(value) else channels_last.moved(value)
        return self.last[value]

    def back(self, value: Value) -> Value:
        """Return the view of a channels-last value for readers that expect the original layout."""
        view = channels_last.moved_back(value)
        self.last[view] = value
        return view


def is_moved_back(value: Value) -> bool:
    """Return whether a value is a view of one that has its channels last."""
    op, rank = value.node.op, value.ndim
    return isinstance(op, Transpose) and 3 <= rank <= 5 and op.perm == (0, rank - 1, *range(1, rank - 1))


Rule = Callable[[ChannelsLastWalk, Node, list[Value]], "tuple[Value, ...] | None"]


def convolution(walk: ChannelsLastWalk, node: Node, values: list[Value]) -> tuple[Value, ...] | None:
    op, (a, b) = node.op, values
    assert isinstance(op, Convolution), "registered for it alone"
    if not is_wanted(node):
        return None
    geometry = geometry_of(node)
    if isinstance(op, ConvBackwardWeight):
        return (channels_last.backward_weight(walk.of(a), walk.of(b), geometry),)
    if isinstance(op, ConvBackwardInput | ConvTranspose):
        sizes = tuple(n.__index__() for n in node.type.shape[2:])
        return (walk.back(channels_last.backward_input(walk.of(a), b, geometry, sizes)),)
    convolve = channels_last.conv if op.groups == 1 else channels_last.depthwise
    return (walk.back(convolve(walk.of(a), b, geometry, op.acc_dtype if isinstance(op, Conv) else None)),)


def pool(walk: ChannelsLastWalk, node: Node, values: list[Value]) -> tuple[Value, ...] | None:
    op, (x,) = node.op, values
    assert isinstance(op, PoolOp), "registered for it alone"
    is_plain = isinstance(op, ExtremePool | SumPool) or (isinstance(op, AvgPool) and op.count_include_pad)
    if not (is_plain and walk.has(x)):
        return None
    return (walk.back(channels_last.pooled(op, walk.of(x))),)


def norm(walk: ChannelsLastWalk, node: Node, values: list[Value]) -> tuple[Value, ...] | None:
    op, x = node.op, values[0]
    assert isinstance(op, ChannelOp), "registered for it alone"
    if not walk.has(x) or normalize_axis(op.axis, x.ndim) != 1:
        return None
    images = [v.shape == x.shape for v in values]
    operands = [walk.of(v) if is_image else v for v, is_image in zip(values, images, strict=True)]
    inside: Any = evolve(op, axis=x.ndim - 1)  # type: ignore[call-arg]
    results = as_results(inside(*operands))
    return tuple(walk.back(y) if y.ndim == x.ndim else y for y in results)


def reduction(walk: ChannelsLastWalk, node: Node, values: list[Value]) -> tuple[Value, ...] | None:
    op, x = node.op, values[0]
    assert isinstance(op, Reduction), "registered for it alone"
    axes = normalize_axes(op.axes, x.ndim)
    if len(values) > 1 or not walk.has(x) or len(node.results) > 1:
        return None
    remaining = [place(a, x.ndim) for a in range(x.ndim) if a not in axes]
    if not op.keep_dim and remaining != sorted(remaining):
        return None  # the axes that are left would be in another order
    y = evolve(op, axes=tuple(sorted(place(a, x.ndim) for a in axes)))(walk.of(x))
    return (walk.back(y),) if op.keep_dim else (y,)


def padding(walk: ChannelsLastWalk, node: Node, values: list[Value]) -> tuple[Value, ...] | None:
    op, (x, *value) = node.op, values
    assert isinstance(op, Pad), "registered for it alone"
    if not walk.has(x):
        return None
    lo, hi = ((w[0], *w[2:], w[1]) for w in (op.lo, op.hi))
    between = None if op.between is None else (op.between[0], *op.between[2:], op.between[1])
    return (walk.back(evolve(op, lo=lo, hi=hi, between=between)(walk.of(x), *value)),)


def joined(walk: ChannelsLastWalk, node: Node, values: list[Value]) -> tuple[Value, ...] | None:
    op = node.op
    assert isinstance(op, Concat), "registered for it alone"
    if not all(walk.has(x) for x in values):
        return None
    axis = place(normalize_axis(op.axis, node.type.rank), node.type.rank)
    return (walk.back(evolve(op, axis=axis)(*map(walk.of, values))),)


def expanded(walk: ChannelsLastWalk, node: Node, values: list[Value]) -> tuple[Value, ...] | None:
    op, (x,) = node.op, values
    assert isinstance(op, Expand), "registered for it alone"
    if not walk.has(x) or x.ndim != node.type.rank:
        return None
    n, c, *sizes = op.target
    return (walk.back(evolve(op, target=(n, *sizes, c))(walk.of(x))),)


def elementwise(walk: ChannelsLastWalk, node: Node, values: list[Value]) -> tuple[Value, ...] | None:
    rank = node.type.rank if len(node.types) == 1 else 0
    is_image = 3 <= rank <= 5 and any(v.shape == node.type.shape and walk.has(v) for v in values)
    if not is_image or not is_step(node):
        return None
    return (walk.back(node.op(*(beside(walk, v, rank) for v in values))),)


def beside(walk: ChannelsLastWalk, value: Value, rank: int) -> Value:
    """An operand of an op whose result has its channels last."""
    if value.ndim == 0 or walk.has(value):
        return value if value.ndim == 0 else walk.of(value)
    shape = (*(1,) * (rank - value.ndim), *value.shape)
    if sum(d != 1 for d in shape) <= 1:
        return reshape(value, (shape[0], *shape[2:], shape[1]))
    return walk.of(value if value.ndim == rank else reshape(value, shape))


def place(axis: int, rank: int) -> int:
    """Return the position of an axis when the channels are last."""
    return axis if axis == 0 else rank - 1 if axis == 1 else axis - 1


RULES: Final[tuple[tuple[type[Op], Rule], ...]] = (
    (Convolution, convolution),
    (PoolOp, pool),
    (ChannelOp, norm),
    (Reduction, reduction),
    (Pad, padding),
    (Concat, joined),
    (Expand, expanded),
)
"""Conversions of ops to channels last; other ops are element-wise, or stay."""
