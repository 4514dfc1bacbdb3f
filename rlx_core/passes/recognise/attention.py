"""Attention in traced code: two products with a softmax between them, with optional scale, cap, bias and mask.

    softmax(where(mask, cap·tanh(q @ kᵀ · scale / cap) + bias, fill)) @ v

The pattern is read from its end: the values, the weights, how keys are hidden, the bias, the cap, the scale, the products. Keys
may be transposed in any way, because attention takes the transpose of that operand. Axes stay where they are in
the first step; further rules then take the splitting into heads into the op, so that nothing is moved for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import evolve, field

from rlx_core.ir.dtypes import FLOATS
from rlx_core.ir.graph import Node, Value
from rlx_core.ir.types import Shape, broadcast_shapes, normalize_axis
from rlx_core.ops.activation import tanh
from rlx_core.ops.arithmetic import add
from rlx_core.ops.attention import Attention
from rlx_core.ops.attention_masks import MaskKind
from rlx_core.ops.attention_scores import EmptyRow
from rlx_core.ops.comparison import logical_not
from rlx_core.ops.conversion import Cast
from rlx_core.ops.linalg import MatMul, permuted, reshaped
from rlx_core.ops.softmax import Softmax
from rlx_core.ops.structural import Expand, Reshape, Transpose
from rlx_core.passes.engine.fusion import declined_if_kept, fusion_of
from rlx_core.passes.engine.rules import Declined, Match, RewriteRule, rewrite, ruleset
from rlx_core.passes.recognise.attention_hiding import Hiding, hiding_of, is_causal, is_finite
from rlx_core.passes.recognise.chains import Factors, factors_of
from rlx_core.system.records import frozen

SWAP_HEADS = (0, 2, 1, 3)


@ruleset("recognise-attention")
def recognise_attention() -> Iterator[RewriteRule]:
    """Recognise attention in products around a softmax, with its scale, cap, bias, mask and the result of an empty row."""
    yield (
        rewrite("attention", MatMul)
        .to(as_attention)
        .giving_up("the last bits")
        .sampled(q="f32[1, 2, 3, 4]", k="f32[1, 2, 5, 4]", v="f32[1, 2, 5, 4]", make=written_out)
    )
    yield rewrite("heads-in-place", Transpose).to(heads_in_place).sampled(x="f32[2, 3, 2, 4]", make=turned_heads)
    yield rewrite("features-in-place", Reshape).to(features_in_place).sampled(x="f32[2, 3, 8]", make=split_features)


def written_out(q: Value, k: Value, v: Value) -> Value:
    scores = MatMul()(q, permuted(k, (0, 1, 3, 2))) * 0.5
    return MatMul()(Softmax()(scores), v)


def turned_heads(x: Value) -> Value:
    transposed = permuted(x, SWAP_HEADS)
    return permuted(Attention(num_heads=2, head_dim=4, layout="bhsd")(transposed, transposed, transposed), SWAP_HEADS)


def split_features(x: Value) -> Value:
    split = reshaped(x, (2, 3, 2, 4))
    return reshaped(Attention(num_heads=2, head_dim=4, layout="bshd")(split, split, split), x.shape)


# ------------------------------------------------------------------------------------ the pattern


@frozen(eq=False)
class Found:
    """The ops between the products. `nodes` disappear: everything from the weights to the scores.

    Attributes:
        q, k_transposed: The operands of the first product.
        scale: The factor of the scores.
    """

    q: Value
    k_transposed: Value
    scale: float
    softcap: float | None
    bias: Value | None
    hiding: Hiding | None
    softmax: Softmax
    nodes: tuple[Node, ...]


@frozen
class Reading:
    """The nodes passed through so far."""

    nodes: list[Node] = field(factory=list)

    def through_casts(self, value: Value) -> Value:
        """Return `value` below casts between floats: attention computes in the wider dtype, so nothing is lost."""
        while isinstance(value.node.op, Cast) and value.node.operands[0] is not None:
            inner = value.node.operands[0]
            if value.dtype not in FLOATS or inner.dtype not in FLOATS:
                break
            self.nodes.append(value.node)
            value = inner
        return value

    def product(self, value: Value) -> Factors:
        """The factors of `value`; multiplications by constants are passed through."""
        factors = factors_of(value)
        if not factors.constants or len(factors.values) != 1:
            return Factors((), (value,))
        self.nodes.extend(factors.nodes)
        return factors


def as_attention(match: Match) -> Value | Declined | None:
    weights, v = match.root.present()
    structure = read(weights)
    if structure is None or isinstance(structure, Declined):
        return structure
    declined = declined_if_kept(match.graph, structure.nodes, {*structure.nodes, match.root})
    return declined or build(match, structure, v)


def read(weights: Value) -> Found | Declined | None:
    """Return the parts of attention weights, from the softmax down to the product; `None` if it is another pattern."""
    reading = Reading()
    weights = reading.through_casts(weights)
    softmax = weights.node.op
    if not isinstance(softmax, Softmax):
        return None
    reading.nodes.append(weights.node)
    scores = weights.node.operands[0]
    assert scores is not None, "softmax has an operand"
    hiding = hiding_of(reading.through_casts(scores))
    if hiding is not None:
        reading.nodes.append(hiding.node)
        scores = hiding.scores
    for bias, inner in summands(scores):
        inner_reading = Reading(list(reading.nodes))
        if bias is not None:
            inner_reading.nodes.append(reading_through(scores).node)
        factors = below_bias(inner_reading, inner)
        if factors is None:
            continue
        if hiding is not None and hiding.declined is not None:
            return hiding.declined
        q, k, scale, softcap = factors
        if normalize_axis(softmax.axis, weights.ndim) != weights.ndim - 1:
            return Declined(f"the softmax is over axis {softmax.axis}, not over the keys", "AxisNotLast")
        return Found(q, k, scale, softcap, bias, hiding, softmax, tuple(inner_reading.nodes))
    return None


def reading_through(value: Value) -> Value:
    return Reading().through_casts(value)


def summands(scores: Value) -> Iterator[tuple[Value | None, Value]]:
    """Yield the ways to read scores as a bias and another summand; without one last."""
    node = reading_through(scores).node
    if type(node.op) is add.op:
        left, right = node.present()
        for bias, inner in ((right, left), (left, right)):
            if inner.shape == scores.shape:
                yield bias, inner
    yield None, scores


def below_bias(reading: Reading, scores: Value) -> tuple[Value, Value, float, float | None] | None:
    """q, kᵀ, scale and cap of scores without bias, or `None` if no product is at the end."""
    outer = reading.product(reading.through_casts(scores))
    value = reading.through_casts(outer.values[0])
    softcap = None
    if type(value.node.op) is tanh.op and value.node.operands[0] is not None:
        softcap = outer.constant
        reading.nodes.append(value.node)
        outer = reading.product(reading.through_casts(value.node.operands[0]))
        outer = evolve(outer, constants=(*outer.constants, softcap))
        value = reading.through_casts(outer.values[0])
    node = value.node
    if not isinstance(node.op, MatMul) or node.op.acc_dtype is not None:
        return None
    reading.nodes.append(node)
    q, k = node.present()
    is_capped = softcap is not None and softcap > 0
    return (q, k, outer.constant, softcap) if is_capped or softcap is None else None


# --------------------------------------------------------------------------------- the replacement


def build(match: Match, structure: Found, v: Value) -> Value | Declined | None:
    """The attention op for the pattern, in layout bhsd; without a head axis it is one head, in layout bsd."""
    q, k_t = structure.q, structure.k_transposed
    rank = q.ndim
    dtypes = {q.dtype, k_t.dtype, v.dtype, match.root.type.dtype}
    heads, head_dim = (q.shape[1] if rank == 4 else 1), q.shape[-1]
    if not rank == k_t.ndim == v.ndim or rank not in (2, 3, 4):
        return Declined(f"q, k and v have {rank}, {k_t.ndim} and {v.ndim} axes", "NotFused")
    if len(dtypes) > 1:
        return Declined(f"q, k, v and the result are {' '.join(sorted(d.name for d in dtypes))}", "DtypeMismatch")
    if not isinstance(heads, int) or not isinstance(head_dim, int) or head_dim == 0:
        return Declined(f"the heads of {q.type} have no known size", "NotFused")
    if not q.shape[:-2] == k_t.shape[:-2] == v.shape[:-2]:
        return Declined(f"q, k and v broadcast ({q.type}, {k_t.type}, {v.type})", "NotFused")
    visible = seen_keys(structure, (*q.shape[:-1], k_t.shape[-1]))
    if isinstance(visible, Declined):
        return visible
    keys, values, times = shared_heads(k_t, v)
    swap = (*range(rank - 2), rank - 1, rank - 2)
    op = Attention(
        num_heads=heads,
        head_dim=head_dim,
        num_kv_heads=None if times == 1 else heads // times,
        layout="bhsd" if rank == 4 else "bsd",
        mask_kind=visible.mask_kind,
        score_scale=structure.scale,
        attn_logit_softcap=structure.softcap,
        empty_row=visible.empty_row,
    )
    placed_keys = turned(match, k_t, swap) if keys is None else match.new(keys)
    mask = None if visible.mask is None else against_scores(match.new(visible.mask), rank)
    if mask is not None and visible.is_inverted:
        mask = logical_not(mask)
    bias = None if structure.bias is None else against_scores(match.new(structure.bias), rank)
    return op(match.new(q), placed_keys, match.new(values), mask, bias)


@frozen(eq=False)
class Visible:
    """The visible keys, in the op's terms."""

    mask_kind: MaskKind
    empty_row: EmptyRow
    mask: Value | None = None
    is_inverted: bool = False


