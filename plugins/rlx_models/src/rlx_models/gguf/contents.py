"""The tensors and metadata of a model as GGUF files state them.

Tensors have the names and the order of rows of llama.cpp; their values are read when they are written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import field

from rlx_core.errors import Fact, UnsupportedError
from rlx_core.ir import dtypes
from rlx_core.ir.dtypes import DType
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_core.ir.schemes import Scheme
from rlx_core.quantization import QuantizedArray
from rlx_core.system.records import frozen
from rlx_models.architectures.decoders.experts import layers_with_experts
from rlx_models.architectures.decoders.options import SizeOptions
from rlx_models.architectures.decoders.positions import layer_types
from rlx_models.architectures.decoders.spec import DecoderSpec, ExpertsSpec
from rlx_models.architectures.decoders.table import ROWS
from rlx_models.checkpoints import Config, Option
from rlx_models.gguf.model import gemma2_scalar
from rlx_models.gguf.names import ARCHITECTURES, EXPERT_COUNT, LABELS, ROPE_DIVISORS, SHARED_GATE, GgufArchitecture
from rlx_models.gguf.reading import GgufFile, GgufTensor
from rlx_models.gguf.tokenizer_metadata import tokenizer_metadata
from rlx_models.layers.linear import dense
from rlx_models.layers.rope import rope_config, rope_frequencies, yarn_factor
from rlx_models.loading import unsupported_options

Values = np.ndarray | QuantizedArray


@frozen(eq=False)
class ModelTensor:
    """A tensor of a model as a GGUF file orders it.

    Attributes:
        name: Its name in the file.
        source_name: Its name where it comes from.
        shape: Its shape.
        dtype: The dtype of its values; f32 of blocks.
        scheme: The scheme of its blocks, if it has some.
        load: Returns all values in the order of the source.
        rows: For each row in the file, its index in the source; `None` for the same order.
        offset: Added to the values.
    """

    name: str
    source_name: str
    shape: tuple[int, ...]
    dtype: DType
    scheme: Scheme | None
    load: Callable[[], Values] = field(repr=False)
    rows: np.ndarray | None = field(default=None, repr=False)
    offset: float = 0.0

    @property
    def label(self) -> str:
        """The name of its dtype or scheme."""
        return str(self.dtype) if self.scheme is None else self.scheme.name.removeprefix("rlx.")


@frozen(eq=False)
class ModelContents:
    """The metadata and tensors of a model for a GGUF file."""

    metadata: dict[str, Any]
    tensors: tuple[ModelTensor, ...]


def contents_of_file(file: GgufFile) -> ModelContents:
    """Return the contents of another GGUF file.

    Raises:
        UnsupportedError: A tensor has an unknown type.
    """

    def tensor(each: GgufTensor) -> ModelTensor:
        if each.dtype is None:
            each.numpy()
        assert each.dtype is not None, "numpy() raises for unknown types"
        load = each.numpy if each.scheme is None else each.quantized
        return ModelTensor(each.name, each.name, each.shape, each.dtype, each.scheme, load)

    return ModelContents(dict(file.metadata), tuple(map(tensor, file.values())))


def contents_of_parameters(
    parameters: Mapping[str, Any],
    config: Config,
    caller: str,
    *,
    folder: Path | None = None,
    generation_config: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> ModelContents:
    """Return the contents of a model by its parameters and configuration.

    Args:
        parameters: Arrays and quantised arrays by the names of the architecture.
        config: The configuration.
        caller: The function that messages begin with.
        folder: The folder with the tokenizer.
        generation_config: Tokens that end texts, in place of those of the configuration.
        metadata: The metadata, if the model comes from a GGUF file.

    Raises:
        UnsupportedError: GGUF files have no names for the architecture or a tensor, or cannot state an option.
        FormatError: The tokenizer is damaged.
    """
    model_type = str(config.values.get("model_type"))
    label = LABELS.get(model_type)
    if label is None:
        raise UnsupportedError(
            f"{caller}: GGUF files have no names for the architecture {model_type!r:.40}",
            hint=f"supported are {', '.join(LABELS)}; rlx_models.gguf.write(path, tensors, metadata) writes any tensors",
        )
    names, row = ARCHITECTURES[label], ROWS[model_type]
    spec = row if isinstance(row, DecoderSpec) else row(config)
    divisors = rope_divisors(spec, config)
    if not metadata:
        options = {**config.values, **(generation_config or {})}
        metadata = {
            "general.architecture": label,
            "general.type": "model",
            **({} if folder is None else {"general.name": folder.name}),
            **architecture_metadata(label, spec, config),
            **({} if folder is None else tokenizer_metadata(folder, config.size("vocab_size"), options)),
        }
    if config.faults:
        raise unsupported_options(caller, model_type, config.faults)
    heads = {"q_proj": config.size("num_attention_heads")}
    heads["k_proj"] = config.size("num_key_value_heads", heads["q_proj"])
    tensors = [_tensor(name, each, names, heads, caller) for name, each in with_stacked_experts(parameters).items()]
    if divisors is not None:
        shape, data = divisors.shape, divisors
        tensors.append(ModelTensor(ROPE_DIVISORS, ROPE_DIVISORS, shape, dtypes.f32, None, lambda: data))
    return ModelContents(dict(metadata), tuple(tensors))


@frozen(eq=False)
class StackedExperts:
    """The weights of the experts of a layer, of one shape and type: one tensor of a file, and several of a checkpoint."""

    weights: tuple[Values, ...]

    def values(self) -> Values:
        """Return all weights as one array."""
        first = self.weights[0]
        if not isinstance(first, QuantizedArray):
            return np.stack([np.asarray(each) for each in self.weights])
        fields = [each.fields for each in self.weights if isinstance(each, QuantizedArray)]
        return QuantizedArray({name: np.stack([each[name] for each in fields]) for name in first.fields}, first.scheme)


EXPERT_NAME: Final = re.compile(r"(.+\.experts)\.(\d+)\.(.+)")


def with_stacked_experts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with the tensors of single experts replaced by all of a projection, by the name without a number."""
    result: dict[str, Any] = {}
    for name, value in parameters.items():
        match = EXPERT_NAME.fullmatch(name)
        if match is None:
            result[name] = value
        else:
            result.setdefault(f"{match[1]}.{match[3]}", {})[int(match[2])] = value
    return {
        name: StackedExperts(tuple(each[number] for number in sorted(each))) if isinstance(each, dict) else each
        for name, each in result.items()
    }


