"""Graphs: nodes in topological order, values that name their results, and the builder that makes them.

HIR and MIR share this structure: a HIR graph is one in which some ops are blocks. The modules are the leaves of a graph
(`leaves`), nodes and values (`values`), the finished graph (`program`) and how one is made (`builder`).
"""

from rlx_core.ir.graph.array_methods import OPERATORS, ArrayMethods, operator
from rlx_core.ir.graph.builder import (
    Builder,
    LiftedArrays,
    ambient_builder,
    as_results,
    building,
    decomposition,
    graph_of,
    infer,
    is_hashable,
    lifting,
    probe,
)
from rlx_core.ir.graph.elements import leaked, refused_ufunc
from rlx_core.ir.graph.leaves import Constant, GraphArgument, Input, Literal, Param, literal
from rlx_core.ir.graph.program import (
    MOST_NESTED,
    Graph,
    ValueMap,
    keep_symbols,
    leaf_name,
    lines_of,
    nested_graphs,
    ops_inside,
    symbols_inside,
)
from rlx_core.ir.graph.values import Node, Value

__all__ = [
    "MOST_NESTED",
    "OPERATORS",
    "ArrayMethods",
    "Builder",
    "Constant",
    "Graph",
    "GraphArgument",
    "Input",
    "LiftedArrays",
    "Literal",
    "Node",
    "Param",
    "Value",
    "ValueMap",
    "ambient_builder",
    "as_results",
    "building",
    "decomposition",
    "graph_of",
    "infer",
    "is_hashable",
    "keep_symbols",
    "leaf_name",
    "leaked",
    "lifting",
    "lines_of",
    "literal",
    "nested_graphs",
    "operator",
    "ops_inside",
    "probe",
    "refused_ufunc",
    "symbols_inside",
]