def seen_keys(structure: Found, scores: Shape) -> Visible | Declined:
    """Return the mask of the op, and the result of a query without visible keys exactly as in the pattern."""
    hiding, bias = structure.hiding, structure.bias
    if bias is not None and broadcast_shapes(bias.shape, scores) != scores:
        return Declined(f"the bias {bias.type} enlarges the scores {list(scores)}", "BiasRankTooHigh")
    may_hide = bias is not None and not is_finite(bias)
    # A row of only -inf: the softmax determines its result. Without such a row the case does not arise.
    of_infinities: EmptyRow = structure.softmax.empty_row
    if hiding is None:
        return Visible("none" if bias is None else "bias", of_infinities if may_hide else "zero")
    if hiding.empty_row == "uniform" and may_hide:
        return Declined("a bias that may be infinite stands under a finite fill", "NotFused")
    if is_causal(hiding.mask, hiding.is_inverted):
        return Visible("causal", of_infinities if may_hide else "zero")
    empty_row = "uniform" if hiding.empty_row == "uniform" else of_infinities
    return Visible("custom", empty_row, hiding.mask, hiding.is_inverted)


def against_scores(x: Value, rank: int) -> Value:
    """A mask or a bias of scores with `rank` axes, as one of `[batch, heads, queries, keys]`."""
    shape = (*(1,) * (rank - x.ndim), *x.shape)
    return reshaped(x, (*(1,) * (2 - max(rank - 2, 0)), *shape) if rank != 3 else (shape[0], 1, *shape[1:]))


