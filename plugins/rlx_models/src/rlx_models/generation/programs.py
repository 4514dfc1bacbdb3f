"""Programs of generation, compiled once for a model and a target, and the caches that they update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import rlx_core as rlx
from rlx_core.errors import ConfigError
from rlx_core.trees.flatten import map_leaves
from rlx_models.architectures import Decoding
from rlx_models.model import PretrainedModel

if TYPE_CHECKING:
    from rlx_core.runtime.compiled_function import CompiledFunction

PROMPT_MULTIPLE: Final = 16
"""Prompts are padded to a multiple of this length, so that few programs are compiled."""


def decoding_of(model: PretrainedModel) -> Decoding:
    """Return the programs of generation.

    Raises:
        ConfigError: The model has none.
    """
    decoding = model.architecture.decoding
    if decoding is not None:
        return decoding
    if model.reader != "rlx":
        raise ConfigError(
            f"generate: {model.name} was read by {model.reader}, which has no cache",
            hint="append the most probable token of the last logits of model(input_ids), and call the model again",
        )
    raise ConfigError(
        f"generate: {model.name} has no decoder", hint="generative models are gpt2, llama, qwen3, t5 and others"
    )


def check_cache_dtype(what: str, cache_dtype: str) -> None:
    """Check that there are caches of a dtype.

    Raises:
        ConfigError: There are not.
    """
    if cache_dtype not in CACHE_DTYPES:
        raise ConfigError(
            f"{what}: cache_dtype is {cache_dtype!r:.40}", hint=f"keys and values are {', '.join(CACHE_DTYPES)}"
        )


def zero_cache(
    decoding: Decoding, batch: int, length: int, target: str, cache_dtype: str = "f32", *, is_exact: bool = False
) -> list[tuple[Any, ...]]:
    """Return an empty cache on the target, where it remains: its length is a power of two, or exactly `length`."""
    max_length = length if is_exact else 1 << (length - 1).bit_length()

    def zeros(dtype: str, rows: int | None, features: int) -> Any:
        shape = (batch, rows or max_length, features)
        return rlx.device_put(np.zeros(shape, rlx.spec(f"{dtype}[]").dtype.numpy), target)

    return [tuple(zeros(*array) for array in entry) for entry in cache_arrays(decoding, cache_dtype)]


def cache_arrays(decoding: Decoding, cache_dtype: str) -> list[tuple[tuple[str, int | None, int], ...]]:
    """Return dtype, rows and features of each array of a cache; with `int8` codes of keys and values, then their scales."""
    result: list[tuple[tuple[str, int | None, int], ...]] = []
    for entry in decoding.cache:
        (rows, _), _ = entry
        if rows is None and cache_dtype == "int8":
            scales = ("f32", None, decoding.cache_heads)
            result.append((*(("i8", None, features) for _, features in entry), scales, scales))
        else:
            result.append(tuple((cache_dtype if rows is None else "f32", rows, features) for rows, features in entry))
    return result


def padded_length(length: int) -> int:
    """Return the length of a padded prompt: 1, or a multiple of 16."""
    return length if length == 1 else -(-length // PROMPT_MULTIPLE) * PROMPT_MULTIPLE


def compiled_program(model: PretrainedModel, name: str, target: str | None) -> CompiledFunction[..., Any]:
    """Return a program of a model with bound parameters; it is compiled once for a target."""
    key = (name, target)
    if key not in model.programs:
        model.programs[key] = PROGRAMS[name](model, target)
    return model.programs[key]


def _compile_step(
    model: PretrainedModel,
    target: str | None,
    *,
    cache_dtype: str = "f32",
    position: str = "i64[]",
    passes: Sequence[str] = (),
) -> CompiledFunction[..., Any]:
    decoding = decoding_of(model)
    input_ids, left_padding = rlx.spec("i64[batch, steps]"), rlx.spec("i64[batch]")
    cache = _cache_specs(decoding, cache_dtype)
    arguments: list[Any] = [model.parameters, input_ids, left_padding, cache, rlx.spec(position)]
    if decoding.encode is not None:
        arguments.append(_encoded_spec(model, decoding.encode))
    return rlx.compile(decoding.step, *arguments, donate="cache", target=target, config={"include": [*passes]})


def _compile_selected(
    model: PretrainedModel, target: str | None, *, cache_dtype: str, passes: Sequence[str] = ()
) -> CompiledFunction[..., Any]:
    decoding = decoding_of(model)
    assert decoding.step_selected is not None, "`CachedModel` has checked it"
    inputs = [rlx.spec("i64[batch, steps]"), rlx.spec("i64[batch]"), _cache_specs(decoding, cache_dtype)]
    selected = (rlx.spec("i64[batch]"), rlx.spec("i64[batch, count]"))
    return rlx.compile(
        decoding.step_selected,
        model.parameters,
        *inputs,
        *selected,
        donate="cache",
        target=target,
        config={"include": [*passes]},
    )


def _compile_cache_rows(model: PretrainedModel, target: str | None, *, cache_dtype: str) -> CompiledFunction[..., Any]:
    return rlx.compile(rows_of, _cache_specs(decoding_of(model), cache_dtype), rlx.spec("i64[rows]"), target=target)


def _compile_encoded_rows(model: PretrainedModel, target: str | None) -> CompiledFunction[..., Any]:
    decoding = decoding_of(model)
    assert decoding.encode is not None, "only encoder-decoders have the program"
    return rlx.compile(rows_of, _encoded_spec(model, decoding.encode), rlx.spec("i64[rows]"), target=target)


def _compile_cache_entries(
    model: PretrainedModel, target: str | None, *, cache_dtype: str
) -> CompiledFunction[..., Any]:
    decoding = decoding_of(model)
    destination, source = (
        _cache_specs(decoding, cache_dtype, *names) for names in (("1", "length"), ("batch", "max_length"))
    )
    indices = rlx.spec("i64[entries]")
    return rlx.compile(copied_entries, destination, source, indices, indices, donate="destination", target=target)


def copied_entries(destination: Any, source: Any, destination_entries: Any, source_entries: Any) -> Any:
    """Return a cache with entries of another one.

    Args:
        destination: Arrays [1, length, features] of each layer.
        source: Arrays [batch, max_length, features] of each layer.
        destination_entries: Indices i64[n] on the axis `length`.
        source_entries: Indices i64[n] among the `batch · max_length` entries.
    """

    def copied(into: Any, array: Any) -> Any:
        rows = rlx.take(rlx.reshape(array, (-1, array.shape[-1])), source_entries, axis=0)
        return rlx.scatter(into, destination_entries, rows[None], axis=1)

    pairs = zip(destination, source, strict=True)
    return [tuple(copied(*each) for each in zip(entry, other, strict=True)) for entry, other in pairs]


def rows_of(arrays: Any, rows: Any) -> Any:
    """Return arrays with the rows i64[n] of their first axis."""
    return map_leaves(lambda each: rlx.take(each, rows, axis=0), arrays)


def _encoded_spec(model: PretrainedModel, encode: Callable[..., Any]) -> Any:
    return rlx.eval_shape(encode, model.parameters, *model.encoder.inputs.values())


def _cache_specs(
    decoding: Decoding, cache_dtype: str, batch: str = "batch", length: str = "max_length"
) -> list[tuple[rlx.TensorType, ...]]:
    return [
        tuple(rlx.spec(f"{dtype}[{batch}, {rows or length}, {features}]") for dtype, rows, features in entry)
        for entry in cache_arrays(decoding, cache_dtype)
    ]


def _compile_encode(model: PretrainedModel, target: str | None) -> CompiledFunction[..., Any]:
    decoding = decoding_of(model)
    assert decoding.encode is not None, "only encoder-decoders have the program"
    return rlx.compile(decoding.encode, model.parameters, *model.encoder.inputs.values(), target=target)


CACHE_DTYPES: Final = ("f32", "f16", "bf16", "int8")
"""Dtypes of cached keys and values; `int8`: codes i8, and a scale f32 for each token and head."""

STEPS: Final = {dtype: "step" if dtype == "f32" else f"step with a cache of {dtype}" for dtype in CACHE_DTYPES}
"""The name of the program of a step, by the dtype of its cache."""

SELECTED: Final = {dtype: f"selected {name}" for dtype, name in STEPS.items()}
"""The name of the program of `Decoding.step_selected`, by the dtype of its cache."""

ACTIVATIONS: Final = {"f32": "", "int8": " with activations of 8 bits"}
"""The end of the name of a program of `STEPS` or `SELECTED`, by its activations."""

PASSES: Final[Mapping[str, Sequence[str]]] = {"f32": (), "int8": ("quantized-activations",)}
"""Additional passes of those programs, by their activations."""

CACHE_ROWS: Final = {dtype: f"cache rows of {dtype}" for dtype in CACHE_DTYPES}
"""The name of the program of `rows_of` for a cache, by its dtype; `encoded rows` is the one of an encoder's results."""

