"""Task heads of encoders: the class in `architectures` of a configuration decides which head the model has.

A head is a sequence of stages as data, so that each class of the Transformers library is one row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import evolve, frozen

import rlx_core as rlx
from rlx_core.errors import Fact
from rlx_models.architectures.architecture import Architecture
from rlx_models.checkpoints import Config
from rlx_models.layers.linear import (
    ACTIVATIONS,
    Parameters,
    layer_norm,
    layer_norm_shapes,
    linear,
    linear_shapes,
)


@frozen
class FirstToken:
    """The features of the first token."""


@frozen
class Pooled:
    """The features of the first token, or the mean over unmasked tokens, by the option `option` (`cls` or `mean`)."""

    option: str


@frozen
class Dense:
    """A linear layer. `size` is the option with the number of outputs, or a number; by default that of its inputs."""

    name: str
    size: str | int | None = None
    bias: str | bool = True


@frozen
class Activation:
    """An activation: its name, or an option with the name as its default."""

    name: str
    option: str = ""


@frozen
class Norm:
    """A layer norm; `bias` is an option that enables the bias, or a constant."""

    name: str
    eps: str = "layer_norm_eps"
    default: float = 1e-12
    bias: str | bool = True


@frozen
class TiedLogits:
    """The product with the word embedding plus a bias: one logit for each word."""

    table: str
    bias: str


@frozen
class Unstack:
    """The slices of the last axis as separate results."""


@frozen
class Squeeze:
    """The result without the last axis, which has one element."""


Stage = FirstToken | Pooled | Dense | Activation | Norm | TiedLogits | Unstack | Squeeze
WORDS: Final = "embeddings.word_embeddings.weight"
LABELS: Final = "id2label"
GELU: Final = Activation("gelu")

TOKENS: Final = (Dense("classifier", LABELS),)
SPANS: Final = (Dense("qa_outputs", 2), Unstack())


def classifier(dense: str, activation: Activation, output: str = "classifier") -> tuple[Stage, ...]:
    """Return a classifier of the first token with a hidden layer."""
    return FirstToken(), Dense(dense), activation, Dense(output, LABELS)


def words(dense: Dense, norm: str, bias: str, activation: Activation = GELU) -> tuple[Stage, ...]:
    """Return the logits of words of each token by the word embedding."""
    return dense, activation, Norm(norm), TiedLogits(WORDS, bias)


def heads(
    sequence: tuple[Stage, ...], masked_words: tuple[Stage, ...], **others: tuple[Stage, ...]
) -> dict[str, tuple[Stage, ...]]:
    """Return the heads of an encoder by the suffixes of their classes; classifiers of tokens and spans are alike in all."""
    alike = {"ForTokenClassification": TOKENS, "ForQuestionAnswering": SPANS}
    return {"ForSequenceClassification": sequence, **alike, **others, "ForMaskedLM": masked_words}


ROBERTA: Final = heads(
    classifier("classifier.dense", Activation("tanh"), "classifier.out_proj"),
    words(Dense("lm_head.dense"), "lm_head.layer_norm", "lm_head.bias"),
)
BERT_WORDS: Final = words(
    Dense("cls.predictions.transform.dense"),
    "cls.predictions.transform.LayerNorm",
    "cls.predictions.bias",
    Activation("gelu", "hidden_act"),
)
MODERN: Final = (Dense("head.dense", bias="classifier_bias"), Activation("gelu", "classifier_activation"))
MODERN_NORM: Final = Norm("head.norm", "norm_eps", 1e-5, bias="norm_bias")

HEADS: Final[Mapping[str, Mapping[str, tuple[Stage, ...]]]] = {
    "bert": heads(classifier("pooler.dense", Activation("tanh")), BERT_WORDS),
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "mpnet": ROBERTA,
    "distilbert": heads(
        classifier("pre_classifier", Activation("relu")),
        words(Dense("vocab_transform"), "vocab_layer_norm", "vocab_projector.bias", Activation("gelu", "activation")),
    ),
    "electra": heads(
        classifier("classifier.dense", GELU, "classifier.out_proj"),
        words(
            Dense("generator_predictions.dense", "embedding_size"),
            "generator_predictions.LayerNorm",
            "generator_lm_head.bias",
        ),
        ForPreTraining=(
            Dense("discriminator_predictions.dense"),
            Activation("gelu", "hidden_act"),
            Dense("discriminator_predictions.dense_prediction", 1),
            Squeeze(),
        ),
    ),
    "albert": heads(
        classifier("pooler", Activation("tanh")),
        words(
            Dense("predictions.dense", "embedding_size"),
            "predictions.LayerNorm",
            "predictions.bias",
            Activation("gelu_new", "hidden_act"),
        ),
    ),
    "deberta-v2": heads(classifier("pooler.dense", Activation("gelu", "pooler_hidden_act")), BERT_WORDS),
    "modernbert": {
        "ForSequenceClassification": (Pooled("classifier_pooling"), *MODERN, MODERN_NORM, *TOKENS),
        "ForTokenClassification": (*MODERN, MODERN_NORM, *TOKENS),
        "ForMaskedLM": (*MODERN, MODERN_NORM, TiedLogits("embeddings.tok_embeddings.weight", "decoder.bias")),
    },
}
"""Stages by `model_type` and suffix of the class. Source: the classes of these names in Transformers 5.24."""

CLASSIFIERS: Final = (
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
)

ENCODERS: Final = tuple(HEADS)
"""The `model_type`s whose models have heads."""


def with_head(model_type: str, config: Config, encoder: Architecture) -> Architecture:
    """Return the architecture with the head of the configured class, or the encoder if the class has no head.

    An unsupported class is added to the configuration's faults. The encoder is the submodel `base_model`.
    """
    heads, name = HEADS[model_type], architecture_class(config) or "Model"
    suffix = next((suffix for suffix in heads if name.endswith(suffix)), None)
    if suffix is None:
        if not name.endswith("Model"):
            supported = ", ".join(f"…{each}" for each in heads)
            config.faults.append(
                Fact("architectures", f"{name}; supported are {supported} and …Model. head=False returns features")
            )
        return encoder
    builder = HeadBuilder(config, encoder.shapes, config.size("dim" if model_type == "distilbert" else "hidden_size"))
    stages = [builder.stage(stage) for stage in heads[suffix]]

    def function(parameters: Parameters, input_ids: Any, attention_mask: Any) -> Any:
        h = encoder.function(parameters, input_ids, attention_mask)
        for stage in stages:
            h = stage(parameters, h, attention_mask)
        return h

    submodels = {"base_model": (encoder.function, encoder.inputs)}
    shapes = {**encoder.shapes, **builder.shapes}
    return evolve(encoder, shapes=shapes, function=function, submodels=submodels)


def architecture_class(config: Config) -> str:
    """Return the first name in `architectures`, or an empty string."""
    names = config.values.get("architectures") or []
    return str(names[0]) if isinstance(names, list) and names else ""


def reject_classifier(config: Config) -> None:
    """Add a fault if the configured class is a classifier, for models whose classifiers are not supported."""
    name = architecture_class(config)
    if name.endswith(CLASSIFIERS):
        config.faults.append(Fact("architectures", f"{name}, whose head is not supported; head=False omits it"))


StageFunction = Callable[[Parameters, Any, Any], Any]
"""From parameters, features and the attention mask to features."""


class HeadBuilder:
    """Builds the stages of a head in order; each takes the number of features that the stage before it returns.

    Attributes:
        shapes: The tensors of the stages.
    """

    def __init__(self, config: Config, encoder_shapes: Mapping[str, tuple[int, ...]], features: int) -> None:
        self._config, self._encoder_shapes, self._features = config, encoder_shapes, features
        self.shapes: dict[str, tuple[int, ...]] = {}

    def stage(self, stage: Stage) -> StageFunction:
        """Return the function of a stage, and add its tensors."""
        match stage:
            case FirstToken():
                return lambda parameters, x, mask: x[:, 0]
            case Pooled(option):
                is_mean = self._config.choice(option, "cls", "mean", default="cls") == "mean"
                return mean_pooled if is_mean else self.stage(FirstToken())
            case Dense(name, size, bias):
                outputs = self._size(size)
                self.shapes |= linear_shapes(name, outputs, self._features, has_bias=self._flag(bias))
                self._features = outputs
                return lambda parameters, x, mask: linear(parameters, name, x)
            case Activation(name, option):
                activations = {"tanh": rlx.tanh, **ACTIVATIONS}
                act = activations[self._config.choice(option, *activations, default=name) if option else name]
                return lambda parameters, x, mask: act(x)
            case Norm(name, eps, default, bias):
                shapes = layer_norm_shapes(name, self._features)
                self.shapes |= shapes if self._flag(bias) else {f"{name}.weight": (self._features,)}
                epsilon = self._config.number(eps, default)
                return lambda parameters, x, mask: layer_norm(parameters, name, x, epsilon)
            case TiedLogits(table, bias):
                words, width = self._encoder_shapes[table]
                if width != self._features:
                    text = f"rows of {width}, and the head has {self._features} features"
                    self._config.faults.append(Fact(table, text))
                self._config.choice("tie_word_embeddings", True, default=True)
                self.shapes[bias] = (words,)
                return lambda parameters, x, mask: x @ rlx.matrix_transpose(parameters[table]) + parameters[bias]
            case Unstack():
                return lambda parameters, x, mask: tuple(x[..., n] for n in range(x.shape[-1]))
            case Squeeze():
                return lambda parameters, x, mask: x[..., 0]

    def _size(self, size: str | int | None) -> int:
        if size is None:
            return self._features
        if isinstance(size, int):
            return size
        return self._config.entries(size, 2) if size == LABELS else self._config.size(size, 128)

    def _flag(self, flag: str | bool) -> bool:
        return flag if isinstance(flag, bool) else self._config.flag(flag, False)


def mean_pooled(parameters: Parameters, x: Any, mask: Any) -> Any:
    """Return the mean over unmasked tokens, f32[batch, features]."""
    weights = rlx.astype(rlx.not_equal(mask, 0), x.dtype)[:, :, None]
    return rlx.sum(x * weights, axis=1) / rlx.sum(weights, axis=1)