def turned(match: Match, value: Value, perm: tuple[int, ...]) -> Value:
    """`value` of the old graph with its axes permuted; a transpose that it comes from becomes part of this one."""
    node = value.node
    if not isinstance(node.op, Transpose) or node.operands[0] is None:
        return permuted(match.new(value), perm)
    first = [p % value.ndim for p in node.op.perm]
    return permuted(match.new(node.operands[0]), [first[p] for p in perm])


def shared_heads(k_t: Value, v: Value) -> tuple[Value | None, Value, int]:
    """Keys and values before each head was repeated for a group of queries, and how often; `None`, `v`, 1 otherwise."""
    node = k_t.node
    is_swapped = isinstance(node.op, Transpose) and [p % k_t.ndim for p in node.op.perm] == [0, 1, 3, 2]
    keys = repeated_heads(node.operands[0]) if is_swapped and k_t.ndim == 4 else None
    values = repeated_heads(v) if keys is not None else None
    if keys is None or values is None or keys[1] != values[1]:
        return None, v, 1
    return keys[0], values[0], keys[1]


def repeated_heads(x: Value | None) -> tuple[Value, int] | None:
    """Return `[b, kv, s, d]` and the repeats of each head in `x`: a reshape of an expansion of a reshape."""
    expanded = None if x is None or not isinstance(x.node.op, Reshape) else x.node.operands[0]
    inserted = None if expanded is None or not isinstance(expanded.node.op, Expand) else expanded.node.operands[0]
    base = None if inserted is None or not isinstance(inserted.node.op, Reshape) else inserted.node.operands[0]
    if x is None or expanded is None or inserted is None or base is None or base.ndim != 4 or expanded.ndim != 5:
        return None
    batch, kv, seq, features = base.shape
    times = expanded.shape[2]
    is_repeated = (
        inserted.shape == (batch, kv, 1, seq, features)
        and expanded.shape == (batch, kv, times, seq, features)
        and x.shape == (batch, kv * times, seq, features)
    )
    return (base, times) if is_repeated and isinstance(times, int) else None


