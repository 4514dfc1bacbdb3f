"""`from_pretrained`: the model of a checkpoint folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rlx_core.errors import ConfigError, Fact, FormatError, UnsupportedError, nearest, unsupported
from rlx_core.hints.keywords import checked_call
from rlx_core.pipeline.set_up import working_on
from rlx_models.architectures import ARCHITECTURES, Architecture
from rlx_models.architectures.heads import ENCODERS, reject_classifier, with_head
from rlx_models.architectures.widening import in_f32
from rlx_models.checkpoints import Config, check_tensors, read_config, read_generation_config, read_tensors
from rlx_models.checkpoints.packed import OPTION, Packing, packing_of, unpacked
from rlx_models.model import PretrainedModel
from rlx_models.readers import NATIVE, ReadRequest, find_reader


@checked_call
def from_pretrained(
    folder: str | os.PathLike[str],
    /,
    *,
    head: bool = True,
    reader: str = NATIVE,
    sizes: Mapping[str, int] | None = None,
) -> PretrainedModel:
    """Return the model of a checkpoint in the layout of Hugging Face: `config.json` and `model.safetensors`, or several files.

    The inputs have the names of Transformers:

    | models | inputs | results |
    |---|---|---|
    | encoders (BERT, DeBERTa, ModernBERT, …) | `input_ids`, `attention_mask` i64[batch, length] | f32[batch, length, hidden_size], or of the head: logits f32[batch, labels], f32[batch, length, labels], f32[batch, length, vocab_size], or start and end logits f32[batch, length] |
    | decoders (GPT-2, Llama, …) | `input_ids` | logits f32[batch, length, vocab_size] |
    | T5, BART, Marian | `input_ids`, `attention_mask`, `decoder_input_ids` i64[batch, steps] | logits f32[batch, steps, vocab_size] |
    | Whisper | `input_features` f32[batch, mels, frames], `decoder_input_ids` | logits |
    | ViT | `pixel_values` f32[batch, channels, height, width] | f32[batch, 1 + patches, hidden_size], or logits f32[batch, labels] |
    | CLIP | `input_ids`, `pixel_values` | `logits_per_image`, `text_embeds`, `image_embeds` |

    Batch and lengths of texts are symbolic. Weights remain in the memory-mapped files, by their names and with their dtypes; packed
    weights of 4 bits (GPTQ, AWQ, compressed-tensors) are copied to quantised arrays, and such models compute in f32.

    Args:
        folder: The folder. No file outside of it is read, and nothing in it is executed.
        head: Whether an encoder has the head of the class in `architectures`; without it, the model returns hidden states.
            Classifiers on decoders are rejected; without the head, the model returns the decoder's logits.
        reader: `rlx` for the architectures of this package; `transformers` for the module of Transformers by `from_torch`, which
            needs rlx-torch, torch and transformers. Its models process whole texts without a cache, so `generate` rejects them.
        sizes: For `reader="transformers"`: fixed sizes by name (`batch`, `length`, `steps`, `samples`, `texts`, `images`) for
            modules whose code depends on a size, such as loops over time; others are symbolic. `height` and `width` of images
            are those of the configuration by default.

    Raises:
        FileError: A file is missing.
        PluginError: The reader's packages are not installed.
        ConfigError: The reader or a size is unknown.
        BudgetError: The files are larger than `budget.read` allows.
        UnsupportedError: The architecture or options of the configuration are not supported; the error lists them.
        FormatError: Tensors are missing, misshapen or unknown; the error lists them.
    """  # noqa: E501 rows of a table
    path = Path(folder)
    if sizes and reader == NATIVE:
        raise ConfigError(
            "from_pretrained: sizes are for reader='transformers'", hint="all sizes of texts are symbolic"
        )
    with working_on(f"from_pretrained: {path.name}"):
        read = None if reader == NATIVE else find_reader(reader)
        config = read_config(path)
        if read is None:
            packing = packing_of(config)
            model_type, architecture = native_architecture(config, path, head=head)
            parameters: Mapping[str, Any] = read_parameters(model_type, architecture, path, packing)
            architecture = architecture if packing is None else in_f32(architecture)
        else:
            model_type = str(config.values.get("model_type"))
            request = ReadRequest(folder=path, config=config, head=head, sizes=sizes or {})
            architecture, parameters = read(request)
        return PretrainedModel(
            name=model_type,
            function=architecture.function,
            parameters=parameters,
            inputs=architecture.inputs,
            architecture=architecture,
            config=dict(config.values),
            generation_config=read_generation_config(path),
            reader=reader,
            folder=path,
        )


def read_parameters(
    model_type: str, architecture: Architecture, folder: Path, packing: Packing | None, caller: str = "from_pretrained"
) -> dict[str, Any]:
    """Return the tensors of a folder by the names of an architecture; packed weights are quantised arrays.

    Raises:
        FileError, UnsupportedError, FormatError: See `from_pretrained`.
    """
    tensors = read_tensors(folder)
    return check_tensors(
        model_type,
        tensors if packing is None else unpacked(tensors, packing),
        architecture.shapes,
        architecture.prefix,
        architecture.unused,
        architecture.optional,
        caller=caller,
    )


def native_architecture(config: Config, folder: Path, *, head: bool) -> tuple[str, Architecture]:
    """Return the model type and the architecture of a configuration.

    Raises:
        UnsupportedError: The model type or options are not supported.
        FormatError: The values of the configuration do not fit each other.
    """
    model_type = config.values.get("model_type")
    if not isinstance(model_type, str) or model_type not in ARCHITECTURES:
        error = unsupported("from_pretrained", {f"model_type {model_type!r}": ["config.json"]})
        known = nearest(str(model_type), ARCHITECTURES) or f"supported are {', '.join(ARCHITECTURES)}"
        error.hint = f"{known}; from_pretrained(folder, reader='transformers') reads others with torch and transformers"
        raise error.with_fact(Fact("folder", folder))
    architecture = build_architecture(model_type, config, "from_pretrained")
    if head and model_type in ENCODERS:
        architecture = with_head(model_type, config, architecture)
    elif head:
        reject_classifier(config)
    if packing_of(Config(config.values)) is None:
        config.choice(OPTION, None)
    if config.faults:
        raise unsupported_options("from_pretrained", model_type, [*config.faults, Fact("folder", folder)])
    return model_type, architecture


def build_architecture(model_type: str, config: Config, caller: str) -> Architecture:
    """Return the architecture of a model type; faults of single options are in the configuration.

    Args:
        caller: The function that messages begin with.

    Raises:
        UnsupportedError, FormatError: The values of the configuration do not fit each other.
    """
    try:
        return ARCHITECTURES[model_type](config)
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, MemoryError) as error:
        if config.faults:
            raise unsupported_options(caller, model_type, config.faults) from error
        source = "config.json does" if caller == "from_pretrained" else "the metadata do"
        message = f"{caller}: {source} not describe a {model_type} ({error!r:.100})"
        raise FormatError(message) from error


def unsupported_options(caller: str, model_type: str, faults: Iterable[Fact]) -> UnsupportedError:
    """Return the error of options; an option that was read several times has one fact."""
    unique = {str(fault): fault for fault in faults}
    return UnsupportedError(f"{caller}: {model_type} with unsupported options", *unique.values())
