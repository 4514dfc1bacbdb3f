"""Transformations of programs: reverse and forward differentiation, batching, linearisation; graph in, graph out.

This layer looks up rules (an op's own, contributed, or derived from a decomposition or from the other mode) and walks whole
graphs; the mathematics are in the ops. Each transformation exists as a function from graph to graph and as the sweep that it
runs (`backward`, `pushforward`, `batch_into`), which works on nodes of any builder. The user-facing transformations of Python
functions (`rlx_core.functions`) are built from the same parts.
"""

from typing import TYPE_CHECKING

from rlx_core.public import lazy_names

if TYPE_CHECKING:
    from rlx_core.transforms.batch import batch_into, vmap_graph, vmap_with_values
    from rlx_core.transforms.engine import STANDARD, Engine
    from rlx_core.transforms.jvp import jvp_graph, jvp_with_values
    from rlx_core.transforms.linearization import Linearized, linearize
    from rlx_core.transforms.prepare import copy_prepared, inline_calls, prepare
    from rlx_core.transforms.sweeps import backward, pushforward
    from rlx_core.transforms.vjp import grad_with_loss, vjp_graph, vjp_with_values

__all__ = [
    "STANDARD",
    "Engine",
    "Linearized",
    "backward",
    "batch_into",
    "copy_prepared",
    "grad_with_loss",
    "inline_calls",
    "jvp_graph",
    "jvp_with_values",
    "linearize",
    "prepare",
    "pushforward",
    "vjp_graph",
    "vjp_with_values",
    "vmap_graph",
    "vmap_with_values",
]

if not TYPE_CHECKING:
    # Loaded lazily: a traced program that is not differentiated needs none of these modules.
    __getattr__, __dir__, _ = lazy_names(
        __name__,
        {
            "batch_into": "rlx_core.transforms.batch",
            "vmap_graph": "rlx_core.transforms.batch",
            "vmap_with_values": "rlx_core.transforms.batch",
            "STANDARD": "rlx_core.transforms.engine",
            "Engine": "rlx_core.transforms.engine",
            "jvp_graph": "rlx_core.transforms.jvp",
            "jvp_with_values": "rlx_core.transforms.jvp",
            "Linearized": "rlx_core.transforms.linearization",
            "linearize": "rlx_core.transforms.linearization",
            "copy_prepared": "rlx_core.transforms.prepare",
            "inline_calls": "rlx_core.transforms.prepare",
            "prepare": "rlx_core.transforms.prepare",
            "backward": "rlx_core.transforms.sweeps",
            "pushforward": "rlx_core.transforms.sweeps",
            "grad_with_loss": "rlx_core.transforms.vjp",
            "vjp_graph": "rlx_core.transforms.vjp",
            "vjp_with_values": "rlx_core.transforms.vjp",
        },
    )
