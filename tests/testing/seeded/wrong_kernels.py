"""Plugins that contribute a wrong kernel for target cpu."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_core.contributions import KernelSpec
from rlx_core.hooks import hookimpl
from rlx_core.ir.dtypes import FLOATS
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import expect_dtype
from rlx_core.ops.samples import Sample
from rlx_core.pipeline.kernels import KernelTable
from seeded.seeds import Seeds

SEEDS = Seeds()
ORACLE = "kernel_agrees_with_the_oracle"
PLACES = "kernel_is_right_in_every_place"
RUNS = "kernel_runs_what_it_takes"


@define_op(domain="seed")
class Turned(Op):
    """Backwards along the last axis, and one more."""

    def infer(self, x):
        expect_dtype("x", x, FLOATS, "a float")
        return x

    def reference(self, x):
        return x[..., ::-1] + 1 if x.ndim else x + 1

    @classmethod
    def samples(cls):
        yield Sample("f32[4, 3]")


@define_op(domain="seed")
class Both(Op):
    """x + 1 and x - 1."""

    def infer(self, x):
        expect_dtype("x", x, FLOATS, "a float")
        return x, x

    def reference(self, x):
        return x + 1, x - 1

    @classmethod
    def samples(cls):
        yield Sample("f32[4, 3]")


class Kernel:
    """A plugin with one kernel: `run`, registered for `op` as `registered` says."""

    op: type[Op] = Turned
    target = "cpu"
    registered: dict[str, Any] = {}  # noqa: RUF012  read, never written

    @staticmethod
    def run(op, x, *, out, workspace):
        np.add(x[..., ::-1], 1, out=out)

    @hookimpl
    def rlx_kernels(self):
        table = KernelTable(self.target)
        table.register(self.op, **{"dtypes": "f32 f64", "accepts_strides": True, "name": "tried", **self.registered})(
            self.run
        )
        return [KernelSpec("cpu", table)]


class RightKernel(Kernel):
    """What the wrong ones should have been; it cannot turn a scalar, and takes none."""


@SEEDS.plugin(ORACLE, r"alone, run 1: output 0 .* off by")
class AddsTwo(Kernel):
    @staticmethod
    def run(op, x, *, out, workspace):
        np.add(x[..., ::-1], 2, out=out)


@SEEDS.plugin(ORACLE, r"alone, run 1: output 1 .* off by")
class WrongInItsSecondResult(Kernel):
    op = Both

    @staticmethod
    def run(op, x, *, out, workspace):
        first, second = out
        np.add(x, 1, out=first)
        np.subtract(x, 2, out=second)


@SEEDS.plugin(ORACLE, r"\(f64\), alone, run 1: output 0 .* off by")
class SingleForDouble(Kernel):
    @staticmethod
    def run(op, x, *, out, workspace):
        out[...] = x[..., ::-1].astype(np.float32) + np.float32(1)


@SEEDS.plugin(ORACLE, r"alone, run \d: output 0")
class AddsToWhatIsThere(Kernel):
    @staticmethod
    def run(op, x, *, out, workspace):
        out += x[..., ::-1] + 1


@SEEDS.plugin(PLACES, "as the last reader of its operands")
class ReadsWhatItHasWritten(Kernel):
    """Says that it may work in place, and writes elements that it has yet to read."""

    registered = {"in_place": (0,)}  # noqa: RUF012

    @staticmethod
    def run(op, x, *, out, workspace):
        width = x.shape[-1]
        for i in range(width):
            out[..., i] = x[..., width - 1 - i] + 1


@SEEDS.plugin(PLACES, "assignment destination is read-only")
class WritesToItsOperand(Kernel):
    @staticmethod
    def run(op, x, *, out, workspace):
        np.add(x[..., ::-1], 1, out=out)
        x[...] = 0


@SEEDS.plugin(PLACES, "on strided operands")
class ReadsMemoryInOrder(Kernel):
    """Says that it takes strided operands, and reads their bytes as they lie."""

    @staticmethod
    def run(op, x, *, out, workspace):
        lying = x.ravel(order="K").reshape(x.shape)
        np.add(lying[..., ::-1], 1, out=out)


@SEEDS.plugin(ORACLE, "alone")
class CannotDoNothing(Kernel):
    @staticmethod
    def run(op, x, *, out, workspace):
        np.add(x[..., ::-1], 1 + 0 * x.max(), out=out)


@SEEDS.plugin(RUNS, "takes none of the samples")
class ForHalvesOnly(Kernel):
    """Of an op whose samples, and variants of them, are no halves."""

    registered = {"dtypes": "i8"}  # noqa: RUF012


@SEEDS.plugin("contribution_can_be_used", "the table is for the target gpu")
class ForAnotherTarget(Kernel):
    target = "gpu"
