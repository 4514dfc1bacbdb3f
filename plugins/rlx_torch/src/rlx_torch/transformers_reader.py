"""Checkpoints by Transformers: its module, with the tensors of the folder, read by `from_torch`. Needs torch and transformers."""

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
from rlx_torch.exported import TorchModel
from rlx_torch.modules import from_torch
from rlx_models.checkpoints.config import Config
from rlx_models.architectures.heads import class_of
from rlx_models.layers.linear import Architecture, Parameters

__all__ = ["read"]


@frozen
class ModuleInput:
    """An input of a module.

    Attributes:
        name: Its name in other readers' models.
        sizes: Names of its symbolic sizes; those of pictures follow.
        is_whole: Whether it holds integers.
    """

    name: str
    sizes: tuple[str, ...]
    is_whole: bool = True


INPUTS: Final = {
    "input_ids": ModuleInput("ids", ("batch", "length")),
    "attention_mask": ModuleInput("mask", ("batch", "length")),
    "decoder_input_ids": ModuleInput("decoder_ids", ("batch", "steps")),
    "pixel_values": ModuleInput("pixels", ("batch",), is_whole=False),
    "input_values": ModuleInput("audio", ("batch", "samples"), is_whole=False),
}
"""By the names in Transformers."""

TEXTS_AND_PICTURES: Final = {
    "input_ids": ModuleInput("ids", ("texts", "length")),
    "pixel_values": ModuleInput("pixels", ("pictures",), is_whole=False),
}

EXAMPLES: Final = {"batch": 2, "length": 7, "steps": 5, "samples": 16000, "texts": 2, "pictures": 3}
"""Sizes that export sees; different ones, so that none are taken to be equal."""

SIDES: Final = ("height", "width")
"""Sizes of pictures, which are never free; those of the configuration unless they are given."""

RESULTS: Final[tuple[dict[str, str], ...]] = (
    {"logits": ""},
    {"logits_per_image": "logits", "text_embeds": "texts", "image_embeds": "pictures"},
    {"last_hidden_state": ""},
)
"""Names of results in Transformers and here; the first row whose names are all there is given, and one without a name alone."""


def read(
    place: Path, kind: str, config: Config, sizes: Mapping[str, int], *, head: bool
) -> tuple[Architecture, Mapping[str, Any]]:
    """Return the architecture and parameters of a checkpoint whose module Transformers makes.

    Args:
        kind: The `model_type`.
        sizes: Fixed sizes by name; others are symbols, but for the sides of pictures.
        head: Whether the module is that of `architectures`, or the one without a head.

    Raises:
        UnsupportedError: Transformers has no such class, or export cannot keep a size symbolic.
        FormatError: Tensors are missing or misshapen.
        ConfigError: A fixed size is none of the model's.
    """
    module, missing = _module(place, config, head=head)
    inputs = _inputs(module)
    names = dict.fromkeys(name for each in inputs.values() for name in each.sizes)
    if "pixel_values" in inputs:
        names |= dict.fromkeys(SIDES)
    unknown = [name for name in sizes if name not in names]
    if unknown:
        hint = f"its sizes are {', '.join(names)}"
        raise ConfigError(f"from_pretrained: {kind} has no size {unknown[0]!r}", hint=hint)
    model = _exported(module, inputs, sizes)
    if model.state:
        states = Fact("buffers", ", ".join(model.state))
        raise UnsupportedError(f"from_pretrained: {type(module).__name__} writes its buffers", states)
    parameters = {name: each for name, each in model.parameters.items() if name not in missing}
    # Tensors that training alone reads may be missing: Transformers made them up, and the program has no use for them.
    used = [name for name in missing if name in _used(model) or name not in model.parameters]
    if used:
        raise _misfits(module, [Fact(name, "is missing") for name in used])
    specs = dict(zip((each.name for each in inputs.values()), model.inputs.values(), strict=True))
    shapes = {name: tuple(each.shape) for name, each in parameters.items()}

    def function(parameters: Parameters, *given: Any) -> Any:
        return _result(model.function(parameters, *given))

    return Architecture(shapes, "", (), specs, function), parameters


def _used(model: TorchModel) -> set[str]:
    """Return the names of the parameters that the program reads."""
    graph = model.trace()
    names = {f"%{PARAMETERS}.{name}": name for name in model.parameters}
    read = [value for value in graph.inputs if graph.uses.get(value) or value in graph.output_set]
    return {names[str(value)] for value in read if str(value) in names}


def _misfits(module: Any, facts: list[Fact]) -> FormatError:
    more = [Fact("more", len(facts) - 12)] if len(facts) > 12 else []
    count = f"{len(facts)} tensors do" if len(facts) > 1 else "a tensor does"
    return FormatError(f"from_pretrained: {count} not fit {type(module).__name__}", *facts[:12], *more)