SLOTS: Final = {dtype: f"slots of {dtype}" for dtype in CACHE_DTYPES}
"""The name of the program of a step with a cache position for each batch entry, by the dtype of its cache."""

CACHE_ENTRIES: Final = {dtype: f"cache entries of {dtype}" for dtype in CACHE_DTYPES}
"""The name of the program of `copied_entries`, by the dtype of its caches."""

PROGRAMS: Final[Mapping[str, Callable[[PretrainedModel, str | None], CompiledFunction[..., Any]]]] = {
    **{
        name + ACTIVATIONS[activations]: partial(compile_program, cache_dtype=dtype, passes=passes)
        for activations, passes in PASSES.items()
        for names, compile_program in ((STEPS, _compile_step), (SELECTED, _compile_selected))
        for dtype, name in names.items()
    },
    **{name: partial(_compile_cache_rows, cache_dtype=dtype) for dtype, name in CACHE_ROWS.items()},
    "encoded rows": _compile_encoded_rows,
    **{name: partial(_compile_cache_entries, cache_dtype=dtype) for dtype, name in CACHE_ENTRIES.items()},
    **{name: partial(_compile_step, cache_dtype=dtype, position="i64[batch]") for dtype, name in SLOTS.items()},
    "encode": _compile_encode,
}
"""Programs of a model by name."""
