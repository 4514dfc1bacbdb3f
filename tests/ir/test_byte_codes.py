"""NumPy's codes count bytes and rlx's count bits: a text that could be either is refused."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import DtypeError


@pytest.mark.parametrize(
    ("code", "name"),
    [("i2", "i16"), ("i4", "i32"), ("u2", "u16"), ("u4", "u32"), ("f2", "f16"), ("f4", "f32"), ("f8", "f64")],
)
def test_an_ambiguous_code_is_refused_with_the_name_to_write(code, name):
    for call in (lambda: rlx.spec(f"{code}[3]"), lambda: rlx.astype(np.ones(3, np.int32), code)):
        with pytest.raises(DtypeError, match=f"{code!r} has") as caught:
            call()
        assert f"write {name} for" in caught.value.hint
    assert rlx.spec(f"{name}[3]").dtype.name == name
    assert rlx.asarray(np.ones(3, np.dtype(code))).dtype == np.dtype(code), "NumPy's own dtype has one meaning"
