"""Reshapes moved behind the element-wise region that reads them, so that a product and the region after it have one shape.

A convolution is a product of matrices `[n, m, o]` that is read as `[n, m, height, width]`: bias, residual and activation
come after the reshape, and a product's epilogue takes only values with the product's own dims. In those dims the region is the
same loop.
"""

from __future__ import annotations

from typing import Any, ClassVar

from attrs import evolve

from rlx_core.ir.dims import Dim, product
from rlx_core.ir.graph import Graph, Node, Value, as_results
from rlx_core.ir.rewrite import rebuild
from rlx_core.ir.types import Shape
from rlx_core.ops.fused_matmul_epilogue import FusedMatMulEpilogue
from rlx_core.ops.linalg import reshaped
from rlx_core.ops.region import access_of
from rlx_core.ops.structural import Reshape
from rlx_core.passes.engine.base import LOWERED, Context, Pass, Result, define_pass, each_graph
from rlx_core.passes.engine.fusion import Judge, claims
from rlx_core.passes.engine.sweep import sweep
from rlx_core.passes.fuse.matmul_epilogue import is_product, region_at


@define_pass("sink-reshapes")
class SinkReshapes(Pass):
    """Compute element-wise regions in the dims of the product that they read through a reshape, and reshape their results.

    Only where the target computes regions on the sums of products and has a kernel for the moved one, and where the product is
    read there alone.
    """

    requires: ClassVar = frozenset({LOWERED})

    def run(self, graph: Graph, context: Context) -> Result:
        if not claims(context, (FusedMatMulEpilogue,)):
            return Result.unchanged(graph)
        return each_graph(graph, lambda g: sink(g, Judge(context)))


def sink(graph: Graph, judge: Judge) -> Result:
    """Return `graph` with every region that reads a reshaped product in the dims of the product."""
    count = 0

    def replace(node: Node, operands: tuple[Value | None, ...]) -> tuple[Value, ...] | None:
        nonlocal count
        region, inputs = region_at(graph, node)
        source = next((v for v in inputs if is_reshaped_product(graph, v, node)), None)
        if region is None or source is None:
            return None
        (source_value,) = source.node.present()
        shapes = [regrouped(v.shape, region.shape, source_value.shape) for v in inputs]
        known = [s for s in shapes if s is not None]
        if len(known) < len(shapes):
            return None
        moved = evolve(region, shape=source_value.shape, access=tuple(access_of(s, source_value.shape) for s in known))
        op, refusal = judge(moved, [v.type.with_shape(s) for v, s in zip(inputs, known, strict=True)])
        if refusal is not None:
            return None
        new = dict(zip(node.operands, operands, strict=True))
        results = as_results(op(*(in_dims(new[v], s) for v, s in zip(inputs, known, strict=True))))
        count += 1
        return tuple(reshaped(y, region.shape) for y in results)

    rebuilt, values = rebuild(graph, replace, by=SinkReshapes.name)
    # The reshapes that nothing reads any more would count as readers of the products.
    return Result(rebuilt, values, {"sunk": count}).then(sweep(rebuilt)) if count else Result.unchanged(graph)


def in_dims(value: Value | None, shape: Shape) -> Value:
    """Return a value in other dims: the operand of its reshape, if that has them."""
    assert value is not None, "what a region reads is there"
    if isinstance(value.node.op, Reshape):
        (source,) = value.node.present()
        if source.shape == shape:
            return source
    return reshaped(value, shape)


def is_reshaped_product(graph: Graph, value: Value, reader: Node) -> bool:
    """Return whether a value is a product in other dims, which `reader` alone reads."""
    if not isinstance(value.node.op, Reshape) or value in graph.output_set:
        return False
    (source,) = value.node.present()
    alone = {*graph.uses[value]} == {reader} and {*graph.uses[source]} == {value.node}
    return alone and source not in graph.output_set and is_product(source.node)


def regrouped(shape: Shape, region: Shape, target: Shape) -> Shape | None:
    """Return the dims of an input of a region of dims `region` in a region of dims `target`; `None` if it cannot be reshaped.

    >>> regrouped((8, 1, 1), (2, 8, 5, 5), (2, 8, 25)), regrouped((5,), (2, 8, 5, 5), (2, 8, 25))
    ((1, 8, 1), None)
    """
    aligned = (*(1,) * (len(region) - len(shape)), *shape)
    result: list[Dim] = []
    old, new = list(zip(region, aligned, strict=True)), list(target)
    while old or new:
        left, right = [old.pop(0)] if old else [], [new.pop(0)] if new else []
        while (have := product([d for d, _ in left])) != (want := product(right)):
            # Only known sizes can be proved to be factors of one another.
            if not (isinstance(have, int) and isinstance(want, int) and have and want):
                return None
            longer: Any = old if have < want else new
            if not longer:
                return None
            (left if have < want else right).append(longer.pop(0))
        if all(extent == size for size, extent in left):
            result += right
        elif all(extent == 1 for _, extent in left):
            result += [1] * len(right)
        elif [d for d, _ in left if d != 1] == [d for d in right if d != 1]:
            sizes = iter(extent for d, extent in left if d != 1)
            result += [1 if d == 1 else next(sizes) for d in right]
        else:
            return None
    return tuple(result)
