"""Arrays in fewer than 16 bits for each element: `rlx.quantization.quantize(weight, "q4_0")`.

A quantised array consists of ordinary arrays (codes, scales) and a scheme, which states how values follow from them. Plugins add
schemes (hook `rlx_schemes`).
"""

from typing import Any

from rlx_core.ir.schemes import Scheme, SchemeField
from rlx_core.public import absent
from rlx_core.quantization.array import QuantizedArray, quantize

__all__ = ["QuantizedArray", "Scheme", "SchemeField", "quantize"]


def __getattr__(name: str) -> Any:
    raise absent(__name__, name, __all__)
