"""`from_pretrained`: the architecture that a configuration names, with the tensors of the checkpoint beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from attrs import field, frozen

import rlx_core as rlx
from rlx_core.errors import (
    ConfigError,
    Fact,
    FormatError,
    PluginError,
    UnsupportedError,
    nearest,
    unsupported,
)
from rlx_core.pipeline.set_up import working_on
from rlx_core.runtime.compiled_function import CompiledFunction
from rlx_models.architectures.bart import bart, marian
from rlx_models.architectures.bert import albert, bert, distilbert, electra, mpnet, roberta
from rlx_models.architectures.clip import clip
from rlx_models.architectures.deberta import deberta
from rlx_models.architectures.decoders.mamba import mamba
from rlx_models.architectures.decoders.rwkv import rwkv
from rlx_models.architectures.decoders.table import DECODERS
from rlx_models.checkpoints.config import Config, checked, read_config, read_generation, read_tensors
from rlx_models.architectures.heads import ENCODERS, expect_generative, with_head
from rlx_models.architectures.modernbert import modernbert
from rlx_models.layers.linear import Architecture
from rlx_models.architectures.t5 import t5
from rlx_models.architectures.vit import vit
from rlx_models.architectures.whisper import whisper

__all__ = ["ARCHITECTURES", "PretrainedModel", "from_pretrained"]

ARCHITECTURES: dict[str, Callable[[Config], Architecture]] = {
    "albert": albert,
    "bart": bart,
    "bert": bert,
    "clip": clip,
    "deberta-v2": deberta,
    "distilbert": distilbert,
    "electra": electra,
    "mamba": mamba,
    "marian": marian,
    "modernbert": modernbert,
    "mpnet": mpnet,
    "mt5": t5,
    "roberta": roberta,
    "rwkv": rwkv,
    "t5": t5,
    "vit": vit,
    "whisper": whisper,
    "xlm-roberta": roberta,
    **DECODERS,
}
"""By `model_type`."""

READERS: Final = ("rlx", "transformers")


@frozen(eq=False, kw_only=True)
class PretrainedModel(rlx.Model):
    """A model of a checkpoint.

    Attributes:
        architecture: What its configuration made.
        config: The configuration as it is written.
        generation: What `generation_config.json` says, or nothing.
        reader: What made the architecture.
        programs: What `generate` compiled, its parameters bound, by name and target.
    """

    architecture: Architecture = field(repr=False)
    config: dict[str, Any] = field(repr=False)
    generation: dict[str, Any] = field(repr=False)
    reader: Literal["rlx", "transformers"] = "rlx"
    programs: dict[tuple[str, str | None], CompiledFunction[..., Any]] = field(factory=dict, init=False, repr=False)

    @property
    def encoder(self) -> rlx.Model:
        """What an encoder-decoder reads with; see `part`.

        Raises:
            ConfigError: It is none.
        """
        if "encoder" not in self.architecture.parts:
            raise ConfigError(f"{self.name} is no encoder and decoder", hint="call the model itself")
        return self.part("encoder")

    def part(self, name: str) -> rlx.Model:
        """A part as a model of its own with the same parameters: the `encoder` of T5, `texts` or `pictures` of CLIP.

        Raises:
            ConfigError: There is no such part.
        """
        parts = self.architecture.parts
        if name not in parts:
            hint = f"its parts are {', '.join(parts)}" if parts else "it has no parts"
            raise ConfigError(f"{self.name} has no part {name!r}", hint=hint)
        function, inputs = parts[name]
        return rlx.Model(name=f"{self.name}_{name}", function=function, parameters=self.parameters, inputs=inputs)


def from_pretrained(
    folder: str | os.PathLike[str],
    /,
    *,
    head: bool = True,
    reader: Literal["rlx", "transformers"] = "rlx",
    sizes: Mapping[str, int] | None = None,
) -> PretrainedModel:
    """The model of a checkpoint in the layout of Hugging Face: `config.json` beside `model.safetensors`, in one file or several.

    Encoders (BERT and its kin, DeBERTa, ModernBERT) take ids and a mask i64[batch, length] and give f32[batch, length, features],
    or what the head of the class in `architectures` computes: logits f32[batch, labels] of sequences, f32[batch, length, labels]
    of tokens, f32[batch, length, words] of masked words, or a pair f32[batch, length] of starts and ends of answers;
    decoders (GPT-2, Llama and its kin, mixtures of experts, DeepSeek-V3) take ids and give logits f32[batch, length, words].
    T5 and BART take ids and a mask of what they read and decoder_ids i64[batch, steps] of what they write; Whisper takes features
    f32[batch, mels, frames] and ids; ViT takes pixels f32[batch, channels, height, width] and gives features, or a classifier's
    logits; CLIP takes ids and pixels. Batch and lengths of texts are free. The weights stay in the mapped files, under their
    names there, in the dtype that they have; `generate` writes texts.

    With `reader="transformers"` the module of Transformers is read by `from_torch`: for architectures that rlx does not have
    itself. Such a model computes whole texts and has no cache, so `generate` refuses it. Inputs have the same names, and `audio`
    is f32[batch, samples].

    Args:
        folder: The folder. Nothing outside of it is read, and nothing in it is executed.
        head: Whether an encoder's head is computed; without it, the model returns the encoder's features. A classifier on a
            decoder is refused; without it, the decoder's logits of words are there.
        reader: `rlx` for its own architectures, or `transformers`, which needs torch and transformers.
        sizes: With Transformers, fixed sizes by name (`batch`, `length`, `steps`, `samples`, `texts`, `pictures`), for modules
            whose code depends on a size, such as loops over time; others are free. `height` and `width` of pictures are those
            of the configuration unless they are given.

    Raises:
        FileError: A file is missing.
        PluginError: The reader's packages are not installed.
        ConfigError: There is no such reader or size.
        BudgetError: The files have more bytes than `budget.read` allows.
        UnsupportedError: The architecture, or what the configuration says of it, is not known; all of it is named.
        FormatError: Tensors are missing, misshapen or unknown; all of them are named.
    """
    if reader not in READERS:
        raise ConfigError(f"from_pretrained: there is no reader {reader!r}", hint=f"readers are {', '.join(READERS)}")
    if sizes and reader == "rlx":
        raise ConfigError("from_pretrained: sizes are for reader='transformers'", hint="all sizes of texts are free")
    place = Path(folder)
    with working_on(f"from_pretrained: {place.name}"):
        config = read_config(place)
        if reader == "transformers":
            return _by_transformers(place, str(config.rows.get("model_type")), config, sizes or {}, head=head)
        return _by_rlx(place, config, head=head)


def _by_rlx(place: Path, config: Config, *, head: bool) -> PretrainedModel:
    kind = config.rows.get("model_type")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        error = unsupported("from_pretrained", {f"model_type {kind!r}": ["config.json"]})
        known = nearest(str(kind), ARCHITECTURES) or f"known are {', '.join(ARCHITECTURES)}"
        error.hint = f"{known}; from_pretrained(folder, reader='transformers') reads others with torch and transformers"
        raise error.with_fact(Fact("folder", place))
    made = _architecture(kind, config)
    if head and kind in ENCODERS:
        made = with_head(kind, config, made, config.size("dim" if kind == "distilbert" else "hidden_size"))
    elif head:
        expect_generative(config)
    config.known("quantization_config", None)
    if config.faults:
        raise UnsupportedError(
            f"from_pretrained: {kind} with what is not known here", *config.faults, Fact("folder", place)
        )
    tensors = checked(kind, read_tensors(place), made.shapes, made.prefix, made.unused, made.optional)
    return PretrainedModel(
        name=kind,
        function=made.function,
        parameters=tensors,
        inputs=made.inputs,
        architecture=made,
        config=dict(config.rows),
        generation=read_generation(place),
    )


def _by_transformers(
    place: Path, kind: str, config: Config, sizes: Mapping[str, int], *, head: bool
) -> PretrainedModel:
    try:
        from rlx_torch.transformers_reader import read
    except ModuleNotFoundError as problem:
        if problem.name not in ("torch", "transformers"):
            raise
        raise PluginError(
            f"from_pretrained: reader='transformers' needs {problem.name}, which is not installed",
            hint="python -m pip install 'rlx-torch[models]'",
        ) from problem
    architecture, parameters = read(place, kind, config, sizes, head=head)
    return PretrainedModel(
        name=kind,
        function=architecture.function,
        parameters=parameters,
        inputs=architecture.inputs,
        architecture=architecture,
        config=dict(config.rows),
        generation=read_generation(place),
        reader="transformers",
    )


def _architecture(kind: str, config: Config) -> Architecture:
    """What a configuration makes.

    Raises:
        UnsupportedError, FormatError: Its values do not fit each other, or are of other kinds than they must be.
    """
    try:
        return ARCHITECTURES[kind](config)
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, MemoryError) as error:
        if config.faults:
            raise UnsupportedError(f"from_pretrained: {kind} with what is not known here", *config.faults) from error
        raise FormatError(f"from_pretrained: config.json does not describe a {kind} ({error!r:.100})") from error
