"""Writing `.onnx`: `rlx.save("m.onnx", compiled)`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from rlx_core.errors import Fact, FormatError, RlxError, UnsupportedError, unsupported
from rlx_core.ir.bundle import Bundle, Bundled
from rlx_core.ir.dims import Expr
from rlx_core.ir.dims.atoms import SizeSymbol
from rlx_core.ir.graph import Constant, Graph, Input, Node, Param, Value, decomposition, graph_of
from rlx_core.ir.hir import lower_hir
from rlx_core.ir.types import TensorType
from rlx_core.ops.call import results_of
from rlx_core.ops.control.conditional import If
from rlx_core.ops.control.loop import While
from rlx_core.ops.control.scan import Scan
from rlx_core.system.private import replace_file
from rlx_onnx.exporting import spectra
from rlx_onnx.exporting.writer import OPSET, TABLE, Writer
from rlx_onnx.reading.tensors import DTYPES

IR_VERSION = 10


def export_file(path: Path, value: Any, host: Any) -> None:
    """The exporter of `.onnx` files: what `rlx.save` calls.

    Raises:
        FormatError: The value is no program.
        UnsupportedError: It has ops that ONNX has nothing for; all are named.
    """
    try:
        data = to_proto(value).SerializeToString()
    except RlxError as error:
        raise error.with_fact(Fact("file", path)) from None
    replace_file(path, [data])


def to_proto(value: Any) -> Any:
    """Return a compiled function, an `rlx.Model` or a graph as an `onnx.ModelProto`.

    Parameters are initializers by their names, results are `result_0`, `result_1` and so on. Ops without an ONNX equivalent are
    exported by their decomposition.

    Raises:
        FormatError: The value is no program.
        UnsupportedError: It has ops without an ONNX equivalent; all are named.
    """
    if isinstance(value, Graph):
        bundle = Bundle(value, {}, {})
    elif isinstance(value, Bundle | Bundled):
        bundle = value.bundle() if isinstance(value, Bundled) else value
    else:
        raise FormatError(
            f"an ONNX file holds a compiled function, a model or a graph, not a {type(value).__name__}",
            hint="rlx.compile(function, ...) makes a function with its weights",
        )
    graph, _ = lower_hir(bundle.graph, "fusable")
    return _Export(graph, {name: each.array for name, each in bundle.params.items()}).model()


class _Export:
    """One graph on its way."""

    def __init__(self, graph: Graph, params: Mapping[str, np.ndarray]) -> None:
        self.graph, self.params = graph, params
        self.names: dict[Value, str] = {}
        self.missing: dict[str, list[str]] = {}
        symbols: dict[SizeSymbol, tuple[str, int]] = {}
        for each in graph.inputs:
            for axis, dim in enumerate(each.type.shape):
                if isinstance(dim, Expr) and (alone := _alone(dim)) is not None:
                    symbols.setdefault(alone, (_label(each), axis))
        self.writer = Writer(symbols)

    def model(self) -> Any:
        inputs = []
        for each in self.graph.inputs:
            self.names[each] = _label(each)
            inputs.append(_declared(_label(each), each.type))
        for each in self.graph.params:
            name = _label(each)
            self.names[each] = name
            if name in self.params:
                self.writer.initializers.append(
                    numpy_helper.from_array(np.array(self.params[name], order="C", copy=None), name)
                )
            else:
                inputs.append(_declared(name, each.type))
        self._nodes(self.graph, self.names)
        if self.missing:
            raise unsupported(self.graph.name, self.missing)
        outputs = []
        for number, value in enumerate(self.graph.outputs):
            name = f"result_{number}" if len(self.graph.outputs) > 1 else "result"
            self.writer.nodes.append(helper.make_node("Identity", [self.names[value]], [name], name=name))
            outputs.append(_declared(name, value.type))
        created = helper.make_graph(self.writer.nodes, self.graph.name, inputs, outputs, self.writer.initializers)
        return helper.make_model(
            created, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="rlx"
        )

    def _nodes(self, graph: Graph, names: dict[Value, str]) -> None:
        for node in graph.nodes:
            if isinstance(node.op, Input | Param):
                continue
            if isinstance(node.op, Constant):
                names[node.result] = self.writer.constant(spectra.pairs_of(node.op.value.array))
                continue
            operands = [None if each is None else names.get(each) for each in node.operands]
            if any(each is not None and name is None for each, name in zip(node.operands, operands, strict=True)):
                continue  # one of its operands is itself missing
            self._node(node, operands, names)

    def _node(self, node: Node, operands: list[str | None], names: dict[Value, str]) -> None:
        if isinstance(node.op, Scan | If | While):
            written = {Scan: self._scan, If: self._if, While: self._while}[type(node.op)]
            names.update(zip(node.results, written(node, [str(each) for each in operands]), strict=True))
            return
        handler = TABLE.get(node.op.name)
        if spectra.has_complex(node) and node.op.name not in spectra.PAIRS:
            handler, parts = None, spectra.in_parts(node)
            if parts is not None:
                self._inlined(node, parts, operands, names)
                return
        refused = ""
        if handler is not None:
            try:
                result = handler.function(self.writer, node, *operands)
            except UnsupportedError as error:
                refused = f": {error.message}"
            else:
                results = result if isinstance(result, tuple) else (result,)
                names.update(zip(node.results, results, strict=True))
                return
        if node.op.decompose is None:
            self.missing.setdefault(node.op.name, []).append(f"{node.results[0]!r}{refused}")
            return
        self._inlined(node, decomposition(node.op, node.operand_types), operands, names)

    def _inlined(self, node: Node, inner: Graph, operands: list[str | None], names: dict[Value, str]) -> None:
        """Emit the decomposition of a node in its place."""
        values = iter(inner.inputs)
        within: dict[Value, str] = {next(values): name for name in operands if name is not None}
        self._nodes(inner, within)
        names.update((a, within[b]) for a, b in zip(node.results, inner.outputs, strict=True) if b in within)

    def _graph(self, body: Graph, values: list[str], inputs: list[Any]) -> Any:
        """A graph inside of another, which uses names around it."""
        outer, self.writer = self.writer, Writer(self.writer.symbols, self.writer.numbers)
        try:
            names: dict[Value, str] = dict(zip(body.inputs, values, strict=True))
            self._nodes(body, names)
            outputs = []
            for value in body.outputs:
                name = self.writer("Identity", names.get(value, ""))
                outputs.append(_declared(name, value.type))
            return helper.make_graph(self.writer.nodes, body.name, inputs, outputs, self.writer.initializers)
        finally:
            self.writer = outer

    def _if(self, node: Node, operands: list[str]) -> tuple[str, ...]:
        branches = [self._graph(body, operands[1:], []) for body in (node.op.then, node.op.otherwise)]  # type: ignore[attr-defined]
        return self._several("If", operands[:1], node, then_branch=branches[0], else_branch=branches[1])

    def _scan(self, node: Node, operands: list[str]) -> tuple[str, ...]:
        """Constants are used by their names around the body; a scan over nothing goes over numbers."""
        op: Any = node.op
        first, after = op.carries, op.carries + op.consts
        carries, consts, xs = operands[:first], operands[first:after], operands[after:]
        types = [each.type for each in op.body.inputs]
        within = [self.writer.fresh("x") for _ in types]
        values = [*within[:first], *consts, *within[after:]]
        scanned = [i for i in range(len(types)) if not first <= i < after]
        inputs = [_declared(within[i], types[i]) for i in scanned]
        if not xs:
            ends = (self.writer.constant(0, np.int64), self.writer.count(op.length), self.writer.constant(1, np.int64))
            xs = [self.writer("Range", *ends)]
            inputs.append(helper.make_tensor_value_info(self.writer.fresh("x"), TensorProto.INT64, []))
        body = self._graph(op.body, values, inputs)
        way = {"scan_input_directions": [1] * len(xs)} if op.reverse else {}
        rows = len(node.results) - op.carries
        way |= {"scan_output_directions": [1] * rows} if op.reverse and rows else {}
        return self._several("Scan", [*carries, *xs], node, body=body, num_scan_inputs=len(xs), **way)

    def _while(self, node: Node, operands: list[str]) -> tuple[str, ...]:
        """The condition is computed before the loop, and at the end of each step for the next one."""
        op: Any = node.op
        carries, consts = operands[: op.carries], operands[op.carries :]
        maximum = "" if op.max_steps is None else self.writer.constant(op.max_steps, np.int64)
        within = [self.writer.fresh("x") for _ in carries]
        inputs = [
            helper.make_tensor_value_info(self.writer.fresh("x"), TensorProto.INT64, []),
            helper.make_tensor_value_info(self.writer.fresh("x"), TensorProto.BOOL, []),
            *(_declared(name, each.type) for name, each in zip(within, op.body.inputs, strict=False)),
        ]
        types = [each.type for each in op.body.inputs]

        def step(*x: Value) -> tuple[Value, ...]:
            result = results_of(op.body, x)
            return (*results_of(op.cond, (*result, *x[op.carries :])), *result)

        first = dict(zip(op.cond.inputs, operands, strict=True))
        self._nodes(op.cond, first)
        goes_on = first.get(op.cond.outputs[0], "")
        body = self._graph(graph_of(op.body.name, types, step), [*within, *consts], inputs)
        return self._several("Loop", [maximum, goes_on, *carries], node, body=body)

    def _several(self, op: str, operands: list[str], node: Node, **attributes: Any) -> tuple[str, ...]:
        result = self.writer(op, *operands, results=len(node.results), **attributes)
        return result if isinstance(result, tuple) else (result,)


def _label(value: Value) -> str:
    """Return the name of an input or a parameter."""
    assert isinstance(value.node.op, Input | Param), "what a program takes are inputs and parameters"
    return value.node.op.label


def _alone(dim: Expr) -> SizeSymbol | None:
    """The symbol that a size is, if it is nothing else."""
    if len(dim.terms) == 1 and dim.terms[0][1] == 1 and len(dim.terms[0][0]) == 1:
        atom, power = dim.terms[0][0][0]
        return atom if power == 1 and isinstance(atom, SizeSymbol) else None
    return None


def _declared(name: str, type: TensorType) -> Any:
    shape = [n if isinstance(n, int) else str(n) for n in type.shape]
    return helper.make_tensor_value_info(name, DTYPES.element(type.dtype), shape)
