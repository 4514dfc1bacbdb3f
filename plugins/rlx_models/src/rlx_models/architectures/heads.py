"""Task heads of encoders: the class that a checkpoint names in `architectures` decides what its model returns.

A head is a sequence of layers as data, so that each class of the Transformers library is one row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve, frozen

import rlx_core as rlx
from rlx_core.errors import Fact
from rlx_models.checkpoints.config import Config
from rlx_models.layers.linear import (
    ACTIVATIONS,
    Architecture,
    Parameters,
    layer_shapes,
    linear,
    norm,
    norm_shapes,
)

__all__ = ["ENCODERS", "expect_generative", "with_head"]


@frozen
class First:
    """The features of the first token."""


@frozen
class Pooled:
    """The features of the first token, or their mean over the tokens of the mask, as the key `option` says."""

    option: str


@frozen
class Dense:
    """A linear layer. `size` is a key of the configuration with its outputs, or a number; by default, as many as its inputs."""

    name: str
    size: str | int | None = None
    bias: str | bool = True


@frozen
class Act:
    """An activation: its name, or a key of the configuration that has it, with a default."""

    name: str
    key: str = ""


@frozen
class NormLayer:
    """A layer norm; `bias` is a key of the configuration that says whether it has a bias."""

    name: str
    eps: str = "layer_norm_eps"
    default: float = 1e-12
    bias: str | bool = True


@frozen
class Tied:
    """A product with the table of embeddings, plus a bias: one score for each word."""

    table: str
    bias: str


@frozen
class Columns:
    """The last axis taken apart: as many results as it has elements."""


@frozen
class Squeezed:
    """Without the last axis, which has one element."""


Stage = First | Pooled | Dense | Act | NormLayer | Tied | Columns | Squeezed
WORDS = "embeddings.word_embeddings.weight"
LABELS = "id2label"

TOKENS = (Dense("classifier", LABELS),)
SPANS = (Dense("qa_outputs", 2), Columns())
ROBERTA = {
    "ForSequenceClassification": (
        First(),
        Dense("classifier.dense"),
        Act("tanh"),
        Dense("classifier.out_proj", LABELS),
    ),
    "ForTokenClassification": TOKENS,
    "ForQuestionAnswering": SPANS,
    "ForMaskedLM": (Dense("lm_head.dense"), Act("gelu"), NormLayer("lm_head.layer_norm"), Tied(WORDS, "lm_head.bias")),
}
BERT_WORDS = (
    Dense("cls.predictions.transform.dense"),
    Act("gelu", "hidden_act"),
    NormLayer("cls.predictions.transform.LayerNorm"),
    Tied(WORDS, "cls.predictions.bias"),
)
MODERN = (Dense("head.dense", bias="classifier_bias"), Act("gelu", "classifier_activation"))
MODERN_NORM = NormLayer("head.norm", "norm_eps", 1e-5, bias="norm_bias")

HEADS: Mapping[str, Mapping[str, tuple[Stage, ...]]] = {
    "bert": {
        "ForSequenceClassification": (First(), Dense("pooler.dense"), Act("tanh"), Dense("classifier", LABELS)),
        "ForTokenClassification": TOKENS,
        "ForQuestionAnswering": SPANS,
        "ForMaskedLM": BERT_WORDS,
    },
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "mpnet": ROBERTA,
    "distilbert": {
        "ForSequenceClassification": (First(), Dense("pre_classifier"), Act("relu"), Dense("classifier", LABELS)),
        "ForTokenClassification": TOKENS,
        "ForQuestionAnswering": SPANS,
        "ForMaskedLM": (
            Dense("vocab_transform"),
            Act("gelu", "activation"),
            NormLayer("vocab_layer_norm"),
            Tied(WORDS, "vocab_projector.bias"),
        ),
    },
    "electra": {
        "ForSequenceClassification": (
            First(),
            Dense("classifier.dense"),
            Act("gelu"),
            Dense("classifier.out_proj", LABELS),
        ),
        "ForTokenClassification": TOKENS,
        "ForQuestionAnswering": SPANS,
        "ForPreTraining": (
            Dense("discriminator_predictions.dense"),
            Act("gelu", "hidden_act"),
            Dense("discriminator_predictions.dense_prediction", 1),
            Squeezed(),
        ),
        "ForMaskedLM": (
            Dense("generator_predictions.dense", "embedding_size"),
            Act("gelu"),
            NormLayer("generator_predictions.LayerNorm"),
            Tied(WORDS, "generator_lm_head.bias"),
        ),
    },
    "albert": {
        "ForSequenceClassification": (First(), Dense("pooler"), Act("tanh"), Dense("classifier", LABELS)),
        "ForTokenClassification": TOKENS,
        "ForQuestionAnswering": SPANS,
        "ForMaskedLM": (
            Dense("predictions.dense", "embedding_size"),
            Act("gelu_new", "hidden_act"),
            NormLayer("predictions.LayerNorm"),
            Tied(WORDS, "predictions.bias"),
        ),
    },
    "deberta-v2": {
        "ForSequenceClassification": (
            First(),
            Dense("pooler.dense"),
            Act("gelu", "pooler_hidden_act"),
            Dense("classifier", LABELS),
        ),
        "ForTokenClassification": TOKENS,
        "ForQuestionAnswering": SPANS,
        "ForMaskedLM": BERT_WORDS,
    },
    "modernbert": {
        "ForSequenceClassification": (Pooled("classifier_pooling"), *MODERN, MODERN_NORM, Dense("classifier", LABELS)),
        "ForTokenClassification": (*MODERN, MODERN_NORM, Dense("classifier", LABELS)),
        "ForMaskedLM": (*MODERN, MODERN_NORM, Tied("embeddings.tok_embeddings.weight", "decoder.bias")),
    },
}
"""By `model_type` and the end of the class's name. Source: the classes of these names in Transformers 5.24."""

CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice")

ENCODERS = tuple(HEADS)
"""The `model_type`s whose models have heads."""


def with_head(kind: str, config: Config, encoder: Architecture, features: int) -> Architecture:
    """Return the architecture with the head of the class that the configuration names, or the encoder alone where it names none.

    A class that is not known is added to the configuration's faults.

    Args:
        kind: The `model_type`.
        features: The size of the encoder's results.
    """
    heads, name = HEADS[kind], class_of(config) or "Model"
    head = next((each for each in heads if name.endswith(each)), None)
    if head is None:
        if not name.endswith("Model"):
            known = ", ".join(f"…{each}" for each in heads)
            config.faults.append(
                Fact("architectures", f"{name}; known are {known} and …Model. head=False gives the encoder's features")
            )
        return encoder
    builder = _HeadBuilder(config, encoder.shapes, features)
    layers = [builder.layer(stage) for stage in heads[head]]

    def function(parameters: Parameters, ids: Any, mask: Any) -> Any:
        h = encoder.function(parameters, ids, mask)
        for layer in layers:
            h = layer(parameters, h, mask)
        return h

    parts = {"features": (encoder.function, encoder.inputs)}
    return evolve(encoder, shapes={**encoder.shapes, **builder.shapes}, function=function, parts=parts)


def class_of(config: Config) -> str:
    """Return the name of the class in `architectures`, or nothing."""
    names = config.rows.get("architectures") or []
    return str(names[0]) if isinstance(names, list) and names else ""


def expect_generative(config: Config) -> None:
    """Add a fault if the configuration names a classifier: other models than encoders are read without such heads."""
    name = class_of(config)
    if name.endswith(CLASSIFIERS):
        config.faults.append(Fact("architectures", f"{name}, whose head is not known; head=False leaves it out"))


class _HeadBuilder:
    """Makes the layers of a head one after the other: each knows how many features it is given."""

    def __init__(self, config: Config, encoder: Mapping[str, tuple[int, ...]], features: int) -> None:
        self.config, self.encoder, self.features = config, encoder, features
        self.shapes: dict[str, tuple[int, ...]] = {}

    def layer(self, stage: Stage) -> Callable[[Parameters, Any, Any], Any]:
        """Return `layer(parameters, x, mask)`."""
        match stage:
            case First():
                return lambda parameters, x, mask: x[:, 0]
            case Pooled(option):
                return (
                    _mean if self.config.known(option, "cls", "mean", default="cls") == "mean" else self.layer(First())
                )
            case Dense(name, size, bias):
                outputs = self._size(size)
                self.shapes |= layer_shapes(name, outputs, self.features, has_bias=self._flag(bias))
                self.features = outputs
                return lambda parameters, x, mask: linear(parameters, name, x)
            case Act(name, key):
                known = {"tanh": rlx.tanh, **ACTIVATIONS}
                act = known[self.config.known(key, *known, default=name) if key else name]
                return lambda parameters, x, mask: act(x)
            case NormLayer(name, eps, default, bias):
                shapes = norm_shapes(name, self.features)
                self.shapes |= shapes if self._flag(bias) else {f"{name}.weight": (self.features,)}
                epsilon = self.config.number(eps, default)
                return lambda parameters, x, mask: norm(parameters, name, x, epsilon)
            case Tied(table, bias):
                words, width = self.encoder[table]
                if width != self.features:
                    self.config.faults.append(
                        Fact(table, f"rows of {width}, and the head has {self.features} features")
                    )
                self.config.known("tie_word_embeddings", True, default=True)
                self.shapes[bias] = (words,)
                return lambda parameters, x, mask: x @ rlx.matrix_transpose(parameters[table]) + parameters[bias]
            case Columns():
                return lambda parameters, x, mask: tuple(x[..., n] for n in range(x.shape[-1]))
            case Squeezed():
                return lambda parameters, x, mask: x[..., 0]

    def _size(self, size: str | int | None) -> int:
        if size is None:
            return self.features
        if isinstance(size, int):
            return size
        return self.config.entries(size, 2) if size == LABELS else self.config.size(size, 128)

    def _flag(self, flag: str | bool) -> bool:
        return flag if isinstance(flag, bool) else self.config.flag(flag, False)


def _mean(parameters: Parameters, x: Any, mask: Any) -> Any:
    weights = rlx.astype(rlx.not_equal(mask, 0), x.dtype)[:, :, None]
    return rlx.sum(x * weights, axis=1) / rlx.sum(weights, axis=1)