def _module(place: Path, config: Config, *, head: bool) -> tuple[Any, list[str]]:
    """Return the module in evaluation mode, and the names of tensors that the folder does not have."""
    name = class_of(config) if head else ""
    made: Any = getattr(transformers, name, None) if name else transformers.AutoModel
    # A class is one of the package's own: nothing in the folder is executed.
    is_known = made is transformers.AutoModel or (
        inspect.isclass(made) and issubclass(made, transformers.PreTrainedModel)
    )
    if not is_known:
        hint = "python -m pip install --upgrade transformers"
        version = Fact("transformers", transformers.__version__)
        raise UnsupportedError(f"from_pretrained: transformers has no class {name}", version, hint=hint)
    options = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True, "dtype": "auto"}
    try:
        module, report = made.from_pretrained(place, output_loading_info=True, **options)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise FormatError(f"from_pretrained: transformers refuses it: {error}", Fact("folder", place)) from error
    missing = sorted(map(str, report["missing_keys"]))
    facts = [Fact(str(each), "is misshapen") for each in report["mismatched_keys"]]
    facts += [Fact(str(name), "is not known") for name in sorted(report["unexpected_keys"])] if head else []
    if facts:
        raise _misfits(module, [*(Fact(name, "is missing") for name in missing), *facts])
    return module.eval(), missing


def _inputs(module: Any) -> dict[str, ModuleInput]:
    """Return the inputs that are given, by the names in Transformers."""
    accepted, main = inspect.signature(module.forward).parameters, module.main_input_name
    if main not in INPUTS:
        known = Fact("known", ", ".join(INPUTS))
        raise UnsupportedError(f"from_pretrained: {type(module).__name__} takes {main}", known)
    if main == "input_ids" and "pixel_values" in accepted and not module.can_generate():
        return TEXTS_AND_PICTURES
    if module.config.to_dict().get("is_encoder_decoder"):
        mask = ("attention_mask",) if main == "input_ids" else ()
        names = (main, *mask, "decoder_input_ids")
    elif main == "input_ids" and not module.can_generate():
        names = (main, "attention_mask")
    else:
        names = (main,)
    return {name: INPUTS[name] for name in names}


def _exported(module: Any, inputs: Mapping[str, ModuleInput], sizes: Mapping[str, int]) -> TorchModel:
    """Return the module by `from_torch`, at sizes that are free unless they are given."""
    rows = module.config.to_dict()
    longest = rows.get("text_config", rows).get("max_position_embeddings")
    limits = {"length": longest, "steps": longest}
    free = {
        name: torch.export.Dim(name, max=limits.get(name))
        for each in inputs.values()
        for name in each.sizes
        if name not in sizes
    }
    given: dict[str, Any] = {}
    shapes: dict[str, Any] = {}
    for name, each in inputs.items():
        given[name] = _example(each, {**EXAMPLES, **sizes}, rows.get("vision_config", rows))
        shapes[name] = {axis: free[size] for axis, size in enumerate(each.sizes) if size in free}
    if "use_cache" in inspect.signature(module.forward).parameters:
        given["use_cache"], shapes["use_cache"] = False, None
    called = type(module).__name__
    try:
        with torch.no_grad():
            module(**given)  # the first call may rescale weights (RWKV), which export would take for a state
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        inputs_of = Fact(
            "inputs", ", ".join(f"{name} {list(each.shape)}" for name, each in given.items() if name in inputs)
        )
        raise UnsupportedError(f"from_pretrained: {called} refuses its inputs: {error}", inputs_of) from error
    try:
        return from_torch(module, (), given, dynamic_shapes=shapes, name=called)
    except UnsupportedError as error:
        named = re.search(r"Constraints violated \(([\w, ]+)\)", str(error.__cause__))
        fixed = [name for name in free if named and name in named[1].split(", ")]
        if not fixed:
            raise
        example = ", ".join(f"{name!r}: {EXAMPLES[name]}" for name in fixed)
        raise UnsupportedError(
            f"from_pretrained: {called} is exported at a fixed {' and '.join(fixed)} only",
            hint=f"from_pretrained(folder, reader='transformers', sizes={{{example}}})",
        ) from error


def _example(given: ModuleInput, sizes: Mapping[str, int], vision: Mapping[str, Any]) -> torch.Tensor:
    shape = [sizes[name] for name in given.sizes]
    if given.is_whole:
        return torch.ones(shape, dtype=torch.int64)
    if given.name == "pixels":
        side = vision.get("image_size", 224)
        sides = side if isinstance(side, list | tuple) else (side, side)
        shape += [
            vision.get("num_channels", 3),
            *(sizes.get(name, each) for name, each in zip(SIDES, sides, strict=True)),
        ]
    return torch.zeros(shape)


def _result(found: Any) -> Any:
    """Return what other readers' models return: logits, features, or a dictionary of both sides."""
    for row in RESULTS:
        if isinstance(found, dict) and all(name in found for name in row):
            named = {ours: found[theirs] for theirs, ours in row.items()}
            return named.get("", named)
    return found
