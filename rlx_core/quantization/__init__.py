"""Arrays in fewer than 16 bits for each element: `rlx.quantization.quantize(weight, "q4_0")`.

A quantised array consists of ordinary arrays (codes, scales) and a scheme, which states how values follow from them. Plugins add
schemes (hook `rlx_schemes`).

Codes with scales, as in ONNX: `quantize_linear`, `dequantize_linear`, and the products `quantized_matmul` and
`quantized_conv`. Training: `fake_quantize` and `learned_scale_quantize`. Ranges of activations, for programs that multiply i8:
`calibrate`.
"""

from typing import TYPE_CHECKING, Any

from rlx_core.ir.schemes import Scheme, SchemeField
from rlx_core.public import absent
from rlx_core.quantization.array import QuantizedArray, quantize
from rlx_core.quantization.fake import fake_quantize, learned_scale_quantize
from rlx_core.quantization.linear import dequantize_linear, quantize_linear
from rlx_core.quantization.products import quantized_conv, quantized_matmul

if TYPE_CHECKING:
    from rlx_core.quantization.calibration import Calibration, calibrate

__all__ = [
    "Calibration",
    "QuantizedArray",
    "Scheme",
    "SchemeField",
    "calibrate",
    "dequantize_linear",
    "fake_quantize",
    "learned_scale_quantize",
    "quantize",
    "quantize_linear",
    "quantized_conv",
    "quantized_matmul",
]


def __getattr__(name: str) -> Any:
    if name in ("Calibration", "calibrate"):
        # Here, because few programs measure ranges, and this imports the passes.
        from rlx_core.quantization import calibration

        globals()[name] = getattr(calibration, name)
        return globals()[name]
    raise absent(__name__, name, __all__)
