"""Errors of a program that needs the elements of a traced value, or uses one whose trace has ended.

The hint depends on the calling expression: `math.sin(x)`, `range(n)` and `if x > 0` reach a value by the same few methods, so
the call is read off the user's line.
"""

from __future__ import annotations

import ast
import linecache
from itertools import islice
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from rlx_core.errors import Fact, TraceError
from rlx_core.ir.provenance import here, user_frame

if TYPE_CHECKING:
    from rlx_core.ir.graph.values import Value

SAME: Final = {
    "absolute": "abs",
    "amax": "max",
    "amin": "min",
    "around": "round",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "concatenate": "concat",
    "cumprod": "cumulative_prod",
    "cumsum": "cumulative_sum",
    "dot": "matmul",
    "fabs": "abs",
    "fmax": "maximum",
    "fmin": "minimum",
    "hstack": "concat",
    "inner": "vecdot",
    "invert": "bitwise_invert",
    "mod": "remainder",
    "power": "pow",
    "rint": "round",
    "swapaxes": "permute_dims",
    "transpose": "permute_dims",
    "true_divide": "divide",
    "vstack": "concat",
}
"""Names of NumPy and `math` that differ in the Array API."""

BUILTINS: Final = {
    "abs": "use rlx.abs",
    "all": "use rlx.all",
    "any": "use rlx.any",
    "bool": "use the comparison itself, which is an array of bool",
    "complex": "use rlx.astype(x, rlx.c64)",
    "float": "a traced value takes part in arithmetic as it is; rlx.astype(x, rlx.f32) changes its dtype",
    "int": "use rlx.astype(x, rlx.i32), which rounds towards zero as int() does",
    "max": "use rlx.maximum(a, b), or rlx.max(x) over an axis",
    "min": "use rlx.minimum(a, b), or rlx.min(x) over an axis",
    "pow": "use rlx.pow",
    "print": "print what the compiled function returns",
    "range": "use rlx.fori_loop(0, n, body, init), or pass the number of rounds as a Python int",
    "round": "use rlx.round",
    "sorted": "use rlx.sort",
}
"""Functions of Python → the replacement."""

_OUTSIDE: Final = "compute it outside the traced function, and pass it in"
_WHERE: Final = "use rlx.where(condition, a, b), which chooses element by element"
_COND: Final = (
    "use rlx.cond(condition, f, g, x), which runs one of two functions, or rlx.where, which chooses element by element"
)
_WHILE: Final = "use rlx.while_loop(condition, body, init), which goes on as long as the program says"


def needs_elements(value: Value, action: str, function: Any = None, hint: str | None = None) -> TraceError:
    """Return the error for using a value's elements: in `function` where that is known, else in the user's line."""
    if value.node.owner.trace_has_ended:
        return leaked(value)
    if hint is None:
        hint = hint_at(user_frame()) if function is None else hint_for_function(function)
    return TraceError(
        f"trace: {action} needs the elements of {value.type}, which are only known when the program runs",
        Fact("value", repr(value), value.node.origin.source),
        hint=hint or _OUTSIDE,
    )


def leaked(value: Value) -> TraceError:
    """The error for a value that outlived its trace."""
    source = here()
    used = [] if source is None else [Fact("at", repr(source))]
    return TraceError(
        f"trace: {value!r} leaked from {value.node.owner.name}, whose trace has ended; "
        f"it has a type ({value.type}) and never had elements",
        Fact("made at", repr(value), value.node.origin.source),
        *used,
        hint="return it from the traced function instead of keeping it in a list, an attribute or a global",
    )


def refused_ufunc(error: TypeError) -> TraceError | None:
    """Return the error for NumPy's error that a ufunc received a traced value; `None` for other errors.

    A value offers NumPy no ufuncs, so that `array + value` is left to its operators; so NumPy refuses `np.sin(value)` itself.
    """
    last = error.__traceback__
    if last is None or "does not support ufuncs" not in str(error):
        return None
    while last.tb_next is not None:
        last = last.tb_next
    called = _expression(last.tb_frame, last.tb_lasti)
    name = ast.unparse(called.func) if isinstance(called, ast.Call) else "a NumPy ufunc"
    return TraceError(
        f"trace: {name} takes arrays, and is given a traced value",
        hint=hint_at(last.tb_frame, last.tb_lasti) or _OUTSIDE,
    )