def _tensor(name: str, value: Any, names: GgufArchitecture, heads: Mapping[str, int], caller: str) -> ModelTensor:
    file_name = names.file_name(name)
    if file_name is None:
        raise UnsupportedError(f"{caller}: GGUF files of {names.model_type} have no name for the tensor {name!r:.80}")
    if isinstance(value, StackedExperts):
        count, first, load = (len(value.weights),), value.weights[0], value.values
        scheme = first.scheme if isinstance(first, QuantizedArray) else None
        dtype = dtypes.f32 if isinstance(first, QuantizedArray) else dtype_of(first.dtype)
        return ModelTensor(file_name, name, (*count, *first.shape), dtype, scheme, load)
    array = value if isinstance(value, QuantizedArray) else np.asarray(value)
    if name.endswith(SHARED_GATE):
        array = np.asarray(dense(array)).reshape(-1)
    projection = name.split(".")[-2]
    is_paired = names.has_paired_rows and projection in heads
    rows = paired_rows(array.shape[0], heads[projection]) if is_paired else None
    offset = names.norm_offset if name.endswith("norm.weight") else 0.0
    scheme = array.scheme if isinstance(array, QuantizedArray) else None
    dtype = dtypes.f32 if isinstance(array, QuantizedArray) else dtype_of(array.dtype)
    return ModelTensor(file_name, name, tuple(array.shape), dtype, scheme, lambda: array, rows, offset)


def paired_rows(count: int, heads: int) -> np.ndarray:
    """Return the order of rows of queries or keys for interleaved rotation: row i of a head, then row i + n/2."""
    return np.arange(count).reshape(heads, 2, -1).swapaxes(1, 2).reshape(-1)


# ---------------------------------------------------------------------------------------------- metadata


def architecture_metadata(label: str, spec: DecoderSpec, config: Config) -> dict[str, Any]:
    """Return the options of a configuration as metadata; faults of options that GGUF files cannot state are in it."""
    sizes, values = SizeOptions(spec, config), config.values
    head_size, heads, layers = sizes.head_size(), sizes("num_attention_heads"), sizes("num_hidden_layers")
    experts = spec.experts
    width = sizes("intermediate_size", None if experts is None else config.size_of(experts.intermediate_size))
    result: dict[str, Any] = {
        "vocab_size": sizes("vocab_size"),
        "block_count": layers,
        "embedding_length": sizes("hidden_size"),
        "feed_forward_length": width,
        "context_length": sizes("max_position_embeddings", 2048),
        "attention.head_count": heads,
        "attention.head_count_kv": sizes("num_key_value_heads", spec.num_kv_heads or heads),
        "attention.key_length": head_size,
        "attention.value_length": head_size,
        "attention.layer_norm_rms_epsilon": np.float32(config.number(spec.norm.eps.name, spec.norm.eps.default)),
        **_rope_metadata(spec, config, head_size),
        **({} if experts is None else _experts_metadata(label, experts, config, layers)),
    }
    for key, option in (
        ("attn_logit_softcapping", spec.score_softcap),
        ("final_logit_softcapping", spec.logits_softcap),
    ):
        if option is not None:
            cap = values.get(option.name, option.default)
            if cap is None:
                config.faults.append(Fact(option.name, "None, and GGUF files of this architecture have a number"))
            result[key] = np.float32(cap or 0)
    if spec.window is not None:
        window = values.get(spec.window.size.name, spec.window.size.default)
        if window is not None:
            result["attention.sliding_window"] = config.size(spec.window.size.name, spec.window.size.default)
    _expect_implied(spec, config, head_size, layers)
    return {f"{label}.{key}": value for key, value in result.items()}


