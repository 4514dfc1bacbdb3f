"""Transformations of programs: reverse and forward differentiation, batching, linearisation; graph in, graph out.

This layer looks up rules (an op's own, contributed, or derived from a decomposition or from the other mode) and walks whole
graphs; the mathematics are in the ops. Each transformation exists as a function from graph to graph and as the sweep that it
runs (`backward`, `pushforward`, `batch_into`), which works on nodes of any builder. The user-facing transformations of Python
functions (`rlx_core.functions`) are built from the same parts.
"""

from typing import TYPE_CHECKING

from rlx_core.public import lazy_names, listed

if TYPE_CHECKING:
    from rlx_core.transforms.batch import batch_into as batch_into
    from rlx_core.transforms.batch import vmap_graph as vmap_graph
    from rlx_core.transforms.batch import vmap_with_values as vmap_with_values
    from rlx_core.transforms.engine import STANDARD as STANDARD
    from rlx_core.transforms.engine import Engine as Engine
    from rlx_core.transforms.jvp import jvp_graph as jvp_graph
    from rlx_core.transforms.jvp import jvp_with_values as jvp_with_values
    from rlx_core.transforms.linearization import Linearized as Linearized
    from rlx_core.transforms.linearization import linearize as linearize
    from rlx_core.transforms.prepare import copy_prepared as copy_prepared
    from rlx_core.transforms.prepare import inline_calls as inline_calls
    from rlx_core.transforms.prepare import prepare as prepare
    from rlx_core.transforms.sweeps import backward as backward
    from rlx_core.transforms.sweeps import pushforward as pushforward
    from rlx_core.transforms.vjp import grad_with_loss as grad_with_loss
    from rlx_core.transforms.vjp import vjp_graph as vjp_graph
    from rlx_core.transforms.vjp import vjp_with_values as vjp_with_values
else:
    # Loaded lazily: a traced program that is not differentiated needs none of these modules.
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        listed(
            {
                "rlx_core.transforms.batch": "batch_into vmap_graph vmap_with_values",
                "rlx_core.transforms.engine": "STANDARD Engine",
                "rlx_core.transforms.jvp": "jvp_graph jvp_with_values",
                "rlx_core.transforms.linearization": "Linearized linearize",
                "rlx_core.transforms.prepare": "copy_prepared inline_calls prepare",
                "rlx_core.transforms.sweeps": "backward pushforward",
                "rlx_core.transforms.vjp": "grad_with_loss vjp_graph vjp_with_values",
            }
        ),
    )
