"""Steps of a model that run on the host, because the sizes of their results are data-dependent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import Fact, ShapeError
from rlx_core.system.records import frozen

__all__ = ["HostStep", "step_key"]


@frozen(eq=False)
class HostStep:
    """A function of NumPy arrays that runs between two programs.

    Attributes:
        node: The node to which it belongs, as named in errors and reports.
        key: The key of its results: the name of the node's first result.
        operands: Names of its operands; empty for an omitted one.
        types: Types of its results: one of their sizes is a new symbol.
        function: A function of arrays, and of `None` for omitted operands.
    """

    node: str
    key: str
    operands: tuple[str, ...]
    types: tuple[rlx.TensorType, ...]
    function: Callable[..., tuple[np.ndarray, ...]]

    def run(self, *arrays: Any) -> tuple[np.ndarray, ...]:
        """Its results.

        Raises:
            ShapeError: The operands do not fit; sizes with symbols are compared only here.
        """
        try:
            return self.function(*(None if each is None else np.asarray(each) for each in arrays))
        except (ValueError, IndexError, TypeError, OverflowError) as error:
            shapes = ", ".join("nothing" if each is None else str(list(np.shape(each))) for each in arrays)
            raise ShapeError(f"{self.node}: its operands do not fit ({error})", Fact("operands", shapes)) from error


def step_key(proto: Any) -> str:
    """Return the key of the results of a node's step."""
    return next((name for name in proto.output if name), "")