def _experts_metadata(label: str, spec: ExpertsSpec, config: Config, layers: int) -> dict[str, Any]:
    """Return the options of a mixture of experts; every layer of a file has it."""
    names = ARCHITECTURES[label].experts
    assert names is not None, "the label is of an architecture with experts"
    options = {spec.num_experts: EXPERT_COUNT, spec.experts_per_token: "expert_used_count"}
    if spec.intermediate_size.name != "intermediate_size":
        options[spec.intermediate_size] = "expert_feed_forward_length"
    if spec.shared is not None and spec.shared.intermediate_size is not None:
        options[spec.shared.intermediate_size] = "expert_shared_feed_forward_length"
    for name, value in names.implied.items():
        config.choice(
            name, value, default=spec.is_normalised.default if isinstance(spec.is_normalised, Option) else value
        )
    if not all(layers_with_experts(spec, config, layers)):
        config.faults.append(Fact(spec.dense_layers or "layers", "GGUF files have a mixture of experts in every layer"))
    return {key: config.size_of(option) for option, key in options.items()}


def _expect_implied(spec: DecoderSpec, config: Config, head_size: int, layers: int) -> None:
    """Add faults for options with other values than readers of the architecture imply."""
    values = config.values
    if isinstance(spec.act, Option):
        config.choice(spec.act.name, spec.act.default, default=spec.act.default)
    usual = Config({name: value for name, value in values.items() if name != "layer_types"})
    if spec.window is not None and layer_types(spec, config, layers) != layer_types(spec, usual, layers):
        config.faults.append(Fact("layer_types", "GGUF files of this architecture have another order of layers"))
    if spec.score_scale is not None:
        implied = gemma2_scalar({**values, "head_dim": head_size})
        config.choice(spec.score_scale.name, implied, default=spec.score_scale.default)


def _rope_metadata(spec: DecoderSpec, config: Config, head_size: int) -> dict[str, Any]:
    """Return the options of rope; divisors of single frequencies are a tensor (`rope_divisors`)."""
    options = _rope_options(spec, config)
    rotated = int(head_size * options.number("partial_rotary_factor", 1.0))
    result: dict[str, Any] = {
        "rope.dimension_count": rotated,
        "rope.freq_base": np.float32(options.number("rope_theta", 10_000.0)),
    }
    rope_type = options.values["rope_type"]
    if rope_type == "linear":
        factor = options.number("factor", 1.0)
        result |= {"rope.scaling.type": "linear", "rope.scaling.factor": np.float32(factor)}
    if rope_type == "yarn":
        unstated = ("attention_factor", "mscale", "mscale_all_dim")
        config.faults += [Fact(name, options.values[name]) for name in unstated if options.values.get(name) is not None]
        options.choice("truncate", True, default=True)
        result |= {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": np.float32(yarn_factor(options)),
            "rope.scaling.original_context_length": options.size("original_max_position_embeddings"),
            "rope.scaling.yarn_beta_fast": np.float32(options.number("beta_fast", 32.0)),
            "rope.scaling.yarn_beta_slow": np.float32(options.number("beta_slow", 1.0)),
        }
    return result


def _rope_options(spec: DecoderSpec, config: Config) -> Config:
    assert spec.rope is not None, "all architectures of GGUF files rotate queries and keys"
    return rope_config(Config({**spec.rope.defaults, **config.values}, config.faults))


def rope_divisors(spec: DecoderSpec, config: Config) -> np.ndarray | None:
    """Return the divisor of each frequency, f32[pairs], for types of rope that GGUF files state so (`llama3`)."""
    options = _rope_options(spec, config)
    rope_type = options.values["rope_type"]
    if rope_type not in ("llama3", "divided"):
        return None
    n = int(SizeOptions(spec, config).head_size() * options.number("partial_rotary_factor", 1.0))
    divisors = rope_frequencies(options, "default", n) / rope_frequencies(options, rope_type, n)
    return np.asarray(divisors.astype(np.float32))