# ------------------------------------------------------------------------- heads without transposes


def heads_in_place(match: Match) -> Value | Declined | None:
    """Attention between transposes of heads and positions, as attention on the untransposed tensors."""
    attention_node = attention_below(match, "bhsd")
    if attention_node is None or [p % match.root.type.rank for p in match.root.op.attributes()["perm"]] != list(
        SWAP_HEADS
    ):
        return None
    sources = [source_of(v, Transpose) for v in attention_node.operands[:3]]
    if any(
        s is None or tuple(p % 4 for p in v.node.op.perm) != SWAP_HEADS  # type: ignore[union-attr]
        for s, v in zip(sources, attention_node.operands, strict=False)
    ):
        return None
    placed = [match.new(s) for s in sources if s is not None]
    return moved(match, attention_node, placed, layout="bshd")


def features_in_place(match: Match) -> Value | Declined | None:
    """Attention on split features, as attention that splits them itself."""
    attention_node = attention_below(match, "bshd")
    if attention_node is None:
        return None
    sources = [source_of(v, Reshape) for v in attention_node.operands[:3]]
    if any(s is None for s in sources):
        return None
    placed = []
    for source, v in zip(sources, attention_node.operands, strict=False):
        assert source is not None, "tested above"
        assert v is not None, "queries, keys and values are required"
        batch, seq, heads, features = v.shape
        placed.append(reshaped(match.new(source), (batch, seq, heads * features)))
    result = moved(match, attention_node, placed, layout="bsd")
    return result if isinstance(result, Declined) else reshaped(result, match.root.type.shape)


def attention_below(match: Match, layout: str) -> Node | None:
    """The attention that a movement op reads, if it has this layout."""
    first = match.root.operands[0]
    node = None if first is None else first.node
    return node if node is not None and isinstance(node.op, Attention) and node.op.layout == layout else None


def source_of(value: Value | None, op: type) -> Value | None:
    return value.node.operands[0] if value is not None and isinstance(value.node.op, op) else None


def moved(match: Match, node: Node, operands: list[Value], **attributes: Any) -> Any:
    declined = declined_if_kept(match.graph, [node], [match.root])
    others = [None if v is None else match.new(v) for v in node.operands[3:]]
    return declined or evolve(node.op, **attributes)(*operands, *others)


RecogniseAttention = fusion_of(recognise_attention, (Attention,))
