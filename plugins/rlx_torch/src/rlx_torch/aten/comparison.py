"""Comparisons, logic on bools, bits of integers, and the choice between two values."""

from __future__ import annotations

import rlx_core as rlx
from rlx_torch.aten.elementwise import by_kind, truth
from rlx_torch.aten.promotion import as_value, meet
from rlx_torch.aten.table import aten, rows

_COMPARED = {
    "eq": rlx.equal, "ne": rlx.not_equal, "lt": rlx.less, "le": rlx.less_equal,
    "gt": rlx.greater, "ge": rlx.greater_equal,
}  # fmt: skip
rows({f"{name}.Tensor {name}.Scalar": lambda a, b, f=f: f(*meet(a, b)) for name, f in _COMPARED.items()})

_LOGICAL = {"and": rlx.logical_and, "or": rlx.logical_or, "xor": rlx.logical_xor}
_BITWISE = {"and": rlx.bitwise_and, "or": rlx.bitwise_or, "xor": rlx.bitwise_xor}


for _name, _logical in _LOGICAL.items():
    aten(f"logical_{_name}")(lambda a, b, f=_logical: f(truth(a), truth(b)))
    _forms = (f"bitwise_{_name}.Tensor", f"bitwise_{_name}.Scalar", f"bitwise_{_name}.Scalar_Tensor")
    aten(*_forms, f"__{_name}__.Tensor", f"__{_name}__.Scalar")(by_kind(_logical, _BITWISE[_name]))

_LEFT = "bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar __lshift__.Scalar __lshift__.Tensor"
_RIGHT = "bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar __rshift__.Scalar __rshift__.Tensor"
rows(
    {
        _LEFT: lambda a, b: rlx.bitwise_left_shift(*meet(a, b)),
        _RIGHT: lambda a, b: rlx.bitwise_right_shift(*meet(a, b)),
        "where.self where.ScalarOther where.ScalarSelf where.Scalar": lambda condition, a, b: rlx.where(
            truth(condition), *meet(a, b)
        ),
        "masked_fill.Scalar masked_fill.Tensor": lambda x, mask, value: rlx.where(mask, as_value(value, x.dtype), x),
    }
)
