"""`rlx.load("model.gguf")`: the model of a GGUF file, whose quantised weights remain quantised."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import evolve

from rlx_core.errors import Fact, FormatError, UnsupportedError
from rlx_core.plugins.host import PluginHost
from rlx_core.quantization import QuantizedArray
from rlx_models.architectures import Architecture
from rlx_models.architectures.decoders.experts import STACKED
from rlx_models.architectures.widening import in_f32
from rlx_models.checkpoints import Config, check_tensors
from rlx_models.gguf.names import (
    ARCHITECTURES,
    EXPERT_COUNT,
    EXPERT_OPTIONS,
    OPTIONS,
    ROPE_DIVISORS,
    ROPE_OPTIONS,
    SHARED_GATE,
    GgufArchitecture,
)
from rlx_models.gguf.reading import GgufFile, GgufTensor, read
from rlx_models.gguf.types import unknown_type
from rlx_models.loading import build_architecture, unsupported_options
from rlx_models.model import PretrainedModel

GEMMA2_27B_LAYERS: Final = 46
"""The layers of Gemma 2 27B, whose scores have a scale that files do not state."""
END_TOKENS: Final = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
MAX_DIVISORS: Final = 4096
UNREAD_OPTIONS: Final[Mapping[str, Any]] = {"expert_weights_scale": 1.0, "expert_gating_func": 1}
"""Options of mixtures of experts that are read only with these values: no multiplier, and a softmax of scores."""


def import_file(path: Path, host: PluginHost) -> PretrainedModel:
    """Return the model of a file, in the form of an importer.

    Raises:
        UnsupportedError: The architecture, or an option or the type of a tensor, is not supported; the error lists them.
        FormatError: The file is damaged, or tensors are missing, misshapen or unknown; the error lists them.
    """
    file = read(path, host=host)
    label = file.metadata.get("general.architecture")
    names = ARCHITECTURES.get(label) if isinstance(label, str) else None
    if names is None:
        raise UnsupportedError(
            f"gguf: the architecture {label!r:.40} is not supported",
            Fact("file", path),
            hint=f"supported are {', '.join(ARCHITECTURES)}; rlx_models.gguf.read(path) reads the tensors of any file",
        )
    config = Config(config_values(file, str(label)))
    model_type = str(config.values["model_type"])
    architecture = build_architecture(model_type, config, "load")
    if file.metadata.get(f"{label}.{EXPERT_COUNT}") and names.experts is None:
        config.faults.append(Fact(f"{label}.{EXPERT_COUNT}", "mixtures of experts"))
    config.faults += [
        Fact(key, value) for key, value in unread_scaling(file.metadata, f"{label}.rope.scaling.").items()
    ]
    config.faults += [
        Fact(f"{label}.{key}", file.metadata[f"{label}.{key}"])
        for key, implied in UNREAD_OPTIONS.items()
        if file.metadata.get(f"{label}.{key}", implied) != implied
    ]
    if config.faults:
        raise unsupported_options("load", model_type, [*config.faults, Fact("file", path)])
    parameters = _parameters(file, names, config, architecture, path)
    architecture = in_f32(architecture)
    return PretrainedModel(
        name=model_type,
        function=architecture.function,
        parameters=parameters,
        inputs=architecture.inputs,
        architecture=architecture,
        config=dict(config.values),
        generation_config={},
        metadata=file.metadata,
    )


def config_values(file: GgufFile, label: str) -> dict[str, Any]:
    """Return the options of `config.json` that the metadata of an architecture state."""
    metadata = file.metadata
    values = {name: metadata[f"{label}.{key}"] for key, name in OPTIONS.items() if f"{label}.{key}" in metadata}
    embedding = file.get("token_embd.weight")
    if "vocab_size" not in values and embedding is not None and embedding.shape:
        values["vocab_size"] = embedding.shape[0]
    values.setdefault("rope_theta", 10_000.0)
    if not values.get("sliding_window", 0):
        values["sliding_window"] = None
    rope = {name: metadata[f"{label}.{key}"] for key, name in ROPE_OPTIONS.items() if f"{label}.{key}" in metadata}
    rope = {} if rope.get("rope_type", "none") == "none" else rope
    if ROPE_DIVISORS in file:
        rope = {"rope_type": "divided", "divisors": _divisors(file[ROPE_DIVISORS])}
    sizes = [values.get("head_dim"), values.get("hidden_size"), values.get("num_attention_heads")]
    rotated = metadata.get(f"{label}.rope.dimension_count")
    if isinstance(rotated, int) and all(isinstance(each, int | None) for each in sizes):
        head_dim = sizes[0] or (sizes[1] or 0) // (sizes[2] or 1)
        rope |= {"partial_rotary_factor": rotated / head_dim} if 0 < rotated < head_dim else {}
    if rope:
        values["rope_parameters"] = {"rope_type": "default", "rope_theta": values["rope_theta"], **rope}
    values["attention_bias"] = "blk.0.attn_q.bias" in file
    values["mlp_bias"] = "blk.0.ffn_up.bias" in file
    values["tie_word_embeddings"] = "output.weight" not in file
    values |= _tokens(metadata)
    model_type, experts = ARCHITECTURES[label].model_type, ARCHITECTURES[label].experts
    if experts is not None and metadata.get(f"{label}.{EXPERT_COUNT}"):
        model_type = experts.model_type
        values |= {experts.count: metadata[f"{label}.{EXPERT_COUNT}"], STACKED: True, **experts.implied}
        values |= {
            name: metadata[f"{label}.{key}"] for key, name in EXPERT_OPTIONS.items() if f"{label}.{key}" in metadata
        }
    if model_type == "llama" and values["sliding_window"] is not None:
        model_type = "mistral"
    if model_type == "gemma2":
        values["sliding_window"] = values["sliding_window"] or 4096
        values["query_pre_attn_scalar"] = gemma2_scalar(values)
    return {**values, "model_type": model_type}


def unread_scaling(metadata: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the options of scaled rope that would change results and have no counterpart; a factor of 1 changes none."""
    read_here = {*ROPE_OPTIONS, "rope.scaling.finetuned"}
    return {
        key: value
        for key, value in metadata.items()
        if key.startswith(prefix)
        and f"rope.scaling.{key.removeprefix(prefix)}" not in read_here
        and value not in (0, 1)
    }


