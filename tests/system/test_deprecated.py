"""Deprecated names."""

from __future__ import annotations

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
