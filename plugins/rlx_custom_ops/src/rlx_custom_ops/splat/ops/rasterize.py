"""Splats to a picture, and the cotangents of the splats: one op each, with its meaning in rlx's ops and computed by tiles."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from attrs import Attribute

from rlx_core import f32, f64
from rlx_core.errors import ConfigError, DtypeError, ShapeError
from rlx_core.ops import (
    ZERO,
    Dim,
    Op,
    Rejected,
    Sample,
    TensorType,
    Value,
    Zero,
    define_op,
    expect_dtype,
    expect_rank,
    expect_shape,
    field,
)
from rlx_custom_ops.ops.matrices import free_leading_axes
from rlx_custom_ops.splat.ops import dense

__rlx_library__ = True

Arrays = tuple[np.ndarray, ...]


def at_least_one(op: Op, attribute: Attribute[Any], value: int) -> None:
    """A validator for sizes."""
    if value < 1:
        raise ConfigError(f"{op.name}: {attribute.name} must be at least 1, not {value}")


def fraction(op: Op, attribute: Attribute[Any], value: float) -> None:
    """A validator for parts of one."""
    if not 0 <= value < 1:
        raise ConfigError(f"{op.name}: {attribute.name} must be at least 0 and below 1, not {value}")


def expect_splats(
    centres: TensorType, conics: TensorType, radii: TensorType, opacities: TensorType, colors: TensorType
) -> None:
    """Require splats that belong together.

    Raises:
        ShapeError, DtypeError: They do not.
    """
    expect_rank("centres", centres, 2)
    expect_dtype("centres", centres, (f32, f64))
    count = centres.shape[:-1]
    parts = {"centres": (centres, 2), "conics": (conics, 3), "colors": (colors, 3)}
    for name, (part, width) in parts.items():
        expect_shape(name, part, (*count, width))
    for name, part in {"radii": radii, "opacities": opacities}.items():
        expect_shape(name, part, count)
    for name, part in {"conics": conics, "radii": radii, "opacities": opacities, "colors": colors}.items():
        expect_dtype(name, part, (centres.dtype,))


def tiles() -> Any:
    return importlib.import_module("rlx_custom_ops.splat.tiles")  # which knows the ops' meaning


@define_op(domain="splat")
class Rasterize(Op):
    """The picture of splats that are given from the nearest to the farthest, composited over nothing.

    In the pixel whose centre is d away from the centre of splat i, it covers a_i = min(0.99, opacity exp(-½ dᵀ conic d)) of
    everything behind it; it is omitted where that is below `alpha_cutoff`, where |d| is above its radius, and where less than
    `transmittance_threshold` comes through the splats before it. With T_i = Π_{j < i} (1 - a_j) the picture is
    Σ T_i a_i color_i, and covered by Σ T_i a_i. Derivatives treat the omitted splats as constant; radii have none.

    Shapes:
        centres: [..., n, 2]    conics: [..., n, 3]    radii, opacities: [..., n]    colors: [..., n, 3]
        ->    picture: [..., height, width, 4]

    Attributes:
        width, height: Pixels; the centre of the first one is (½, ½).
        alpha_cutoff: Splats with a lower coverage are omitted.
        transmittance_threshold: Transmittance below which further splats are omitted.

    Source:
        Kerbl et al. 2023, "3D Gaussian splatting for real-time radiance field rendering", arXiv:2308.04079, section 6 and
        appendix C.
    """

    width: int = field(validator=at_least_one)
    height: int = field(validator=at_least_one)
    alpha_cutoff: float = field(default=1 / 255, validator=fraction)
    transmittance_threshold: float = field(default=1e-4, validator=fraction)

    def infer(
        self, centres: TensorType, conics: TensorType, radii: TensorType, opacities: TensorType, colors: TensorType
    ) -> TensorType:
        expect_splats(centres, conics, radii, opacities, colors)
        return centres.with_shape((*centres.shape[:-2], self.height, self.width, 4))

    def decompose(self, centres: Value, conics: Value, radii: Value, opacities: Value, colors: Value) -> Value:
        picture: Value = dense.forward(self, centres, conics, radii, opacities, colors)
        return picture

    def reference(self, *splats: np.ndarray) -> np.ndarray:
        picture = np.empty((*splats[0].shape[:-2], self.height, self.width, 4), splats[0].dtype)
        self.write(picture, *splats)
        return picture

    def write(self, picture: np.ndarray, *splats: np.ndarray) -> None:
        """Write the pictures of all sets of splats."""
        for index in np.ndindex(splats[0].shape[:-2]):
            tiles().forward(self, picture[index], *(part[index] for part in splats))

    def vjp(
        self, g: Value, centres: Value, conics: Value, radii: Value, opacities: Value, colors: Value, *, y: Value
    ) -> tuple[Value | Zero, ...]:
        cotangents: Any = RasterizeBackward(**self.attributes())(g, centres, conics, radii, opacities, colors)
        d_centres, d_conics, d_opacities, d_colors = cotangents
        return d_centres, d_conics, ZERO, d_opacities, d_colors

    batch = free_leading_axes

    def cost(self, centres: TensorType, *others: TensorType) -> Dim:
        return 30 * self.width * self.height * centres.size

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for dtype in ("f32", "f64"):
            yield splats_of(dtype, (), 5, width=6, height=5, **SMOOTH)
        yield splats_of("f64", (2,), 3, width=3, height=4, **SMOOTH)
        yield splats_of("f64", (), 7, width=19, height=18, is_smooth=False)
        yield splats_of("f64", (), 6, width=4, height=3, is_smooth=False, alpha_cutoff=0.1, transmittance_threshold=0.5)
        yield splats_of("f64", (), 0, width=2, height=3)
        good = ("f32[4, 2]", "f32[4, 3]", "f32[4]", "f32[4]", "f32[4, 3]")
        yield Rejected("f32[4, 3]", *good[1:], width=2, height=2, error=ShapeError, says="centres must be [4, 2]")
        yield Rejected(*good[:2], "f32[3]", *good[3:], width=2, height=2, error=ShapeError, says="radii must be [4]")
        yield Rejected(
            "i32[4, 2]", *good[1:], width=2, height=2, error=DtypeError, says="centres must be one of f32 f64"
        )
        yield Rejected(*good, width=0, height=2, error=ConfigError, says="width must be at least 1, not 0")
        yield Rejected(
            *good, width=2, height=2, alpha_cutoff=1.5, error=ConfigError, says="alpha_cutoff must be at least 0"
        )


@define_op(domain="splat")
class RasterizeBackward(Op):
    """The cotangents of splats, given the cotangent of their picture; the attributes are those of `Rasterize`.

    Shapes:
        g: [..., height, width, 4]    centres: [..., n, 2]    conics: [..., n, 3]    radii, opacities: [..., n]
        colors: [..., n, 3]    ->    those of centres, conics, opacities, colors
    """

    width: int = field(validator=at_least_one)
    height: int = field(validator=at_least_one)
    alpha_cutoff: float = field(default=1 / 255, validator=fraction)
    transmittance_threshold: float = field(default=1e-4, validator=fraction)

    def infer(
        self,
        g: TensorType,
        centres: TensorType,
        conics: TensorType,
        radii: TensorType,
        opacities: TensorType,
        colors: TensorType,
    ) -> tuple[TensorType, ...]:
        expect_splats(centres, conics, radii, opacities, colors)
        expect_shape("g", g, (*centres.shape[:-2], self.height, self.width, 4))
        expect_dtype("g", g, (centres.dtype,))
        return centres, conics, opacities, colors

    def decompose(
        self, g: Value, centres: Value, conics: Value, radii: Value, opacities: Value, colors: Value
    ) -> tuple[Value, ...]:
        return dense.backward(self, g, centres, conics, radii, opacities, colors)

    def reference(self, g: np.ndarray, *splats: np.ndarray) -> Arrays:
        centres, conics, _, opacities, colors = splats
        cotangents = tuple(np.empty_like(part) for part in (centres, conics, opacities, colors))
        self.write(cotangents, g, *splats)
        return cotangents

    def write(self, cotangents: Arrays, g: np.ndarray, *splats: np.ndarray) -> None:
        """Write the cotangents of all sets of splats."""
        for index in np.ndindex(splats[0].shape[:-2]):
            out = tuple(part[index] for part in cotangents)
            tiles().backward(self, out, g[index], *(part[index] for part in splats))

    batch = free_leading_axes

    def cost(self, g: TensorType, centres: TensorType, *others: TensorType) -> Dim:
        return 60 * self.width * self.height * centres.size

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for dtype in ("f32", "f64"):
            yield splats_of(dtype, (), 3, has_cotangent=True, width=4, height=3, **SMOOTH)
        yield splats_of("f64", (2,), 3, has_cotangent=True, width=3, height=2, **SMOOTH)
        yield splats_of("f64", (), 7, has_cotangent=True, width=19, height=18, is_smooth=False)
        yield splats_of("f64", (), 0, has_cotangent=True, width=2, height=3)
        good = ("f32[4, 2]", "f32[4, 3]", "f32[4]", "f32[4]", "f32[4, 3]")
        yield Rejected("f32[2, 3, 4]", *good, width=2, height=3, error=ShapeError, says="g must be [3, 2, 4]")


SMOOTH: dict[str, Any] = {"alpha_cutoff": 0.0, "transmittance_threshold": 0.0}
"""Settings with which a picture has derivatives everywhere: nothing is left out."""


def splats_of(
    dtype: str,
    leading: tuple[int, ...],
    count: int,
    *,
    width: int,
    height: int,
    has_cotangent: bool = False,
    **settings: Any,
) -> Sample:
    """A sample of splats in and around a picture."""
    front = "".join(f"{size}, " for size in leading)
    types = [f"{dtype}[{front}{count}{trailing}]" for trailing in (", 2", ", 3", "", "", ", 3")]
    if has_cotangent:
        types.insert(0, f"{dtype}[{front}{height}, {width}, 4]")
    reach = 1e3 if settings.get("alpha_cutoff") == 0.0 else 4.0
    make = maker(leading, count, width, height, reach, has_cotangent)
    return Sample(*types, make=make, width=width, height=height, **settings)


def maker(
    leading: tuple[int, ...], count: int, width: int, height: int, reach: float, has_cotangent: bool
) -> Callable[[np.random.Generator], list[np.ndarray]]:
    def make(rng: np.random.Generator) -> list[np.ndarray]:
        shape = (*leading, count)
        factor = rng.uniform(-0.5, 0.5, (*shape, 2, 2)) + 0.5 * np.eye(2)
        precision = factor @ factor.swapaxes(-1, -2) + 0.05 * np.eye(2)
        splats = [
            rng.uniform(-1, 1 + np.array([width, height]), (*shape, 2)),
            precision.reshape(*shape, 4)[..., [0, 1, 3]],
            reach * rng.uniform(0.5, 1.5, shape),
            rng.uniform(0.1, 0.9, shape),
            rng.uniform(0, 1, (*shape, 3)),
        ]
        return [rng.uniform(-1, 1, (*leading, height, width, 4)), *splats] if has_cotangent else splats

    return make


OPS = (Rasterize, RasterizeBackward)
