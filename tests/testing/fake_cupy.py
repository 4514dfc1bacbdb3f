"""The CuPy of `tests/fakes` in place of CuPy, for tests of the plug-ins that CuPy drives."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FAKES = str(Path(__file__).parents[1] / "fakes")
_versions = itertools.count()


@contextmanager
def fake_cupy(driven: Sequence[str], *, is_hip: bool = False) -> Iterator[Any]:
    """Its world: what was asked of the device, and how it is made to fail.

    Args:
        driven: Modules that import CuPy, or keep the devices that they found; they are imported anew.
        is_hip: Whether it is CuPy's build for ROCm.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FAKES)
        _forget(patch, driven)
        import cupy.cuda.world

        # Programs are cached by what their device is, and this world's are nobody else's.
        patch.setattr(cupy, "__version__", f"0.{next(_versions)}")
        cupy.cuda.world.is_hip = is_hip
        yield cupy.cuda.world
        _forget(patch, driven)


def _forget(patch: pytest.MonkeyPatch, driven: Sequence[str]) -> None:
    for name in list(sys.modules):
        if name == "cupy" or name.startswith("cupy.") or name in driven:
            patch.delitem(sys.modules, name)
    for name in driven:  # `from package import module` looks at the package first
        package, _, module = name.rpartition(".")
        if package in sys.modules:
            patch.delattr(sys.modules[package], module, raising=False)
