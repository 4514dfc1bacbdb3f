"""`in_f32`: the programs of an architecture with activations of f32, whatever its weights are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from attrs import evolve

import rlx_core as rlx
from rlx_core.quantization import QuantizedArray
from rlx_models.architectures.architecture import Architecture


def in_f32(architecture: Architecture) -> Architecture:
    """Return an architecture whose programs compute in f32 with weights of f16 and bf16, as files of quantised weights mean.

    The cast of a weight belongs to the product or lookup that reads it.
    """
    decoding = architecture.decoding
    if decoding is not None:
        selected = decoding.step_selected
        decoding = evolve(
            decoding, step=_widening(decoding.step), step_selected=None if selected is None else _widening(selected)
        )
    return evolve(architecture, function=_widening(architecture.function), decoding=decoding)


def _widening(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(parameters: Mapping[str, Any], *inputs: Any) -> Any:
        wide = {
            name: each if isinstance(each, QuantizedArray) else rlx.astype(each, "f32")
            for name, each in parameters.items()
        }
        return function(wide, *inputs)

    return run
