"""The reader `transformers` of rlx-models: a checkpoint's module in Transformers, read by `from_torch`.

Found by the entry point `transformers` of the group `rlx_models.readers`; needs rlx-models, torch and transformers.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from attrs import frozen

from rlx_core.errors import ConfigError, Fact, FormatError, UnsupportedError
from rlx_core.functions.model import PARAMETERS
from rlx_models.architectures import Architecture
from rlx_models.architectures.heads import architecture_class
from rlx_models.checkpoints import Config
from rlx_models.checkpoints.tensors import mismatch_error
from rlx_models.layers.linear import Parameters
from rlx_models.readers import ReadRequest
from rlx_torch.exported import TorchModel
from rlx_torch.modules import from_torch


@frozen
class ModuleInput:
    """An input of a module.

    Attributes:
        sizes: Names of its symbolic sizes; those of images follow.
        is_integer: Whether it has integers.
    """

    sizes: tuple[str, ...]
    is_integer: bool = True


INPUTS: Final = {
    "input_ids": ModuleInput(("batch", "length")),
    "attention_mask": ModuleInput(("batch", "length")),
    "decoder_input_ids": ModuleInput(("batch", "steps")),
    "pixel_values": ModuleInput(("batch",), is_integer=False),
    "input_values": ModuleInput(("batch", "samples"), is_integer=False),
}
"""Supported inputs by name."""

TEXTS_AND_IMAGES: Final = {
    "input_ids": ModuleInput(("texts", "length")),
    "pixel_values": ModuleInput(("images",), is_integer=False),
}

EXAMPLES: Final = {"batch": 2, "length": 7, "steps": 5, "samples": 16000, "texts": 2, "images": 3}
"""Sizes of example inputs for export; different ones, so that none are taken to be equal."""

SIDES: Final = ("height", "width")
"""Sizes of images, which are never symbolic; by default those of the configuration."""

RESULTS: Final[tuple[tuple[str, ...], ...]] = (
    ("logits",),
    ("logits_per_image", "text_embeds", "image_embeds"),
    ("last_hidden_state",),
)
"""Names of results; the first row that a module has is returned, a single result without its name."""


def read(request: ReadRequest) -> tuple[Architecture, Mapping[str, Any]]:
    """Return the architecture and parameters of a checkpoint whose module Transformers has.

    Raises:
        UnsupportedError: Transformers has no such class, or export cannot keep a size symbolic.
        FormatError: Tensors are missing or misshapen.
        ConfigError: A fixed size is not a size of the model.
    """
    model_type, sizes = str(request.config.values.get("model_type")), request.sizes
    module, missing = _module(request.folder, request.config, head=request.head)
    inputs = _inputs(module)
    names = dict.fromkeys(name for each in inputs.values() for name in each.sizes)
    if "pixel_values" in inputs:
        names |= dict.fromkeys(SIDES)
    unknown = [name for name in sizes if name not in names]
    if unknown:
        hint = f"its sizes are {', '.join(names)}"
        raise ConfigError(f"from_pretrained: {model_type} has no size {unknown[0]!r}", hint=hint)
    model = _exported(module, inputs, sizes)
    if model.state:
        states = Fact("buffers", ", ".join(model.state))
        raise UnsupportedError(f"from_pretrained: {type(module).__name__} writes its buffers", states)
    parameters = {name: each for name, each in model.parameters.items() if name not in missing}
    # Tensors that only training reads may be missing: Transformers initialises them, and the program does not read them.
    used = [name for name in missing if name in _used(model) or name not in model.parameters]
    if used:
        raise mismatch_error(type(module).__name__, [Fact(name, "is missing") for name in used])
    specs = dict(zip(inputs, model.inputs.values(), strict=True))
    shapes = {name: tuple(each.shape) for name, each in parameters.items()}

    def function(parameters: Parameters, *inputs: Any) -> Any:
        return _result(model.function(parameters, *inputs))

    return Architecture(shapes, "", (), specs, function), parameters


def _used(model: TorchModel) -> set[str]:
    """Return the names of the parameters that the program reads."""
    graph = model.trace()
    names = {f"%{PARAMETERS}.{name}": name for name in model.parameters}
    read = [value for value in graph.inputs if graph.uses.get(value) or value in graph.output_set]
    return {names[str(value)] for value in read if str(value) in names}


def _module(folder: Path, config: Config, *, head: bool) -> tuple[Any, list[str]]:
    """Return the module in evaluation mode, and the names of tensors that the folder does not have."""
    name = architecture_class(config) if head else ""
    module_class: Any = getattr(transformers, name, None) if name else transformers.AutoModel
    # Only classes of the package itself are used: nothing in the folder is executed.
    is_known = module_class is transformers.AutoModel or (
        inspect.isclass(module_class) and issubclass(module_class, transformers.PreTrainedModel)
    )
    if not is_known:
        hint = "python -m pip install --upgrade transformers"
        version = Fact("transformers", transformers.__version__)
        raise UnsupportedError(f"from_pretrained: transformers has no class {name}", version, hint=hint)
    options = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True, "dtype": "auto"}
    try:
        module, report = module_class.from_pretrained(folder, output_loading_info=True, **options)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise FormatError(f"from_pretrained: transformers cannot read it: {error}", Fact("folder", folder)) from error
    missing = sorted(map(str, report["missing_keys"]))
    facts = [Fact(str(each), "is misshapen") for each in report["mismatched_keys"]]
    facts += [Fact(str(name), "is unknown") for name in sorted(report["unexpected_keys"])] if head else []
    if facts:
        raise mismatch_error(type(module).__name__, [*(Fact(name, "is missing") for name in missing), *facts])
    return module.eval(), missing


def _inputs(module: Any) -> dict[str, ModuleInput]:
    """Return the inputs that are given, by the names in Transformers."""
    accepted, main = inspect.signature(module.forward).parameters, module.main_input_name
    if main not in INPUTS:
        known = Fact("known", ", ".join(INPUTS))
        raise UnsupportedError(f"from_pretrained: {type(module).__name__} takes {main}", known)
    if main == "input_ids" and "pixel_values" in accepted and not module.can_generate():
        return TEXTS_AND_IMAGES
    if module.config.to_dict().get("is_encoder_decoder"):
        mask = ("attention_mask",) if main == "input_ids" else ()
        names = (main, *mask, "decoder_input_ids")
    elif main == "input_ids" and not module.can_generate():
        names = (main, "attention_mask")
    else:
        names = (main,)
    return {name: INPUTS[name] for name in names}


def _exported(module: Any, inputs: Mapping[str, ModuleInput], sizes: Mapping[str, int]) -> TorchModel:
    """Return the module by `from_torch`, with symbolic sizes except for those in `sizes`."""
    options = module.config.to_dict()
    max_length = options.get("text_config", options).get("max_position_embeddings")
    limits = {"length": max_length, "steps": max_length}
    symbols = {
        name: torch.export.Dim(name, max=limits.get(name))
        for each in inputs.values()
        for name in each.sizes
        if name not in sizes
    }
    examples: dict[str, Any] = {}
    shapes: dict[str, Any] = {}
    for name, each in inputs.items():
        examples[name] = _example(name, each, {**EXAMPLES, **sizes}, options.get("vision_config", options))
        shapes[name] = {axis: symbols[size] for axis, size in enumerate(each.sizes) if size in symbols}
    if "use_cache" in inspect.signature(module.forward).parameters:
        examples["use_cache"], shapes["use_cache"] = False, None
    class_name = type(module).__name__
    try:
        with torch.no_grad():
            module(**examples)  # the first call may rescale weights (RWKV), which export would treat as mutation
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        text = ", ".join(f"{name} {list(examples[name].shape)}" for name in inputs)
        message = f"from_pretrained: {class_name} refuses its inputs: {error}"
        raise UnsupportedError(message, Fact("inputs", text)) from error
    try:
        return from_torch(module, (), examples, dynamic_shapes=shapes, name=class_name)
    except UnsupportedError as error:
        match = re.search(r"Constraints violated \(([\w, ]+)\)", str(error.__cause__))
        fixed = [name for name in symbols if match and name in match[1].split(", ")]
        if not fixed:
            raise
        example = ", ".join(f"{name!r}: {EXAMPLES[name]}" for name in fixed)
        raise UnsupportedError(
            f"from_pretrained: {class_name} is exported at a fixed {' and '.join(fixed)} only",
            hint=f"from_pretrained(folder, reader='transformers', sizes={{{example}}})",
        ) from error


def _example(name: str, spec: ModuleInput, sizes: Mapping[str, int], vision: Mapping[str, Any]) -> torch.Tensor:
    shape = [sizes[size] for size in spec.sizes]
    if spec.is_integer:
        return torch.ones(shape, dtype=torch.int64)
    if name == "pixel_values":
        image_size = vision.get("image_size", 224)
        sides = image_size if isinstance(image_size, list | tuple) else (image_size, image_size)
        shape += [
            vision.get("num_channels", 3),
            *(sizes.get(side, default) for side, default in zip(SIDES, sides, strict=True)),
        ]
    return torch.zeros(shape)


def _result(outputs: Any) -> Any:
    """Return the results that models of the native reader return: logits, hidden states, or a dictionary of embeddings."""
    for names in RESULTS:
        if isinstance(outputs, dict) and all(name in outputs for name in names):
            return outputs[names[0]] if len(names) == 1 else {name: outputs[name] for name in names}
    return outputs