# ----------------------------------------------------------------------------------------------- hints


def hint_at(frame: FrameType | None, instruction: int | None = None) -> str | None:
    """Return a hint for replacing the expression that a frame is evaluating; `instruction` is its instruction."""
    if frame is None:
        return None
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    expression = _expression(frame, frame.f_lasti if instruction is None else instruction)
    if isinstance(expression, ast.Call):
        return hint_for_function(_resolved(expression.func, frame))
    if isinstance(expression, ast.Subscript) and isinstance(expression.slice, ast.Slice):
        return "use rlx.dynamic_slice(x, starts, sizes): where a slice begins may be a value, how long it is may not"
    if isinstance(expression, ast.Subscript):
        return "use rlx.take(table, indices), which looks up inside the program"
    if isinstance(expression, ast.Compare):
        if isinstance(expression.ops[0], ast.In | ast.NotIn):
            return "use rlx.any(x == value)"
        if len(expression.ops) > 1:
            return "write both comparisons: (a < x) & (x < b)"
    if isinstance(expression, ast.BoolOp):
        return "use & and |, or rlx.logical_and and rlx.logical_or"
    if line.startswith("assert"):
        return "check it outside the traced function, on what that returns"
    if line.startswith("while "):
        return _WHILE
    if line.startswith(("if ", "elif ")) or isinstance(expression, ast.IfExp):
        return _COND
    return _WHERE if isinstance(expression, ast.expr) else None


def hint_for_function(function: Any) -> str | None:
    """Return a hint for replacing a function of NumPy, `math` or Python."""
    name = getattr(function, "__name__", "")
    owner = getattr(function, "__self__", function)  # `np.add.reduce` is a method of `np.add`
    if owner is not function and type(owner).__name__ == "ufunc":
        function, name = owner, {"add": "sum", "multiply": "prod"}.get(owner.__name__, owner.__name__)
    module = (getattr(function, "__module__", None) or type(function).__module__).partition(".")[0]
    if module == "builtins":
        return BUILTINS.get(name)
    if module not in ("numpy", "math", "cmath", "operator"):
        return None
    from rlx_core.public import FUNCTIONS  # a table; only here, because an error is the exception

    if name in ("asarray", "ascontiguousarray", "array"):
        return "a traced value is an array already; rlx.stack joins several"
    if name in ("degrees", "radians"):
        return "multiply by 180 / math.pi" if name == "degrees" else "multiply by math.pi / 180"
    same = SAME.get(name, name)
    return f"use rlx.{same}, which is part of the program" if same in FUNCTIONS else None


def _expression(frame: FrameType, instruction: int) -> ast.expr | None:
    """The expression that an instruction of a frame belongs to, if its source can be read."""
    code = frame.f_code
    first, last, start, end = next(islice(code.co_positions(), instruction // 2, None), (None,) * 4)
    if first is None or last is None or start is None or end is None:
        return None
    lines = [linecache.getline(code.co_filename, n).encode() for n in range(first, last + 1)]  # columns are of bytes
    if not lines or not lines[-1]:
        return None
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        return ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except (SyntaxError, ValueError):  # the file has changed since it was imported
        return None


def _resolved(name: ast.expr, frame: FrameType) -> Any:
    """Return the object that a name or a dotted name refers to in a frame; `None` if it is neither."""
    if isinstance(name, ast.Attribute):
        return getattr(_resolved(name.value, frame), name.attr, None)
    if not isinstance(name, ast.Name):
        return None
    for scope in (frame.f_locals, frame.f_globals, frame.f_builtins):
        if name.id in scope:
            return scope[name.id]
    return None
