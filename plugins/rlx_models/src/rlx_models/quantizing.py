"""`quantize`: a checkpoint folder or a GGUF file as a GGUF file in fewer bits, one tensor at a time, with the errors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from math import prod
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from rlx_core.errors import ConfigError, Fact, RlxError, ShapeError, UnknownNameError, nearest
from rlx_core.files.load_save import path_of
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dtypes import DType
from rlx_core.ir.schemes import Scheme
from rlx_core.pipeline.set_up import working_on
from rlx_core.plugins import PluginHost, default_host
from rlx_core.quantization.lookup import scheme_of
from rlx_models.checkpoints import read_config, read_generation_config
from rlx_models.checkpoints.packed import packing_of
from rlx_models.gguf.contents import ModelContents, ModelTensor, contents_of_file, contents_of_parameters
from rlx_models.gguf.encoding import FLOATS, EncodingError, deferred, file_type, label_of, stored_type
from rlx_models.gguf.reading import read
from rlx_models.gguf.writing import write
from rlx_models.loading import native_architecture, read_parameters

ROUTER_NAMES: Final = (".ffn_gate_inp.weight", ".ffn_gate_inp_shexp.weight")
"""Ends of names of tensors that are small and choose experts: their type changes only if a pattern states it (llama.cpp)."""
FLOAT_TYPES: Final = {str(each): each for each in FLOATS}


@frozen
class QuantizedTensor:
    """A tensor of a written file.

    Attributes:
        name: Its name in the file.
        shape: Its shape.
        stored: Its dtype or scheme before.
        scheme: Its dtype or scheme in the file.
        nbytes_before, nbytes: Its bytes before and in the file.
        error: The root mean square of differences, relative to the values before; `None` for a tensor that is not quantised.
        worst_error: The same of the worst block, relative to all values.
        worst_block: The row of that block in the file, and its number in the row.
    """

    name: str
    shape: tuple[int, ...]
    stored: str
    scheme: str
    nbytes_before: int
    nbytes: int
    error: float | None = None
    worst_error: float | None = None
    worst_block: tuple[int, int] | None = None


@checked_call
def quantize(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str],
    /,
    *,
    scheme: str,
    keep: Mapping[str, str] | None = None,
    host: PluginHost | None = None,
) -> tuple[QuantizedTensor, ...]:
    """Write a model to a GGUF file in fewer bits; return a record for each tensor.

    Tensors of two axes or more whose rows are whole blocks are quantised, embeddings and the projection to logits among them;
    other matrices remain as they are, and arrays of one axis (norms, biases) are f32. A tensor that has the scheme already is
    copied; one in another scheme is decoded and encoded again. The file has the metadata and the tokenizer that `rlx.load`,
    `rlx generate` and llama.cpp read; a file of a folder without `tokenizer.json` has no tokenizer.

    Tensors are read, encoded and written one after the other, some rows at a time. The file appears as a whole, or on an error
    stays as it was.

    Args:
        model: A checkpoint folder with safetensors files, or a GGUF file.
        out: The file, which may exist.
        scheme: A scheme that GGUF files have, such as `q4_0`, `q8_0` or `q4_k`; or `f32`, `f16` or `bf16`.
        keep: Schemes of other tensors by pattern (`*` and `?`) of their names in the file or in the checkpoint; the first pattern
            that matches counts: `{"output.*": "q8_0", "blk.0.*": "f16"}`.
        host: The plugins with the schemes; everything installed by default.

    Raises:
        UnknownNameError: There is no such scheme.
        ConfigError: GGUF files do not have the scheme, a pattern matches no tensor, `out` is the model, or has another suffix.
        ShapeError: No tensor has rows of whole blocks.
        UnsupportedError: GGUF files have no names for the architecture, or cannot state an option or the tokenizer.
        DtypeError: A tensor has NaN, infinities, or numbers beyond the range of the type.
        FileError, FormatError: The model cannot be read or the file cannot be written.
    """
    source, target = path_of("quantize", model), path_of("quantize", out)
    active = host or default_host()
    if target.suffix.lower() != ".gguf":
        raise ConfigError(f"quantize: writes a .gguf file, not {target.name!r:.80}", hint=f"{target.stem}.gguf")
    if source.exists() and target.exists() and source.samefile(target):
        raise ConfigError("quantize: the output is the model itself", Fact("file", target))
    usual = _type_of(scheme, active)
    by_pattern = {pattern: _type_of(name, active) for pattern, name in (keep or {}).items()}
    with working_on(f"quantize: {source.name}", host=host):
        contents = _contents(source, active)
    targets = _targets(contents, usual, by_pattern)
    errors = {tensor.name: EncodingError() for tensor in contents.tensors}
    tensors = {each.name: deferred(each, targets[each.name], errors[each.name], active) for each in contents.tensors}
    write(target, tensors, {**contents.metadata, **file_type(contents.tensors, targets)})
    return tuple(
        _record(each, targets[each.name], tensors[each.name].nbytes, errors[each.name]) for each in contents.tensors
    )


def _type_of(name: str, host: PluginHost) -> DType | Scheme:
    """Return the type of a name.

    Raises:
        UnknownNameError: No type has the name.
        ConfigError: GGUF files do not have it.
    """
    if name in FLOAT_TYPES:
        return FLOAT_TYPES[name]
    table = host.activate_all().table("schemes")
    known = [
        *FLOAT_TYPES,
        *(label.removeprefix("rlx.") for label, spec in table.items() if getattr(spec, "ggml_id", None) is not None),
    ]
    try:
        scheme = scheme_of(name, None, host)
    except UnknownNameError:
        near = nearest(name, known)
        raise UnknownNameError(
            f"quantize: unknown scheme {name!r:.40}", Fact("known", ", ".join(known)), hint=near
        ) from None
    if scheme.ggml_id is None:
        raise ConfigError(f"quantize: GGUF files do not have the scheme {name}", Fact("known", ", ".join(known)))
    return scheme


def _contents(source: Path, host: PluginHost) -> ModelContents:
    """Return the contents of a GGUF file or a checkpoint folder."""
    if source.suffix.lower() == ".gguf" and not source.is_dir():
        file = read(source, host=host)
        try:
            return contents_of_file(file)
        except RlxError as error:
            raise error.with_fact(Fact("file", source)) from None
    config = read_config(source)
    packing = packing_of(config)
    model_type, architecture = native_architecture(config, source, head=True)
    tensors = read_parameters(model_type, architecture, source, packing, "quantize")
    return contents_of_parameters(
        tensors, config, "quantize", folder=source, generation_config=read_generation_config(source)
    )


def _targets(
    contents: ModelContents, usual: DType | Scheme, by_pattern: Mapping[str, DType | Scheme]
) -> dict[str, DType | Scheme]:
    """Return the type of each tensor.

    Raises:
        ConfigError: A pattern matches no tensor.
        ShapeError: No tensor has rows of whole blocks.
    """
    names = [name for tensor in contents.tensors for name in (tensor.name, tensor.source_name)]
    for pattern in by_pattern:
        if not any(fnmatchcase(name, pattern) for name in names):
            hint = nearest(pattern, names) or f"names are {', '.join(list(dict.fromkeys(names))[:3])}, …"
            raise ConfigError(f"quantize: no tensor is named {pattern!r:.80}", hint=hint)
    targets = {}
    for tensor in contents.tensors:
        default = stored_type(tensor) if tensor.name.endswith(ROUTER_NAMES) else usual
        chosen = next((each for pattern, each in by_pattern.items() if matches(tensor, pattern)), default)
        targets[tensor.name] = chosen if accepts(chosen, tensor) else stored_type(tensor)
    if isinstance(usual, Scheme) and usual not in targets.values() and not by_pattern:
        lengths = sorted({tensor.shape[-1] for tensor in contents.tensors if len(tensor.shape) > 1})
        raise ShapeError(
            f"quantize: no tensor has rows of whole blocks of {label_of(usual)}",
            Fact("block", usual.elements),
            Fact("rows", f"of {', '.join(map(str, lengths)) or 'no'} elements"),
            hint=None if usual.elements <= 32 else "q4_0, q5_0 and q8_0 have blocks of 32 elements",
        )
    return targets


def matches(tensor: ModelTensor, pattern: str) -> bool:
    """Return whether a name of a tensor has a pattern."""
    return fnmatchcase(tensor.name, pattern) or fnmatchcase(tensor.source_name, pattern)


def accepts(target: DType | Scheme, tensor: ModelTensor) -> bool:
    """Return whether a tensor is encoded in a type: a matrix of floats, with rows of whole blocks."""
    if len(tensor.shape) < 2 or not tensor.dtype.is_float:
        return False
    return isinstance(target, DType) or tensor.shape[-1] % target.elements == 0


def _record(tensor: ModelTensor, target: DType | Scheme, nbytes: int, error: EncodingError) -> QuantizedTensor:
    before = prod(tensor.shape) * tensor.dtype.itemsize
    if tensor.scheme is not None:
        before = prod(tensor.shape) // tensor.scheme.elements * tensor.scheme.block_dtype.itemsize
    plain: dict[str, Any] = {}
    if isinstance(target, Scheme) and error.blocks:
        blocks = tensor.shape[-1] // target.elements
        plain = {
            "error": error.relative,
            "worst_error": error.worst_relative,
            "worst_block": divmod(error.worst_block, blocks),
        }
    return QuantizedTensor(tensor.name, tensor.shape, tensor.label, label_of(target), before, nbytes, **plain)
