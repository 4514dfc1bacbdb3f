"""Layer and RMS norms in traced code: statistics over some axes, a reciprocal root, then a scale and a shift.

The eps has to be inside the root and the variance has to be the biased one. The affine part joins in separate steps, so
that a norm whose scale has another shape is still a norm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rlx_core.ir.dtypes import FLOATS
from rlx_core.ir.graph import Graph, Node, Value
from rlx_core.ops.activation import rsqrt, sqrt
from rlx_core.ops.arithmetic import add, divide, multiply, subtract
from rlx_core.ops.normalization import LayerNorm, RmsNorm, layer_norm, rms_norm
from rlx_core.ops.reduction import Mean, Var, mean_axes
from rlx_core.ops.structural import Expand, Reshape
from rlx_core.passes.engine.fusion import declined_if_kept, fusion_of
from rlx_core.passes.engine.patterns import some
from rlx_core.passes.engine.rules import Declined, Match, RewriteRule, rewrite, ruleset
from rlx_core.passes.recognise.chains import between, constant_of, factors_of, kept_dims, power_of
from rlx_core.system.records import frozen


@ruleset("recognise-norms")
def recognise_norms(x: Any, g: Any, b: Any) -> Iterator[RewriteRule]:
    """Recognise layer norms and RMS norms in means, squares and reciprocal roots, with their scale and shift."""
    for name, op in (("times-rsqrt", multiply.op), ("over-sqrt", divide.op)):
        rule = rewrite(name, op).to(as_norm).giving_up("the last bits")
        yield rule.sampled(x="f32[3, 4]", make=lambda x, op=op: written_out(x, op))
    for norm in (LayerNorm, RmsNorm):
        short = norm.name.removeprefix("rlx.").replace("_", "-")
        norm_op = norm(eps=0.5)
        scaled = rewrite(f"{short}-scale", some(norm)(x) * g).to(with_scale).giving_up("the last bits")
        yield scaled.sampled(x="f32[3, 4]", g="f32[4]", make=lambda x, g, op=norm_op: op(x) * g)
        shifted = rewrite(f"{short}-shift", some(norm)(x) + b).to(with_shift).giving_up("the last bits")
        yield shifted.sampled(x="f32[3, 4]", b="f32[4]", make=lambda x, b, op=norm_op: op(x) + b)
        both = rewrite(f"{short}-scale-shift", some(norm)(x, g) + b).to(with_shift).giving_up("the last bits")
        yield both.sampled(x="f32[3, 4]", g="f32[4]", b="f32[4]", make=lambda x, g, b, op=norm_op: op(x, g) + b)


def written_out(x: Value, op: type) -> Value:
    centred = x - mean_axes(x, axes=(1,), keep_dim=True)
    variance = mean_axes(centred * centred, axes=(1,), keep_dim=True) + 0.5
    return centred * rsqrt(variance) if op is multiply.op else centred / sqrt(variance)


# ------------------------------------------------------------------------------------ statistics


@frozen(eq=False)
class Root:
    """`sqrt(statistic + eps)` or its reciprocal, broadcast along the normalised axes."""

    statistic: Value
    eps: float
    nodes: tuple[Node, ...]


def as_norm(match: Match) -> Value | Declined | None:
    """The norm of `x` for `x · rsqrt(mean x² + eps)` and `(x - mean x) · rsqrt(var x + eps)`, and the same as quotients."""
    left, right = match.root.present()
    is_quotient = type(match.root.op) is divide.op
    for data, factor in ((left, right),) if is_quotient else ((left, right), (right, left)):
        root = root_of(factor, sqrt.op if is_quotient else rsqrt.op)
        if root is None or data.type != match.root.type or data.dtype not in FLOATS:
            continue
        result = norm_of(match, data, root)
        if result is not None:
            return result
    return None


def root_of(value: Value, op: type) -> Root | None:
    """The root that `value` broadcasts, if it is one of a sum with a positive constant."""
    nodes = [value.node]
    while isinstance(nodes[-1].op, Reshape | Expand) and nodes[-1].operands[0] is not None:
        nodes.append(nodes[-1].operands[0].node)
    if type(nodes[-1].op) is not op or nodes[-1].operands[0] is None:
        return None
    total = nodes[-1].operands[0].node
    if type(total.op) is not add.op:
        return None
    for statistic, constant in (total.operands, total.operands[::-1]):
        eps = constant_of(constant)
        if statistic is not None and eps is not None and eps >= 0:
            return Root(statistic, eps, (*nodes, total))
    return None


def norm_of(match: Match, data: Value, root: Root) -> Value | Declined | None:
    """Return the norm with this statistic and root: of `data` itself, or of its value before centring."""
    for axes in candidate_axes(root.statistic, data.ndim):
        if not is_aligned(match.root, root, data, axes):
            return Declined(f"the root of {root.statistic!r} does not lie along axes {axes}", "AxisNotLast")
        square_nodes = mean_square(root.statistic, data, axes)
        if square_nodes is not None:
            centre = centred_from(data, axes)
            if centre is None:
                inner = (*root.nodes, *square_nodes)
                declined = declined_if_kept(match.graph, inner, {*inner, match.root})
                return declined or rms_norm(match.new(data), axes=axes, eps=root.eps)
            x, centring = centre
            inner = (*root.nodes, *square_nodes, data.node, *centring)
            return layer_norm_unless_kept(match, x, inner, axes, root.eps)
        centre = centred_from(data, axes)
        variance = None if centre is None else kept_dims(root.statistic, Var, axes, data.ndim)
        if centre is not None and variance is not None and variance.operands[0] is centre[0]:
            if variance.op.attributes()["correction"] != 0:
                return Declined("the variance is the unbiased one", "NotFused")
            inner = (*root.nodes, *between(root.statistic, variance), data.node, *centre[1])
            return layer_norm_unless_kept(match, centre[0], inner, axes, root.eps)
    return None


def layer_norm_unless_kept(
    match: Match, x: Value, inner: Sequence[Node], axes: tuple[int, ...], eps: float
) -> Value | Declined:
    # A mean that others read as well stays for them, and the norm computes its own.
    vanishing = [n for n in inner if not is_shared_mean(match.graph, n, {*inner, match.root})]
    declined = declined_if_kept(match.graph, vanishing, {*inner, match.root})
    return declined or layer_norm(match.new(x), axes=axes, eps=eps)


def is_shared_mean(graph: Graph, node: Node, inside: set[Node]) -> bool:
    return isinstance(node.op, Mean) and any(u not in inside for u in graph.uses[node.result])


def candidate_axes(statistic: Value, rank: int) -> Iterator[tuple[int, ...]]:
    """The axes of the reduction at the end of a statistic."""
    node = statistic.node
    while isinstance(node.op, Reshape | Expand) and node.operands[0] is not None:
        node = node.operands[0].node
    if isinstance(node.op, Mean | Var) and node.operands[0] is not None and node.operands[0].ndim == rank:
        yield tuple(sorted(a % rank for a in node.op.attributes()["axes"]))


def is_aligned(node: Node, root: Root, data: Value, axes: tuple[int, ...]) -> bool:
    """Return whether the root meets the data as a reduction over `axes` with kept dims does."""
    kept_shape = tuple(1 if i in axes else d for i, d in enumerate(data.shape))
    factor = root.nodes[0].result
    return (*(1,) * (data.ndim - factor.ndim), *factor.shape) in (kept_shape, data.shape)


def mean_square(statistic: Value, data: Value, axes: tuple[int, ...]) -> tuple[Node, ...] | None:
    """Return the nodes of `mean(data²)` over `axes`, dims kept; `None` if the statistic is another."""
    mean = kept_dims(statistic, Mean, axes, data.ndim)
    squares = None if mean is None else mean.operands[0]
    if mean is None or squares is None:
        return None
    factors = factors_of(squares, (data,))
    power = None if factors.constants else power_of(factors, data)
    if power is None or power[0] != 2:
        return None
    return (*between(statistic, mean), *power[1])


def centred_from(data: Value, axes: tuple[int, ...]) -> tuple[Value, tuple[Node, ...]] | None:
    """Return `x` and the nodes of its mean, where `data` is `x - mean(x)` over `axes`."""
    node = data.node
    if type(node.op) is not subtract.op:
        return None
    x, centre = node.operands
    if x is None or centre is None or x.type != data.type:
        return None
    mean = kept_dims(centre, Mean, axes, x.ndim)
    if mean is None or mean.operands[0] is not x:
        return None
    return x, between(centre, mean)


# ----------------------------------------------------------------------------------- affine part


def fits(match: Match, name: str) -> bool:
    """Return whether an operand lies along the normalised axes, which are the last ones."""
    norm = next(n for n in match.inner if isinstance(n.op, LayerNorm | RmsNorm))
    rank = norm.type.rank
    axes = sorted(a % rank for a in norm.op.attributes()["axes"])
    is_trailing = axes == list(range(rank - len(axes), rank))
    return is_trailing and match[name].shape == norm.type.shape[rank - len(axes) :]


def with_scale(x: Value, g: Value, match: Match) -> Value | None:
    norm = next(n for n in match.inner if isinstance(n.op, LayerNorm | RmsNorm))
    return norm.op(x, g) if fits(match, "g") else None


def with_shift(x: Value, b: Value, match: Match) -> Value | None:
    norm = next(n for n in match.inner if isinstance(n.op, LayerNorm | RmsNorm))
    gamma = norm.operands[1] if len(norm.operands) > 1 else None
    return norm.op(x, None if gamma is None else match.new(gamma), b) if fits(match, "b") else None


RecogniseNorms = fusion_of(recognise_norms, (LayerNorm, RmsNorm))
