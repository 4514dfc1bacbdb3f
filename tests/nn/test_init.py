"""How weights begin: their mean and variance by the fans, and orthogonal matrices."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_core import nn, random
from rlx_core.errors import ConfigError, DtypeError, ShapeError

KEY = random.key(21)
SHAPE = (60, 200)
VARIANCES = {
    "he_normal": 2 / 60,
    "he_uniform": 2 / 60,
    "glorot_normal": 2 / 260,
    "glorot_uniform": 2 / 260,
    "lecun_normal": 1 / 60,
    "lecun_uniform": 1 / 60,
}


@pytest.mark.parametrize(("name", "variance"), VARIANCES.items())
def test_the_variance_is_by_the_fans(name, variance):
    """Of 12,000 numbers: their mean within four standard deviations, their variance within six."""
    x = np.asarray(getattr(nn.init, name)(KEY, SHAPE, "f64"))
    assert x.shape == SHAPE
    assert abs(x.mean()) < 4 * (variance / x.size) ** 0.5
    assert abs(x.var() / variance - 1) < 6 * (2 / x.size) ** 0.5
    limit = 3**0.5 if name.endswith("uniform") else 2 / nn.init.CUT
    assert np.abs(x).max() <= limit * variance**0.5 * 1.0001


def test_fans_count_the_cells_of_a_kernel():
    x = np.asarray(nn.init.variance_scaling(KEY, (40, 8, 5, 5), mode="fan_in", in_axis=1, out_axis=0))
    assert abs(x.var() * 8 * 25 - 1) < 6 * (2 / x.size) ** 0.5
    x = np.asarray(
        nn.init.variance_scaling(KEY, (40, 8, 5, 5), mode="fan_out", distribution="normal", in_axis=1, out_axis=0)
    )
    assert abs(x.var() * 40 * 25 - 1) < 6 * (2 / x.size) ** 0.5


def test_plain_ones_are_what_they_say():
    assert not nn.init.zeros(KEY, 3).any()
    assert nn.init.ones(KEY, (2, 2), "f16").dtype == np.float16
    assert (nn.init.constant(KEY, (2,), value=0.5) == 0.5).all()
    assert np.asarray(nn.init.uniform(KEY, (1000,), low=-2.0, high=-1.0)).max() < -1
    assert abs(np.asarray(nn.init.normal(KEY, (10_000,), stddev=3.0)).std() - 3) < 0.15
    assert np.abs(nn.init.truncated_normal(KEY, (10_000,), stddev=3.0)).max() <= 6


@pytest.mark.parametrize(("shape", "axis"), [((6, 4), -1), ((4, 6), -1), ((3, 5, 4), -1), ((4, 3, 5), 0)])
def test_orthogonal_weights_keep_lengths(shape, axis):
    pytest.importorskip("rlx_custom_ops")  # which has QR
    w = np.moveaxis(np.asarray(nn.init.orthogonal(KEY, shape, "f64", gain=2.0, axis=axis)), axis, -1)
    matrix = w.reshape(-1, w.shape[-1])
    product = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-12)


@pytest.mark.parametrize(
    ("ask", "error", "says"),
    [
        (lambda: nn.init.he_normal(KEY, (3,)), ShapeError, "two axes at least"),
        (lambda: nn.init.he_normal(KEY, (3, 4), "i32"), DtypeError, "must be a float"),
        (lambda: nn.init.variance_scaling(KEY, (3, 4), scale=0), ConfigError, "scale must be above 0"),
        (lambda: nn.init.variance_scaling(KEY, (3, 4), mode="fan"), ConfigError, "fan_in, fan_out or fan_avg"),
        (lambda: nn.init.variance_scaling(KEY, (3, 4), in_axis=1), ShapeError, "must be two axes"),
        (lambda: nn.init.normal(KEY, (3, 4), stddev=-1.0), ConfigError, "stddev must be at least 0"),
    ],
)
def test_what_means_nothing_is_refused(ask, error, says):
    with pytest.raises(error, match=says):
        ask()
