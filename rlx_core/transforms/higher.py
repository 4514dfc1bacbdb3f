"""Second derivatives and Jacobians, composed from the three transformations of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from rlx_core.errors import DtypeError, Fact
from rlx_core.ir.dims import Dim, product
from rlx_core.ir.dtypes import i64
from rlx_core.ir.graph import Builder, Graph, Value, building, leaf_name
from rlx_core.ir.module import expect_graph
from rlx_core.ir.rewrite import inline
from rlx_core.ir.types import TensorType
from rlx_core.ops.comparison import equal
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import iota
from rlx_core.ops.structural import reshape
from rlx_core.transforms.batch import vmap_graph
from rlx_core.transforms.engine import STANDARD, Engine
from rlx_core.transforms.graphs import find_value, pruned
from rlx_core.transforms.jvp import jvp_graph
from rlx_core.transforms.vjp import grad, losses, vjp_graph, vjp_with_values

Form = Literal["dims", "matrix"]
"""A Jacobian as [result dims.., wrt dims..], or flattened to [result size, wrt size]."""


def hvp(graph: Graph, wrt: Sequence[str | Value], *, aux: int = 0, engine: Engine = STANDARD) -> Graph:
    """Return the Hessian of a scalar loss times a direction, given as the extra inputs `tangent_<name>`.

    Outputs [loss, aux.., gradients.., tangents of the loss and aux.., H·v..]. It is forward mode over reverse mode.

    Raises:
        ShapeError, DtypeError: The loss is not a real scalar.
    """
    expect_graph("hvp", graph)
    outputs = losses(graph, aux, "one")
    both, values = vjp_with_values(graph, wrt, outputs=outputs, seed="one", engine=engine)
    handles = [w if isinstance(w, str) else values[w] for w in wrt]
    return jvp_graph(both, handles, engine=engine)


def jacfwd(graph: Graph, wrt: Sequence[str], *, form: Form = "dims", engine: Engine = STANDARD) -> Graph:
    """Return the Jacobian of every output by every name in `wrt`, output by output, by forward mode over a basis.

    Suitable if there are fewer inputs than outputs; the basis is batched, not looped over.

    Raises:
        DtypeError: One of them is not a real float: a complex Jacobian depends on which part is kept constant.
    """
    expect_graph("jacfwd", graph)
    _require_real(graph, [find_value(graph, w) for w in wrt])
    columns = [_tangents_over_basis(graph, name, engine) for name in wrt]
    builder, leaves = _copied_leaves(graph, f"{graph.name}_jacfwd")
    with building(builder):
        inlined = [inline(builder, column, leaves) for column in columns]
        types = [find_value(graph, w).type for w in wrt]
        jacobians = [
            _shaped(inlined[j][i], graph.outputs[i].shape, types[j].shape, form)
            for i in range(len(graph.outputs))
            for j in range(len(wrt))
        ]
    return builder.finish(jacobians)


def _tangents_over_basis(graph: Graph, name: str, engine: Engine) -> Graph:
    """Return the tangents of all outputs along each unit direction of one input, the direction last."""
    type = find_value(graph, name).type
    forward = jvp_graph(graph, [name], engine=engine)
    tangents = pruned(forward, forward.outputs[len(graph.outputs) :])
    tangent = leaf_name(tangents.inputs[-1])
    return _fed_with_basis(tangents, tangent, [-1] * len(tangents.outputs), type, engine)


def jacrev(graph: Graph, wrt: Sequence[str], *, form: Form = "dims", engine: Engine = STANDARD) -> Graph:
    """Return the Jacobian of every output by every name in `wrt`, output by output, by reverse mode over a basis.

    Suitable if there are fewer outputs than inputs; the basis is batched, not looped over.

    Raises:
        DtypeError: One of them is not a real float: a complex Jacobian depends on which part is kept constant.
    """
    expect_graph("jacrev", graph)
    _require_real(graph, [find_value(graph, w) for w in wrt])
    builder, leaves = _copied_leaves(graph, f"{graph.name}_jacrev")
    jacobians = []
    with building(builder):
        for k, output in enumerate(graph.outputs):
            rows = inline(builder, _cotangents_over_basis(graph, wrt, k, engine), leaves)
            for name, row in zip(wrt, rows, strict=True):
                jacobians.append(_shaped(row, output.shape, find_value(graph, name).shape, form))
    return builder.finish(jacobians)


def _cotangents_over_basis(graph: Graph, wrt: Sequence[str], k: int, engine: Engine) -> Graph:
    """Return the cotangents of `wrt` for each unit cotangent of output `k`, which comes first."""
    type = graph.outputs[k].type
    both = vjp_graph(graph, wrt, outputs=[k], seed="one" if type.rank == 0 else "input", engine=engine)
    rows = pruned(both, both.outputs[len(graph.outputs) :])
    if type.rank == 0:
        return rows
    return _fed_with_basis(rows, leaf_name(rows.inputs[-1]), [0] * len(wrt), type, engine)


def _fed_with_basis(graph: Graph, name: str, out_axes: Sequence[int], type: TensorType, engine: Engine) -> Graph:
    """Return the linear map `graph` of the input `name`, applied to every unit vector at once."""
    size = product(type.shape)
    batched = vmap_graph(graph, {name: 0}, out_axes, size, engine=engine)
    builder, leaves = _copied_leaves(graph, graph.name, skipping=name)
    with building(builder):
        leaves[name] = _basis(builder, size, type)
    return builder.finish(inline(builder, batched, leaves))


def _basis(builder: Builder, size: Dim, type: TensorType) -> Value:
    """Return the unit vectors of a type: a constant, or computed if a size is a symbol."""
    if isinstance(size, int) and type.is_static:
        return builder.constant(np.eye(size, dtype=np.float64).reshape(size, *type.static_shape), type.dtype)
    row, column = (iota(axis=axis, shape=(size, size), dtype=i64) for axis in (0, 1))
    return reshape(cast(equal(row, column), to=type.dtype), (size, *type.shape))


def _copied_leaves(graph: Graph, name: str, skipping: str | None = None) -> tuple[Builder, dict[str, Value]]:
    builder = Builder(name)
    leaves = {n: builder.input(n, t) for n, t in graph.input_types.items() if n != skipping}
    leaves |= {n: builder.param(n, t) for n, t in graph.param_types.items()}
    return builder, leaves


def _shaped(jacobian: Value, rows: Sequence[object], columns: Sequence[object], form: Form) -> Value:
    shape = (product(rows), product(columns)) if form == "matrix" else (*rows, *columns)  # type: ignore[arg-type]
    return jacobian if jacobian.shape == shape else reshape(jacobian, shape)


def _require_real(graph: Graph, values: Sequence[Value]) -> None:
    for value in (*values, *graph.outputs):
        if not value.dtype.is_float:
            raise DtypeError(
                f"jacobian: {value!r} of {graph.name} must be a real float, not {value.dtype}",
                Fact("value", value.type, value.node.origin.source),
            )


def hessian(graph: Graph, wrt: Sequence[str], *, form: Form = "dims", engine: Engine = STANDARD) -> Graph:
    """Return the second derivatives of a scalar loss, block by block in `wrt` × `wrt` order: forward mode over reverse mode.

    Raises:
        ShapeError, DtypeError: The loss is not a real scalar.
    """
    expect_graph("hessian", graph)
    return jacfwd(grad(graph, wrt, seed="one", engine=engine), wrt, form=form, engine=engine)
