"""What of a model runs on the host, because how large its results are is found only when they are computed."""

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
        node: The node that it belongs to, as errors and reports call it.
        key: What its results are found by: the name of the node's first result.
        operands: Names of the values that it takes; empty for one that is left out.
        types: Of its results: one size of them is a symbol that nothing before has.
        function: Of arrays, and `None` for what is left out.
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
    """What the results of a node's step are found by."""
    return next((name for name in proto.output if name), "")
