"""Mixed precision: products, convolutions and attention of f32 programs in bf16 or f16, with sums in f32.

The category of an op (`Op.category`) determines its dtype:

* `compute`: operands in f32 are cast to the narrow dtype, if the target is faster with it. Sums are in f32.
* `elementwise` and `movement`: in the narrow dtype between two such ops, if all their operands are in it; in f32 elsewhere. So
  the update of a weight by its gradient, and the losses and statistics of results, are in f32.
* `reduction` and `boundary`: in f32, and so are element-wise ops that lose accuracy in a narrow dtype (`F32_OPS`).

Every value keeps its declared dtype for its other readers, and inputs, parameters and results of the program keep theirs.

Source: Micikevicius et al. 2018, "Mixed Precision Training", arXiv:1710.03740, section 3. TensorFlow's graph pass
`auto_mixed_precision` has the second rule, and PyTorch's `autocast` computes most of `F32_OPS` in f32.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
from attrs import Factory
from attrs import field as attribute
from attrs.validators import ge, in_

from rlx_core.errors import RlxError
from rlx_core.ir.dtypes import DType, dtype, f16, f32
from rlx_core.ir.graph import Graph, Node, Param, Value, nested_graphs, probe
from rlx_core.ir.op import Op
from rlx_core.ir.rewrite import rebuild
from rlx_core.ir.types import TensorType
from rlx_core.ops.conversion import cast
from rlx_core.ops.fused import FusedMatMulBiasAct
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.structural import Reshape, Transpose
from rlx_core.passes.engine.base import (
    LOWERED,
    Context,
    Conversion,
    Pass,
    Result,
    define_pass,
    each_graph,
    emit_like,
    field,
)
from rlx_core.passes.engine.bound_values import bound_nodes, leaves_of
from rlx_core.passes.engine.fusion import refusal_of
from rlx_core.passes.engine.patterns import scalar_of
from rlx_core.system.records import evolve, frozen


def _ops(names: str) -> frozenset[str]:
    return frozenset(f"rlx.{name}" for name in names.split())


F32_OPS: Final = _ops(
    "acos acosh asin asinh atanh cosh sinh tan exp exp2 expm1 log log2 log10 log1p log_add_exp softplus pow square"
    " reciprocal rsqrt erfinv digamma lgamma polygamma hypot cast scatter_add"
)
"""Element-wise ops whose results have much larger relative errors than their operands, or overflow f16 where these do not; casts,
which declare their dtype; and sums in memory."""

FOLLOWING: Final = _ops("rope rope_backward fused_swiglu")
"""Ops of the category `compute` that multiply no matrices: they have the dtype of their operands."""

F32_OPERANDS: Final[Mapping[str, tuple[int, ...]]] = {
    "rlx.attention": (3, 4),
    "rlx.attention_backward": (4, 5),
    "rlx.rope": (1, 2),
    "rlx.rope_backward": (1, 2),
}
"""Operands that ops take in f32 next to narrow ones: masks and biases of scores, and tables of angles."""

QUANTIZED: Final[Mapping[str, str]] = {
    "rlx.block_scaled_matmul": "its operands are codes",
    "rlx.fused_matmul_prologue": "its weight is computed from narrower numbers",
}


@define_pass("mixed-precision")
class MixedPrecision(Pass):
    """Compute matrix products, convolutions and attention of f32 in a narrow dtype, if the target is faster with it.

    `precision.policy` of the configuration includes the pass. The report of the compilation lists each such operation, with the
    bytes that its weights take before and after, and each one that stays in f32, with the reason.

    Attributes:
        dtype: `bf16` or `f16`.
        force: Whether operations are converted where they are faster in f32, too.
        keep: Ops that stay in f32: names, or patterns of names.
        min_size: The smallest k and n of a product of matrices `[m, k]` and `[k, n]` that is converted, and the smallest m, if
            the right one is not bound and has to be cast in every run: casts of small ones take as long as they save.
    """

    requires: ClassVar = frozenset({LOWERED})
    gives_up: ClassVar = "rounding to a narrow dtype, with overflow and underflow"

    dtype: str = field(default="bf16", validator=in_(("bf16", "f16")))
    force: bool = False
    keep: tuple[str, ...] = ()
    min_size: int = field(default=64, validator=ge(1))

    def run(self, graph: Graph, context: Context) -> Result:
        return each_graph(graph, lambda each: Narrowing(each, context, self).result)


@frozen(slots=False, eq=False)
class Narrowing:
    """One graph while its operations are converted.

    Attributes:
        narrow: Values of the new graph in f32 → the same in the narrow dtype.
    """

    graph: Graph
    context: Context
    options: MixedPrecision
    narrow: dict[Value, Value] = attribute(init=False, default=Factory(dict))

    @cached_property
    def dtype(self) -> DType:
        return dtype(self.options.dtype)

    @property
    def result(self) -> Result:
        """The graph with converted operations, and an entry for every operation of the category `compute`."""
        entries = [self.entry_of(node, reason) for node, reason in self.reasons.items()]
        if not self.converted:
            return Result(self.graph, self.graph.identity, conversions=entries)
        graph, values = rebuild(self.graph, self.replaced, by=self.options.name)
        return Result(graph, values, {"converted": len(self.converted)}, conversions=entries)

    # ------------------------------------------------------------------------------------------ choice

    @cached_property
    def reasons(self) -> dict[Node, str | None]:
        """Operations of the category `compute` in f32, each with the reason why it is kept, `None` if it is converted."""
        return {node: self.reason_against(node) for node in self.graph.nodes if self.is_candidate(node)}

    @cached_property
    def converted(self) -> set[Node]:
        return {node for node, reason in self.reasons.items() if reason is None}

    def is_candidate(self, node: Node) -> bool:
        op = node.op
        return op.category == "compute" and op.name not in FOLLOWING and any(t.dtype is f32 for t in node.types)

    def reason_against(self, node: Node) -> str | None:
        """Return why an operation is kept, as "its .." or "the ..": a clause; `None` if it is converted."""
        op, target = node.op, self.context.target
        if op.name in QUANTIZED:
            return QUANTIZED[op.name]
        if nested_graphs(op) or getattr(op, "region", None) is not None:
            return "it computes element-wise operations too"
        if self.is_kept(op):
            return "the configuration keeps it in f32"
        operands = [t for t in node.operand_types if t is not None]
        if any(t.dtype.is_float and t.dtype is not f32 for t in operands):
            return "its operands have several dtypes"
        if any(t.dtype is not f32 for t in node.types) or not any(t.dtype is f32 for t in operands):
            return "its operands are not f32"
        narrow = self.probed(node)
        if narrow is None:
            return f"it does not take operands in {self.dtype}"
        if self.options.force:
            return None
        if target is None:
            return f"no target is known to multiply {self.dtype} faster than f32"
        if self.dtype not in target.fast_products:
            return f"{target.name} multiplies f32 faster than {self.dtype}"
        if self.is_small(node):
            return "it is small"
        refusal = refusal_of(self.context, narrow)
        return None if refusal is None else refusal.reason

    def is_small(self, node: Node) -> bool:
        """Return whether a product of matrices has a size below the limit."""
        if not isinstance(node.op, MatMul | FusedMatMulBiasAct):
            return False
        x, weight, *_ = node.present()
        sizes = [*weight.shape[-2:], *(() if weight.node in self.bound else x.shape[-2:-1])]
        return any(isinstance(size, int) and size < self.options.min_size for size in sizes)

    def is_kept(self, op: Op) -> bool:
        return any(fnmatchcase(op.name, word) or op.name == f"rlx.{word}" for word in self.options.keep)

    def probed(self, node: Node) -> Node | None:
        """Return a node of the same op on narrow operands; `None` if its results are not the same ones in the narrow dtype."""
        types = [
            None if t is None else self.narrow_type(t) if self.is_cast(node, i) else t
            for i, t in enumerate(node.operand_types)
        ]
        try:
            narrow = probe(node.op, types)
        except RlxError:
            return None
        return narrow if narrow.types == tuple(map(self.narrow_type, node.types)) else None

    def narrow_type(self, type: TensorType) -> TensorType:
        return type.with_dtype(self.dtype) if type.dtype is f32 else type

    def is_cast(self, node: Node, number: int) -> bool:
        """Return whether an operand of a converted node is cast, if it is in f32."""
        return number not in F32_OPERANDS.get(node.op.name, ())

    @cached_property
    def following(self) -> set[Node]:
        """Element-wise and movement nodes all of whose operands are narrow, and which a converted operation reads in the end."""
        able: set[Node] = set()
        for node in self.graph.nodes:
            if self.may_follow(node):
                operands = self.operands_of(node)
                is_narrow = [v.node in self.converted or v.node in able for v in operands]
                fits = all(n or self.is_number(v) for n, v in zip(is_narrow, operands, strict=True))
                if any(is_narrow) and fits and self.probed(node) is not None:
                    able.add(node)
        result: set[Node] = set()
        for node in reversed(self.graph.nodes):
            if node in able and any(
                self.reads_narrow(user, v, result) for v in node.results for user in self.graph.uses[v]
            ):
                result.add(node)
        return result

    def may_follow(self, node: Node) -> bool:
        op = node.op
        is_kind = op.category in ("elementwise", "movement") or op.name in FOLLOWING
        is_plain = is_kind and op.is_pure and op.name not in F32_OPS and not nested_graphs(op) and not self.is_kept(op)
        return is_plain and all(t.dtype is f32 for t in node.types)

    def operands_of(self, node: Node) -> list[Value]:
        """Return the operands in f32 that are cast if the node is converted."""
        return [v for i, v in enumerate(node.operands) if v is not None and v.dtype is f32 and self.is_cast(node, i)]

    def is_number(self, value: Value) -> bool:
        """Return whether a value is one constant number that the narrow dtype has with its full precision."""
        number = scalar_of(value)
        if number is None or self.dtype is not f16:
            return number is not None
        limits = np.finfo(np.float16)
        return bool(number == 0 or limits.tiny <= abs(number) <= limits.max)

    def reads_narrow(self, user: Node, value: Value, following: set[Node]) -> bool:
        is_narrow = user in self.converted or user in following
        return is_narrow and any(v is value for v in self.operands_of(user))

    @cached_property
    def bound(self) -> set[Node]:
        return bound_nodes(self.graph)

    # ----------------------------------------------------------------------------------- replacements

    def replaced(self, node: Node, operands: tuple[Value | None, ...]) -> tuple[Value, ...] | None:
        """Return the results of a node in f32, computed in the narrow dtype; `None` if the node stays as it is."""
        if node not in self.converted and node not in self.following:
            return None
        narrow = [
            self.narrowed(v) if v is not None and v.dtype is f32 and self.is_cast(node, i) else v
            for i, v in enumerate(operands)
        ]
        if self.has_wide_sums(node):
            assert isinstance(node.op, MatMul), "others have no dtype of sums"
            return emit_like(node, narrow, op=evolve(node.op, acc_dtype=f32))
        results = emit_like(node, narrow, types=tuple(map(self.narrow_type, node.types)))
        return tuple(map(self.widened, results))

    def has_wide_sums(self, node: Node) -> bool:
        """Return whether the sums of a product are its result, because every reader takes them in f32."""
        is_product = isinstance(node.op, MatMul) and node in self.converted
        if not is_product or any(
            self.reads_narrow(user, node.result, self.following) for user in self.graph.uses[node.result]
        ):
            return False
        op = evolve(node.op, acc_dtype=f32)
        return refusal_of(self.context, probe(op, [self.narrow_type(v.type) for v in node.present()])) is None

    def narrowed(self, value: Value) -> Value:
        """Return a value of the new graph in the narrow dtype: each is cast once, and before it is transposed."""
        moved: list[Value] = []
        while value not in self.narrow and isinstance(value.node.op, Reshape | Transpose):
            moved.append(value)
            (value,) = value.node.present()
        if value not in self.narrow:
            self.narrow[value] = cast(value, to=self.dtype)
        for each in reversed(moved):
            self.narrow[each] = each.node.op(self.narrow[value])
            value = each
        return self.narrow[value]

    def widened(self, value: Value) -> Value:
        """Return a result in f32, from which `narrowed` returns the narrow one."""
        wide: Value = cast(value, to=f32)
        self.narrow[wide] = value
        return wide

    # ------------------------------------------------------------------------------------------ report

    def entry_of(self, node: Node, reason: str | None) -> Conversion:
        """Return the report's entry for an operation."""
        weights = [v for v in node.present() if v.dtype is f32 and v.node in self.bound and v.type.is_static]
        params = sorted(
            {v.node for w in weights for v in leaves_of(w) if isinstance(v.node.op, Param)}, key=lambda n: n.index
        )
        names = f" ({', '.join(n.label for n in params)})" if params else ""
        what = f"{node.op.title} of {', '.join(str(v.type) for v in node.present())}{names}"
        before = sum(w.type.static_nbytes for w in weights)
        after = before if reason is not None else before // f32.itemsize * self.dtype.itemsize
        return Conversion(self.options.name, node.label, what, reason, before, after)
