"""Dead code: nodes that neither an output nor a declared effect needs (see `engine/sweep.py`)."""

from __future__ import annotations

from rlx_core.ir.graph import Graph
from rlx_core.passes.engine.base import Context, Pass, Result, define_pass, each_graph
from rlx_core.passes.engine.sweep import sweep


@define_pass("dead-code")
class DeadCode(Pass):
    """Drop the nodes that neither an output nor a declared effect needs.

    Inputs and params stay, used or not: they are the program's signature, and feeding an unused one is no error.
    Nested graphs are swept as well; their signatures stay.
    """

    def run(self, graph: Graph, context: Context) -> Result:
        return each_graph(graph, sweep)