def _tokens(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokens that begin and end a text."""
    ends = [metadata[key] for key in END_TOKENS if isinstance(metadata.get(key), int)]
    begin = metadata.get("tokenizer.ggml.bos_token_id")
    return {
        "eos_token_id": list(dict.fromkeys(ends)) or None,
        "bos_token_id": begin if isinstance(begin, int) else None,
    }


def gemma2_scalar(values: Mapping[str, Any]) -> Any:
    heads, hidden_size = values.get("num_attention_heads"), values.get("hidden_size")
    if values.get("num_hidden_layers") == GEMMA2_27B_LAYERS and isinstance(heads, int) and isinstance(hidden_size, int):
        return hidden_size // max(heads, 1)
    return values.get("head_dim", 256)


def _divisors(tensor: GgufTensor) -> list[float]:
    """Return the divisors of frequencies.

    Raises:
        FormatError: They are not one number for each of some pairs.
    """
    if len(tensor.shape) != 1 or tensor.shape[0] > MAX_DIVISORS:
        raise FormatError(f"gguf: {ROPE_DIVISORS!r} has the shape {list(tensor.shape)}, not one number for each pair")
    return [float(each) for each in tensor.numpy()]


def _parameters(
    file: GgufFile, names: GgufArchitecture, config: Config, architecture: Architecture, path: Path
) -> dict[str, Any]:
    """Return the tensors by the names of the architecture.

    Raises:
        UnsupportedError: A tensor has an unknown type.
        FormatError: Tensors do not fit the architecture.
    """
    tensors = {
        names.tensor_name(name) or f"{name} (of the file)": tensor
        for name, tensor in file.items()
        if name != ROPE_DIVISORS
    }
    for name, tensor in tensors.items():
        if name.endswith(SHARED_GATE) and len(tensor.shape) == 1:
            tensors[name] = evolve(tensor, shape=(1, *tensor.shape))
        if tensor.dtype is None:
            raise unknown_type(tensor.name, tensor.type_id).with_fact(Fact("file", path))
    try:
        checked = check_tensors(
            names.model_type,
            tensors,
            architecture.shapes,
            "",
            architecture.unused,
            architecture.optional,
            caller="load",
        )
    except FormatError as error:
        raise error.with_fact(Fact("file", path)) from None
    heads = {"q_proj": config.size("num_attention_heads")}
    heads["k_proj"] = config.size("num_key_value_heads", heads["q_proj"])
    return {name: _parameter(name, tensor, names, heads) for name, tensor in checked.items()}


def _parameter(name: str, tensor: GgufTensor, names: GgufArchitecture, heads: Mapping[str, int]) -> Any:
    """Return a tensor as the architecture reads it; matrices of blocks remain quantised."""
    is_matrix = len(tensor.shape) > 1
    array: Any = tensor.quantized() if tensor.scheme is not None and is_matrix else tensor.numpy()
    if names.norm_offset and name.endswith("norm.weight"):
        return array - np.asarray(names.norm_offset, array.dtype)
    projection = name.split(".")[-2]
    if names.has_paired_rows and projection in heads:
        return _unpaired(array, heads[projection])
    return array


def _unpaired(array: Any, heads: int) -> Any:
    """Return queries or keys with the rows of a head in the order of checkpoints: of all pairs the first, then the second."""
    rows = array.shape[0]
    if rows % (2 * heads):
        raise FormatError(f"gguf: {rows} rows are not {heads} heads of pairs of rows")
    order = np.arange(rows).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)
    if isinstance(array, QuantizedArray):
        # Blocks lie along the last axis, so that rows of all fields are in any order.
        fields = {name: _fixed(each[order]) for name, each in array.fields.items()}
        return QuantizedArray(fields, array.scheme)
    return _fixed(array[order])


def _fixed(array: np.ndarray) -> np.ndarray:
    """Return a new array after making it read-only, so that programs share its packed copies."""
    array.flags.writeable = False
    return array
