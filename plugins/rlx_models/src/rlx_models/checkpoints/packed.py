"""Weights of 4 bits in checkpoint folders (GPTQ, AWQ, compressed-tensors) as quantised arrays of the scheme `int4_asymmetric`.

All three store eight codes in an integer of 32 bits, a scale for each group of inputs, and zero points; they differ in the axis along
which codes are packed, and in their order:

| format | codes | zero points | scales |
|---|---|---|---|
| GPTQ | `qweight` i32[inputs / 8, outputs] | `qzeros` i32[groups, outputs / 8], one too small | `scales` [groups, outputs] |
| AWQ | `qweight` i32[inputs, outputs / 8], interleaved | `qzeros` i32[groups, outputs / 8], interleaved | `scales` [groups, outputs] |
| compressed-tensors | `weight_packed` i32[outputs, inputs / 8] | `weight_zero_point` i32[outputs / 8, groups] | `weight_scale` [outputs, groups] |

Source:
    AutoGPTQ 0.7 (`qlinear_cuda_old`), AutoAWQ 0.2 (`WQLinear_GEMM`), compressed-tensors 0.9 (`pack_quantized`).
"""  # noqa: E501 rows of a table

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from attrs import frozen

from rlx_core.errors import Fact, FormatError, UnsupportedError
from rlx_core.quantization import QuantizedArray
from rlx_core.quantization.integer import Int4Asymmetric
from rlx_models.checkpoints.config import Config, shown

PER_WORD: Final = 8
AWQ_ORDER: Final = (0, 2, 4, 6, 1, 3, 5, 7)
"""The column of each code of a word, from the lowest bits."""
OPTION: Final = "quantization_config"

SCALES: Final = ("scales", "weight_scale")
WORDS: Final = ("qweight", "qzeros", "weight_packed", "weight_zero_point")

Tensors = Mapping[str, np.ndarray]


@frozen
class Packing:
    """A format of packed weights.

    Attributes:
        suffix: The end of the name of the codes.
        parts: Ends of the names of all tensors of a weight.
        weight: Returns codes u8[outputs, inputs], scales f32[outputs, groups] and zero points f32[outputs, groups].
    """

    suffix: str
    parts: tuple[str, ...]
    weight: Callable[[Tensors], tuple[np.ndarray, np.ndarray, np.ndarray]]


def packing_of(config: Config) -> Packing | None:
    """Return the format that `quantization_config` states, or `None` if there is none; unsupported options are faults.

    A method of another kind is left to the check of the option.
    """
    options = config.table(OPTION)
    readers: Mapping[str, Callable[[Config], Packing]] = {
        "gptq": _gptq,
        "awq": _awq,
        "compressed-tensors": _compressed,
    }
    method = options.get("quant_method")
    return readers[method](Config(options, config.faults)) if isinstance(method, str) and method in readers else None


def _expect(options: Config, name: str, *choices: Any) -> None:
    """Add a fault unless an option has one of some values, of which the first is the default."""
    value = options.values.get(name, choices[0])
    if value not in choices:
        supported = ", ".join(map(repr, choices))
        options.faults.append(Fact(f"{OPTION}.{name}", f"{shown(value)}; supported are {supported}"))


def _gptq(options: Config) -> Packing:
    _expect(options, "bits", 4)
    _expect(options, "checkpoint_format", "gptq", "gptq_v2")
    offset = 0 if options.values.get("checkpoint_format") == "gptq_v2" else 1

    def weight(parts: Tensors) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        codes = nibbles(parts["qweight"].T)
        zeros = nibbles(parts["qzeros"]).T.astype(np.float32) + np.float32(offset)
        scales = parts["scales"].T.astype(np.float32)
        groups = np.arange(codes.shape[1]) // max(1, codes.shape[1] // scales.shape[1])
        if "g_idx" in parts and not np.array_equal(parts["g_idx"], groups):
            raise UnsupportedError(
                "from_pretrained: inputs are assigned to groups in another order (`g_idx`, desc_act)",
                hint="quantise the model with desc_act=false",
            )
        return codes, scales, zeros

    return Packing("qweight", ("qweight", "qzeros", "scales", "g_idx"), weight)


def _awq(options: Config) -> Packing:
    _expect(options, "bits" if "bits" in options.values else "w_bit", 4)
    _expect(options, "version", "gemm", "GEMM")

    def weight(parts: Tensors) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        codes, zeros = (interleaved(parts[name]).T for name in ("qweight", "qzeros"))
        return codes, parts["scales"].T.astype(np.float32), zeros.astype(np.float32)

    return Packing("qweight", ("qweight", "qzeros", "scales"), weight)


