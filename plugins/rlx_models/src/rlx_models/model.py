"""`PretrainedModel`: the model of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from attrs import field, frozen

import rlx_core as rlx
from rlx_core.errors import ConfigError
from rlx_core.runtime.compiled_function import CompiledFunction
from rlx_models.architectures import Architecture

if TYPE_CHECKING:
    from rlx_models.chat import ChatTemplate


@frozen(eq=False, kw_only=True)
class PretrainedModel(rlx.Model):
    """A model of a checkpoint.

    Attributes:
        architecture: The architecture with the sizes of the configuration.
        config: The options of `config.json`.
        generation_config: The options of `generation_config.json`, empty if there is no such file.
        reader: The name of the reader that made the architecture.
        metadata: The metadata of a GGUF file, among them the tokenizer and the template of chats (`tokenizer.chat_template`).
        folder: The checkpoint folder, whose tokenizer `rlx.save("model.gguf", model)` writes, and whose template
            of chats `apply_chat_template` reads.
        programs: Compiled programs of `generate`, with bound parameters, by name and target.
    """

    function: Callable[..., Any] = field(repr=False)
    architecture: Architecture = field(repr=False)
    config: dict[str, Any] = field(repr=False)
    generation_config: dict[str, Any] = field(repr=False)
    reader: str = "rlx"
    metadata: Mapping[str, Any] = field(factory=dict, repr=False)
    folder: Path | None = field(default=None, repr=False)
    programs: dict[tuple[str, str | None], CompiledFunction[..., Any]] = field(factory=dict, init=False, repr=False)

    @property
    def encoder(self) -> rlx.Model:
        """The encoder of an encoder-decoder; see `submodel`.

        Raises:
            ConfigError: The model is not an encoder-decoder.
        """
        if "encoder" not in self.architecture.submodels:
            raise ConfigError(f"{self.name} is not an encoder-decoder", hint="call the model itself")
        return self.submodel("encoder")

    def submodel(self, name: str) -> rlx.Model:
        """Return a submodel, with the same parameters.

        Encoder-decoders have `encoder`, CLIP has `text_encoder` and `image_encoder`, and encoders with a head have `base_model`.

        Raises:
            ConfigError: The model has no such submodel.
        """
        submodels = self.architecture.submodels
        if name not in submodels:
            hint = f"its submodels are {', '.join(submodels)}" if submodels else "it has no submodels"
            raise ConfigError(f"{self.name} has no submodel {name!r}", hint=hint)
        function, inputs = submodels[name]
        return rlx.Model(name=f"{self.name}_{name}", function=function, parameters=self.parameters, inputs=inputs)

    @property
    def chat_template(self) -> ChatTemplate | None:
        """The template of chats of the GGUF file or the checkpoint folder, or `None`."""
        from rlx_models.chat import template_of_folder, template_of_metadata  # here, because few models are for chats

        template = template_of_metadata(self.metadata)
        return template_of_folder(self.folder) if template is None and self.folder is not None else template

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = False, **variables: Any
    ) -> str:
        """Return the text of a chat, by the template of the checkpoint or GGUF file; see `rlx_models.chat.ChatTemplate`.

        Raises:
            ConfigError: The model has no template, or the template refuses the messages.
            PluginError: The package jinja2 is not installed, or too old.
            FormatError: The template cannot be rendered.
        """
        template = self.chat_template
        if template is None:
            raise ConfigError(
                f"chat: {self.name} has no template of chats", hint="pass the text itself to the tokenizer"
            )
        return template.render(messages, add_generation_prompt=add_generation_prompt, **variables)

    def part(self, name: str) -> NoReturn:
        """Raise a `ConfigError`: the method is `submodel`."""
        raise ConfigError(f"{self.name}.part was renamed", hint=f"{self.name}.submodel(...)")

    @property
    def generation(self) -> NoReturn:
        """Raise a `ConfigError`: the attribute is `generation_config`."""
        raise ConfigError(f"{self.name}.generation was renamed", hint=f"{self.name}.generation_config")
