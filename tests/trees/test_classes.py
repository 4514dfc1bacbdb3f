"""Dataclasses and attrs classes that hold arrays."""

from __future__ import annotations

import dataclasses
from typing import Any

import attrs
import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import optim
from rlx_core.errors import ConfigError


@rlx.register_dataclass
@dataclasses.dataclass(frozen=True)
class Line:
    slope: Any
    offset: Any


@rlx.register_dataclass(meta_fields="kind")
@attrs.define
class Layer:
    w: Any = attrs.field(validator=attrs.validators.instance_of(np.ndarray))
    kind: str = "plain"


def value(line: Line, x: Any) -> Any:
    return rlx.sum((line.slope * x + line.offset) ** 2)


def test_gradients_and_optimisers_keep_the_class() -> None:
    line, x = Line(np.float32(2), np.float32(1)), np.float32([1, 2])
    gradient = rlx.grad(value)(line, x)
    assert gradient == Line(2 * (3 * 1 + 5 * 2), 2 * (3 + 5))
    optimiser = optim.sgd(0.1)
    stepped, *_ = rlx.train_step(value, optimiser, donate=False)(line, optimiser.init(line), x)
    assert isinstance(stepped, Line)
    np.testing.assert_allclose(stepped.slope, 2 - 0.1 * gradient.slope, rtol=1e-6)


def test_other_meta_fields_are_another_program() -> None:
    applied = rlx.jit(lambda layer: layer.w * (2 if layer.kind == "plain" else 3))
    w = np.float32([1, 2])
    assert applied(Layer(w)).tolist() == [2, 4]
    assert applied(Layer(w, "other")).tolist() == [3, 6]
    assert len(applied.executables) == 2


def test_what_cannot_be_registered_says_why() -> None:
    with pytest.raises(ConfigError, match="Line is a pytree already"):
        rlx.register_dataclass(Line)
    with pytest.raises(ConfigError, match="int is no dataclass"):
        rlx.register_dataclass(int)
    with pytest.raises(ConfigError, match="Line has no field 'slop'") as caught:
        rlx.register_dataclass(Line, meta_fields=["slop"])
    assert "slope" in str(caught.value)
