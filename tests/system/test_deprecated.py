"""Deprecated names and moved modules."""

from __future__ import annotations

import importlib
import math

import pytest

from rlx_core.system.deprecated import deprecated_names


def test_a_deprecated_name_works_and_warns_with_the_new_one_and_the_release() -> None:
    get = deprecated_names("acme", {"circle": ("math:pi", "0.4")})
    with pytest.warns(
        DeprecationWarning, match=r"acme\.circle is deprecated and is removed in rlx-core 0\.4: use math\.pi"
    ):
        assert get("circle") == math.pi
    with pytest.raises(AttributeError, match="'acme' has no attribute 'square'"):
        get("square")


@pytest.mark.parametrize(
    ("former", "present"),
    [
        ("rlx_core.codegen.gpu.languages", "rlx_gpu.codegen"),
        ("rlx_core.emit.gpu_backend", "rlx_gpu.backend"),
        ("rlx_core.testing.shim.driver", "rlx_gpu.testing.shim"),
    ],
)
def test_a_moved_module_is_an_error_with_the_new_name_and_its_package(former: str, present: str) -> None:
    with pytest.raises(ImportError, match=rf"is {present} now: python -m pip install rlx-gpu"):
        importlib.import_module(former)
