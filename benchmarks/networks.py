"""Convolutional networks, defined once for every system that is timed: each gives its layers, and the parameters go by name.

ResNet-18 (He 2016, table 1, option B), MobileNet v2 (Sandler 2018, table 2) and a small residual network for 32×32 images. No
layer has a bias but the last; a batch norm follows each convolution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np


class Layers(Protocol):
    """The layers of a system on its own tensors `[n, c, h, w]`, whose parameters it finds by name."""

    def conv(self, x: Any, name: str, *, channels: int, kernel: int, stride: int = 1, groups: int = 1) -> Any:
        """A convolution with `kernel // 2` cells of padding, and its batch norm."""

    def relu(self, x: Any, limit: float | None = None) -> Any:
        """`x` between 0 and `limit`."""

    def max_pool(self, x: Any) -> Any:
        """Windows of 3×3 at steps of 2 with one cell of padding."""

    def add(self, x: Any, y: Any) -> Any:
        """The sum."""

    def mean(self, x: Any) -> Any:
        """The mean of each channel: `[n, c]`."""

    def linear(self, x: Any, name: str, *, features: int) -> Any:
        """`x` times weights `[c, features]`, and a bias."""


Network = Callable[[Layers, Any], Any]
"""From images to logits."""


def resnet18(layers: Layers, x: Any) -> Any:
    x = layers.max_pool(layers.relu(layers.conv(x, "stem", channels=64, kernel=7, stride=2)))
    for stage, channels in enumerate((64, 128, 256, 512)):
        x = residual(layers, x, f"{stage}a", channels, stride=1 if stage == 0 else 2)
        x = residual(layers, x, f"{stage}b", channels)
    return layers.linear(layers.mean(x), "out", features=1000)


def residual(layers: Layers, x: Any, name: str, channels: int, *, stride: int = 1) -> Any:
    """Two 3×3 convolutions plus the identity, or a 1×1 convolution where the size changes."""
    y = layers.relu(layers.conv(x, f"{name}1", channels=channels, kernel=3, stride=stride))
    y = layers.conv(y, f"{name}2", channels=channels, kernel=3)
    return layers.relu(
        layers.add(y, x if stride == 1 else layers.conv(x, f"{name}0", channels=channels, kernel=1, stride=stride))
    )


def mobilenet(layers: Layers, x: Any) -> Any:
    x, before = layers.relu(layers.conv(x, "stem", channels=32, kernel=3, stride=2), 6.0), 32
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for row, (factor, channels, count, first) in enumerate(rows):
        for i in range(count):
            name, stride, wide = f"{row}.{i}.", first if i == 0 else 1, before * factor
            y = x if factor == 1 else layers.relu(layers.conv(x, f"{name}wide", channels=wide, kernel=1), 6.0)
            y = layers.relu(layers.conv(y, f"{name}each", channels=wide, kernel=3, stride=stride, groups=wide), 6.0)
            y = layers.conv(y, f"{name}back", channels=channels, kernel=1)
            x = layers.add(y, x) if stride == 1 and before == channels else y
            before = channels
    x = layers.relu(layers.conv(x, "last", channels=1280, kernel=1), 6.0)
    return layers.linear(layers.mean(x), "out", features=1000)


def small_resnet(layers: Layers, x: Any) -> Any:
    x = layers.relu(layers.conv(x, "stem", channels=32, kernel=3))
    for stage, channels in enumerate((32, 64, 128)):
        x = residual(layers, x, f"{stage}a", channels, stride=1 if stage == 0 else 2)
    return layers.linear(layers.mean(x), "out", features=10)


NETWORKS: dict[str, Network] = {"resnet18": resnet18, "mobilenet": mobilenet, "small-resnet": small_resnet}


class Shapes:
    """Layers of shapes instead of tensors, which say which parameters there are."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[int, ...]] = {}

    def conv(
        self, x: tuple[int, ...], name: str, *, channels: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> Any:
        n, before, *sizes = x
        self.found[f"{name}.w"] = (channels, before // groups, kernel, kernel)
        self.found |= {f"{name}.{part}": (channels,) for part in ("gamma", "beta", "mean", "var")}
        return n, channels, *(-(-size // stride) for size in sizes)

    def relu(self, x: tuple[int, ...], limit: float | None = None) -> tuple[int, ...]:
        return x

    def max_pool(self, x: tuple[int, ...]) -> tuple[int, ...]:
        return *x[:2], *(-(-size // 2) for size in x[2:])

    def add(self, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
        assert x == y, "a residual has the type of what it is added to"
        return x

    def mean(self, x: tuple[int, ...]) -> tuple[int, ...]:
        return x[:2]

    def linear(self, x: tuple[int, ...], name: str, *, features: int) -> tuple[int, ...]:
        self.found |= {f"{name}.w": (x[1], features), f"{name}.b": (features,)}
        return x[0], features


def parameters(network: Network, x: tuple[int, ...], seed: int = 0) -> dict[str, np.ndarray]:
    """Weights that keep the variance of activations (He 2015), and statistics as training leaves them, all f32."""
    shapes = Shapes()
    network(shapes, x)
    return dict(drawn(shapes.found, np.random.default_rng(seed)))


def drawn(shapes: dict[str, tuple[int, ...]], rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    for name, shape in shapes.items():
        part = name.rpartition(".")[2]
        if part == "w":
            terms = math.prod(shape[1:]) if len(shape) == 4 else shape[0]
            value = rng.standard_normal(shape) * math.sqrt(2 / terms)
        elif part in ("gamma", "var"):
            value = rng.uniform(*((0.3, 0.7) if part == "gamma" else (0.5, 1.5)), shape)
        else:
            value = rng.standard_normal(shape) * 0.1
        yield name, value.astype(np.float32)
