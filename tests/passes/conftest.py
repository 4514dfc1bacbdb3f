"""Ops that only tests need: one with an effect, one that nothing may be moved across."""

from typing import ClassVar

import numpy as np
import pytest

from rlx_core.ir.op import Op, define_op


@define_op(domain="test")
class Noise(Op):
    is_pure: ClassVar = False

    def infer(self, x):
        return x

    def reference(self, x):
        return x + np.random.default_rng().normal(size=x.shape)


@define_op(domain="test")
class Fence(Op):
    is_barrier: ClassVar = True

    def infer(self, x):
        return x

    def reference(self, x):
        return x


@pytest.fixture
def noise():
    return Noise()


@pytest.fixture
def fence():
    return Fence()
