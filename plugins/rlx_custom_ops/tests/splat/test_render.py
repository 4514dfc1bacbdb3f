"""Pictures against a pixel-by-pixel loop written from the definition, and derivatives against differences."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import ConfigError, ShapeError
from rlx_core.plugins import PluginHost
from rlx_core.testing.cases import programs
from rlx_custom_ops.splat import Camera, Gaussians, project, render
from rlx_custom_ops.splat.harmonics import directional
from rlx_custom_ops.splat.kernels import kernels
from rlx_custom_ops.splat.ops import OPS
from rlx_custom_ops.splat.ops.rasterize import Rasterize

CAMERA = Camera(np.array([0.3, 0.8, -3.0]), np.array([0.1, 0.0, 0.0]), np.array([0.1, 1.0, 0.0]), np.float64(0.9))
SMOOTH: dict[str, Any] = {"alpha_cutoff": 0.0, "transmittance_threshold": 0.0, "radius_scale": 1e3}


def scene(count: int, coefficients: int = 0, seed: int = 0) -> Gaussians:
    rng = np.random.default_rng(seed)
    return Gaussians(
        rng.uniform(-1, 1, (count, 3)),
        rng.uniform(-2.5, -1.0, (count, 3)),
        rng.standard_normal((count, 4)),
        rng.uniform(-2, 2, count),
        rng.uniform(0.3, 1, (count, 3)),
        0.1 * rng.standard_normal((count, coefficients, 3)),
    )


def by_loops(g: Gaussians, camera: Camera, width: int, height: int, background: Any) -> np.ndarray:
    """The definition, one pixel and one splat after the other, without culling by tiles."""
    forward = camera.target - camera.position
    forward = forward / np.linalg.norm(forward)
    right = np.cross(forward, camera.up)
    right = right / np.linalg.norm(right)
    view = np.stack([right, np.cross(right, forward), forward])
    focal = height / (2 * np.tan(camera.fov_y / 2))
    splats = []
    for p, s, q, logit, color in zip(g.positions, g.scales, g.rotations, g.opacities, g.colors, strict=True):
        x, y, z = view @ (p - camera.position)
        if not camera.near <= z <= camera.far:
            continue
        (i, j, k, r) = q / np.linalg.norm(q)
        vector, cross = np.array([i, j, k]), np.array([[0, -k, j], [k, 0, -i], [-j, i, 0]])
        turn = (r * r - vector @ vector) * np.eye(3) + 2 * np.outer(vector, vector) + 2 * r * cross
        jacobian = np.array([[focal / z, 0, -focal * x / z**2], [0, -focal / z, focal * y / z**2]]) @ view
        covariance = jacobian @ turn @ np.diag(np.exp(2 * s)) @ turn.T @ jacobian.T + 0.3 * np.eye(2)
        centre = np.array([width / 2 + focal * x / z, height / 2 - focal * y / z])
        radius = 3 * np.sqrt(np.linalg.eigvalsh(covariance)[-1])
        splats.append((z, centre, np.linalg.inv(covariance), radius, 1 / (1 + np.exp(-logit)), color))
    splats.sort(key=lambda splat: splat[0])
    picture = np.zeros((height, width, 4))
    for row in range(height):
        for column in range(width):
            light, total = 1.0, np.zeros(3)
            for _, centre, conic, radius, opacity, color in splats:
                d = np.array([column + 0.5, row + 0.5]) - centre
                alpha = min(0.99, opacity * np.exp(-0.5 * d @ conic @ d))
                if alpha < 1 / 255 or np.linalg.norm(d) > radius:
                    continue
                if light < 1e-4:
                    break
                total = total + light * alpha * color
                light *= 1 - alpha
            picture[row, column] = [*(total + light * np.asarray(background)), 1 - light]
    return picture


@pytest.mark.parametrize("size", [(20, 17), (40, 33)])
def test_a_picture_is_what_its_definition_says(size: tuple[int, int]) -> None:
    width, height = size
    g, background = scene(40), (0.1, 0.2, 0.3)
    g.positions[:3, 2] -= 4  # behind the camera
    found = render(g, CAMERA, width=width, height=height, background=background)
    np.testing.assert_allclose(found, by_loops(g, CAMERA, width, height, background), atol=1e-12)


@pytest.mark.medium
def test_tiles_and_loops_are_the_same_program(cpu: PluginHost) -> None:
    g = scene(30, 3)
    op = Rasterize(24, 20)
    splats = project(g, CAMERA, width=24, height=20)
    np.testing.assert_allclose(op(*splats), rlx.jit(lambda *x: op.decompose(*x))(*splats), atol=1e-13)
    picture = rlx.jit(lambda g: render(g, CAMERA, width=24, height=20))
    np.testing.assert_allclose(picture(g), render(g, CAMERA, width=24, height=20), atol=1e-12)
    assert ("numpy_splat_tiles", "splat") in {(kernel, plugin) for _, kernel, plugin in picture.report.kernels}


@pytest.mark.medium
@pytest.mark.parametrize("group", Gaussians._fields)
def test_the_gradient_of_every_group_agrees_with_differences(cpu: Any, group: str) -> None:
    g, rng = scene(6, 15), np.random.default_rng(1)
    weights, along = rng.uniform(-1, 1, (9, 11, 4)), rng.uniform(-1, 1, getattr(g, group).shape)

    def loss(part: Any) -> Any:
        return rlx.sum(weights * render(g._replace(**{group: part}), CAMERA, width=11, height=9, **SMOOTH))

    part, step = getattr(g, group), 1e-5
    expected = (loss(part + step * along) - loss(part - step * along)) / (2 * step)
    np.testing.assert_allclose(np.sum(rlx.grad(loss)(part) * along), expected, rtol=1e-6)


SETTINGS: dict[str, dict[str, Any]] = {
    "antialiased": {"antialiased": True},
    "rounder": {"max_anisotropy": 1.5},
    "one band": {"sh_degree": 1},
}


@pytest.mark.medium
@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_differentiated(cpu: Any, name: str) -> None:
    """In all groups at once, along one direction."""
    g, rng = scene(5, 15), np.random.default_rng(1)
    weights, along = rng.uniform(-1, 1, (9, 11, 4)), Gaussians(*(rng.uniform(-1, 1, part.shape) for part in g))

    def loss(g: Gaussians) -> Any:
        return rlx.sum(weights * render(g, CAMERA, width=11, height=9, **SMOOTH, **SETTINGS[name]))

    def moved(step: float) -> Gaussians:
        return Gaussians(*(part + step * way for part, way in zip(g, along, strict=True)))

    expected = (loss(moved(1e-5)) - loss(moved(-1e-5))) / 2e-5
    found = sum(np.sum(slope * way) for slope, way in zip(rlx.grad(loss)(g), along, strict=True))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert abs(loss(g) - rlx.sum(weights * render(g, CAMERA, width=11, height=9, **SMOOTH))) > 1e-3, "it does something"


def test_antialiased_splats_are_as_bright_as_without_their_blur() -> None:
    """The integral of a splat over the picture, opacity times the root of the determinant, is that of the sharp one."""
    g = scene(7)
    blurred, kept = (project(g, CAMERA, width=64, height=48, antialiased=each) for each in (False, True))
    (a, b, c) = blurred.conics.T
    covariances = np.linalg.inv(np.stack([np.stack([a, b], axis=1), np.stack([b, c], axis=1)], axis=1))
    sharp = np.linalg.det(covariances - 0.3 * np.eye(2))
    np.testing.assert_allclose(kept.opacities * np.sqrt(np.linalg.det(covariances)), blurred.opacities * np.sqrt(sharp))
    for name in ("centres", "conics", "radii", "colors"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(blurred, name))


def test_bands_and_anisotropy_are_those_of_a_scene_with_less() -> None:
    g = scene(6, 15)
    size: dict[str, Any] = {"width": 16, "height": 12}
    for degree, count in enumerate((0, 3, 8, 15)):
        less = g._replace(sh=g.sh[:, :count])
        np.testing.assert_allclose(
            project(g, CAMERA, **size, sh_degree=degree).colors, project(less, CAMERA, **size).colors, atol=1e-14
        )
    longest = g.scales.max(axis=1, keepdims=True)
    round_ones = g._replace(scales=np.maximum(g.scales, longest - np.log(1.2)))
    np.testing.assert_allclose(
        project(g, CAMERA, **size, max_anisotropy=1.2).conics, project(round_ones, CAMERA, **size).conics, rtol=1e-12
    )
    with pytest.raises(ConfigError, match="sh_degree must be 0 to 1, of which the scene has coefficients, not 2"):
        render(scene(3, 3), CAMERA, **size, sh_degree=2)
    with pytest.raises(ConfigError, match="max_anisotropy must be at least 1"):
        render(g, CAMERA, **size, max_anisotropy=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["position", "target", "up", "fov_y"])
def test_the_gradient_of_the_camera_agrees_with_differences(cpu: Any, part: str) -> None:
    g, rng = scene(6), np.random.default_rng(1)
    weights, along = rng.uniform(-1, 1, (9, 11, 4)), rng.uniform(-1, 1, getattr(CAMERA, part).shape)

    def loss(value: Any) -> Any:
        return rlx.sum(weights * render(g, CAMERA._replace(**{part: value}), width=11, height=9, **SMOOTH))

    value, step = getattr(CAMERA, part), 1e-5
    expected = (loss(value + step * along) - loss(value - step * along)) / (2 * step)
    np.testing.assert_allclose(np.sum(rlx.grad(loss)(value) * along), expected, rtol=1e-6)


@pytest.mark.slow
def test_several_cameras_at_once(cpu: Any) -> None:
    g, places = scene(10), np.array([[0.3, 0.8, -3.0], [2.0, 0.0, -2.0]])

    def view(place: Any) -> Any:
        return render(g, CAMERA._replace(position=place), width=10, height=8)

    np.testing.assert_allclose(rlx.vmap(view)(places), np.stack([view(place) for place in places]), atol=1e-12)


def test_harmonics_are_orthonormal() -> None:
    """Integrated over the sphere by Gauss-Legendre and even angles, which is exact for polynomials of degree 6."""
    z, weights = np.polynomial.legendre.leggauss(8)
    angle = np.arange(16) * np.pi / 8
    radius = np.sqrt(1 - z * z)
    points = np.stack([np.outer(radius, np.cos(angle)), np.outer(radius, np.sin(angle)), np.outer(z, np.ones(16))], -1)
    points, area = points.reshape(-1, 3), np.repeat(weights * np.pi / 8, 16)
    basis = []
    for i in range(15):
        sh = np.zeros((len(points), 15, 3))
        sh[:, i] = 1
        basis.append(np.asarray(directional(points, sh))[:, 0])
    np.testing.assert_allclose((np.stack(basis) * area) @ np.stack(basis).T, np.eye(15), atol=1e-12)


@pytest.mark.parametrize("program", programs(OPS), ids=repr)
def test_the_kernels_are_the_references(program: Any) -> None:
    arrays, types = program.draw(), program.node.types
    out = tuple(np.full(t.static_shape, 7, t.dtype.numpy) for t in types)
    chosen = kernels.choose(program.node).kernel
    assert chosen is not None
    chosen.run(program.node.op, *arrays, out=out if len(out) > 1 else out[0], workspace=None)
    wanted = program.node.op.reference(*arrays)
    for x, y in zip(out, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        np.testing.assert_array_equal(x, y)


def test_scenes_that_do_not_belong_together_are_refused() -> None:
    g = scene(4)
    for bad, says in (
        (g._replace(scales=g.scales[:3]), r"scales must be \[4, 3\], not \[3, 3\]"),
        (g._replace(opacities=g.opacities[:, None]), r"opacities must be \[4\], not \[4, 1\]"),
        (g._replace(sh=np.zeros((4, 2, 3))), r"sh must be \[4, 0 | 3 | 8 | 15, 3\]"),
    ):
        with pytest.raises(ShapeError, match=says):
            render(bad, CAMERA, width=4, height=4)
    with pytest.raises(ConfigError, match="width and height must be whole numbers"):
        render(g, CAMERA, width=0, height=4)


@pytest.mark.slow
def test_the_example_fits_a_picture(cpu: Any, tmp_path: Path) -> None:
    """A few steps of it; all of them reach more than 25 dB."""
    path = Path(__file__).parents[2] / "examples" / "splats.py"
    found = importlib.util.spec_from_file_location("splats_example", path)
    assert found is not None
    assert found.loader is not None
    example = importlib.util.module_from_spec(found)
    found.loader.exec_module(example)
    assert (
        example.main(20, str(tmp_path))
        > example.fit(example.scattered(np.random.default_rng(0)), example.target(), 1)[1] + 2
    )
    assert (tmp_path / "fitted.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "fitted.ply").stat().st_size > 150 * 14 * 4