def _compressed(options: Config) -> Packing:
    _expect(options, "format", "pack-quantized")
    groups = options.table("config_groups")
    if len(groups) != 1:
        options.faults.append(Fact(f"{OPTION}.config_groups", f"{len(groups)} groups; supported is one"))
    for group in groups.values():
        table = group if isinstance(group, dict) else {}
        weights = Config(Config(table).table("weights"), options.faults)
        _expect(weights, "num_bits", 4)
        _expect(weights, "type", "int")
        _expect(weights, "strategy", "group", "channel")
        _expect(weights, "actorder", None)
        if table.get("input_activations") is not None:
            options.faults.append(Fact(f"{OPTION}.input_activations", "quantised activations"))

    def weight(parts: Tensors) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        shape = parts["weight_shape"]
        rows = parts["weight_packed"].shape[0]
        if shape.shape != (2,) or shape[0] != rows:
            raise FormatError(f"from_pretrained: weight_shape is {shape.tolist()}, and there are {rows} rows")
        codes = nibbles(parts["weight_packed"])
        if not 0 <= codes.shape[1] - int(shape[1]) < PER_WORD:
            raise FormatError(
                f"from_pretrained: weight_shape is {shape.tolist()}, and rows have {codes.shape[1]} codes"
            )
        scales = parts["weight_scale"].astype(np.float32)
        zeros = np.full(scales.shape, 8, np.float32)
        if "weight_zero_point" in parts:
            zeros = nibbles(parts["weight_zero_point"].T).T[: shape[0]].astype(np.float32)
        return codes[:, : int(shape[1])], scales, zeros

    return Packing("weight_packed", ("weight_packed", "weight_scale", "weight_zero_point", "weight_shape"), weight)


def nibbles(words: np.ndarray) -> np.ndarray:
    """Return eight codes for each word, u8[..., 8n] from i32[..., n]: the lowest bits first."""
    raw = np.ascontiguousarray(words).view(np.uint8)  # little-endian, as rlx requires
    return np.stack([raw & 15, raw >> 4], axis=-1).reshape(*raw.shape[:-1], -1)


def interleaved(words: np.ndarray) -> np.ndarray:
    """Return codes in the order of columns, u8[..., 8n] from i32[..., n], of words in AWQ's order."""
    codes = nibbles(words).reshape(*words.shape, PER_WORD)
    result = np.empty_like(codes)
    result[..., AWQ_ORDER] = codes
    return result.reshape(*words.shape[:-1], -1)


def unpacked(tensors: Mapping[str, Any], packing: Packing) -> dict[str, Any]:
    """Return the tensors of a folder, with a quantised array `NAME.weight` in place of the parts of each packed weight.

    Raises:
        FormatError: Parts are missing or do not fit each other.
        UnsupportedError: Groups are in another order.
    """
    names = [name.removesuffix(f".{packing.suffix}") for name in tensors if name.endswith(f".{packing.suffix}")]
    result = dict(tensors)
    for name in names:
        parts = {part: result.pop(f"{name}.{part}") for part in packing.parts if f"{name}.{part}" in tensors}
        try:
            result[f"{name}.weight"] = _quantized(parts, packing)
        except (FormatError, UnsupportedError) as error:
            raise error.with_fact(Fact("tensor", name)) from None
        except KeyError as error:
            raise FormatError(f"from_pretrained: {name} has no {error.args[0]}", Fact("tensor", name)) from None
    return result


def _quantized(parts: Tensors, packing: Packing) -> QuantizedArray:
    for name, each in parts.items():
        kind = "float" if name in SCALES else "int32" if name in WORDS else "int"
        axes = 1 if kind == "int" else 2
        if not isinstance(each, np.ndarray) or each.ndim != axes or kind not in each.dtype.name:
            raise FormatError(f"from_pretrained: {name} of a packed weight is no array of {kind} with {axes} axes")
    codes, scales, zeros = packing.weight(parts)
    (outputs, inputs), groups = codes.shape, scales.shape[-1]
    facts = [Fact(name, f"{each.dtype}{list(each.shape)}") for name, each in parts.items()]
    if scales.shape != (outputs, groups) or zeros.shape != scales.shape or not groups or inputs % groups:
        raise FormatError(
            "from_pretrained: codes, scales and zero points of a packed weight do not fit each other", *facts
        )
    block = inputs // groups
    if block % 2:
        raise UnsupportedError(
            f"from_pretrained: groups of {block} inputs are not supported, which is no even number", *facts
        )
    scheme = Int4Asymmetric(block=block)
    rows = codes.reshape(outputs, groups, block)
    fields = {"codes": rows[..., ::2] | rows[..., 1::2] << 4, "scale": scales, "zero": zeros}
    return QuantizedArray({name: np.ascontiguousarray(each) for name, each in fields.items()}, scheme)
