"""Points without a derivative, and the value that the rules of the op give there: data on the op, read by the laws.

`kinks = (Kink(0.0, takes="lower", gives=0.0),)` means that at 0 both modes take the derivative from below, which is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from attrs import field
from attrs.validators import in_

from rlx_core.system.records import frozen

Takes = Literal["lower", "mean", "inner", "shared", "first", "zero"]
"""The choice among the candidates for the derivative.

`lower`: the derivative from below. `mean`: half of the sum of those from below and from above. `inner`: the one of the piece
in the middle, at both of its ends. `shared`: elements that tie have equal parts of it. `first`: the first of the elements that
tie has all of it. `zero`: 0, where no other would be finite or unique.
"""


@frozen(init=False)
class Kink:
    """Operands at which an op has no derivative, and the value that its rules return there.

    Attributes:
        at: A number, or nested ones, for each operand.
        takes: Which derivative it is, see `Takes`.
        gives: Cotangent of each operand where the cotangent of the result is 1 everywhere.
        attributes: The op's attributes.

    >>> Kink(1.0, 1.0, takes="mean", gives=(0.5, 0.5)).gives
    (array(0.5), array(0.5))
    """

    at: tuple[np.ndarray, ...]
    takes: Takes = field(validator=in_(get_args(Takes)))
    gives: tuple[np.ndarray, ...]
    attributes: Mapping[str, Any]

    def __init__(self, *points: Any, takes: Takes, gives: float | Sequence[Any], **attributes: Any) -> None:
        every = (gives,) if len(points) == 1 else gives
        assert isinstance(every, Sequence), "of several operands each has a derivative"
        assert len(every) == len(points), "each operand has a derivative"
        self.__attrs_init__(tuple(map(np.asarray, points)), takes, tuple(map(np.asarray, every)), attributes)
