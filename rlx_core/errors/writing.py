"""Errors in the program as it is written: shapes, dtypes, axes, indices, operands, and Python that cannot be traced."""

from rlx_core.errors.base import RlxError

__all__ = [
    "AbsentNameError",
    "AxisError",
    "AxisNameError",
    "DtypeError",
    "IndexRangeError",
    "MissingBiasError",
    "PromotionError",
    "ShapeError",
    "TraceError",
    "WrongInputCountError",
]


class AbsentNameError(RlxError, AttributeError):
    """A module of rlx has no such name; the message has rlx's name for it, or the reason why it is absent.

    Functions of arrays are named as in the Python Array API, layers and losses are
    in `rlx_core.nn`. For names of NumPy, JAX and PyTorch that differ or do not
    exist here, the message has the replacement.

    >>> rlx.concatenate([np.zeros(2), np.ones(1)])
    Traceback (most recent call last):
        ...
    AbsentNameError: rlx_core has no concatenate

    >>> rlx.concat([np.zeros(2), np.ones(1)])
    Array([0., 0., 1.])

    `docs/names.md` is the list.
    """


class ShapeError(RlxError, ValueError):
    """Two shapes do not fit the operation.

    An operation determines which sizes must be equal, and nothing is cropped,
    repeated or transposed to make a program fit: a wrong shape is far more often a
    mistake than a wish. The facts show every operand with the line that made it.

    >>> x, w = np.ones((8, 64)), np.ones((32, 64))
    >>> rlx.matmul(x, w)
    Traceback (most recent call last):
        ...
    ShapeError: matmul: contracted dims differ (64 != 32)

    Here the weight is stored as [out, in]; its transpose fits, and is a view:

    >>> rlx.matmul(x, w.T).shape
    (8, 32)
    """


class DtypeError(RlxError, TypeError):
    """An operand has a dtype that the operation does not take.

    Operands of different dtypes are promoted, but a dtype that makes no sense for
    the operation is not replaced by one that does, because that would lose or
    invent something: bits of a float, the fraction of an index, the gradient of an
    integer.

    >>> x = np.array([1.0, 2.0, 3.0])
    >>> rlx.bitwise_and(x, 1)
    Traceback (most recent call last):
        ...
    DtypeError: bitwise_and: takes bool i8 i16 i32 i64 u8 u16 u32 u64, not f64

    A conversion is written where it is meant:

    >>> rlx.bitwise_and(rlx.astype(x, rlx.i64), 1)
    Array([1, 0, 1])
    """


class PromotionError(DtypeError):
    """Two dtypes have no common dtype; one of them must be cast explicitly.

    Promotion only goes to a dtype that holds every value of both. No integer dtype
    holds all of i64 and all of u64, and a float would round them silently.

    >>> a, b = np.arange(3, dtype=np.int64), np.arange(3, dtype=np.uint64)
    >>> rlx.add(a, b)
    Traceback (most recent call last):
        ...
    PromotionError: promotion: u64 and i64 have no common integer type

    You know which values occur, so choose the type to compute in:

    >>> rlx.add(a, rlx.astype(b, rlx.i64))
    Array([0, 2, 4])
    """


class AxisError(RlxError, ValueError):
    """An axis lies outside the operand's rank, or is named twice.

    Axes count from 0, and from -1 backwards. After a reduction the remaining axes
    are renumbered, which is where such a mistake usually comes from.

    >>> x = np.ones((2, 3))
    >>> rlx.sum(x, axis=2)
    Traceback (most recent call last):
        ...
    AxisError: ...axis 2 is outside a tensor with 2 axes (-2..1)

    The last axis is -1 in a tensor of any rank:

    >>> rlx.sum(x, axis=-1)
    Array([3., 3.])
    """


class AxisNameError(RlxError, NameError):
    """A function uses an axis by a name that no enclosing `rlx.vmap` defines, or the name cannot be used.

    `rlx.psum`, `rlx.axis_index` and the like combine the examples of a mapped
    axis. They refer to it by the name in `rlx.vmap(axis_name=...)`, and a name of
    no axis is never ignored. One name refers to one axis: an inner `vmap` takes
    another name than the enclosing ones.

    >>> x = np.float32([1, 2, 5])
    >>> rlx.vmap(lambda a: a / rlx.psum(a, "batch"), axis_name="examples")(x)
    Traceback (most recent call last):
        ...
    AxisNameError: psum: no axis 'batch' is in scope

    >>> rlx.vmap(lambda a: a / rlx.psum(a, "batch"), axis_name="batch")(x)
    Array([0.125, 0.25 , 0.625], dtype=float32)
    """


class IndexRangeError(RlxError, IndexError):
    """An index lies outside the axis it selects from.

    Indices are checked, on every device, rather than clamped or wrapped around: a
    token id outside the vocabulary is a mistake that would otherwise train along.
    A negative constant index counts from the end, as in Python.

    >>> table = np.array([10.0, 20.0, 30.0])
    >>> rlx.take(table, np.array([0, 3]))
    Traceback (most recent call last):
        ...
    IndexRangeError: gather: index 3 is outside an axis of 3 elements

    Where such indices are meant to occur, define which elements they select:

    >>> rlx.take(table, rlx.clip(np.array([0, 3]), 0, 2))
    Array([10., 30.])
    """


class WrongInputCountError(RlxError, TypeError):
    """An operation or a block was given too many or too few operands.

    Operands are the inputs, and come first; attributes are fixed when the
    program is written, and follow them or are given by keyword. The message lists
    the operands, with `?` after optional ones.

    >>> x = np.ones(3)
    >>> rlx.add(x)
    Traceback (most recent call last):
        ...
    WrongInputCountError: add: takes 2 operands (a, b), not 1

    >>> rlx.add(x, 1)
    Array([2., 2., 2.])
    """


class MissingBiasError(WrongInputCountError):
    """A block is declared with a bias but received none.

    `has_bias` is part of the block, so that a model that is built from a
    description cannot lose its bias unnoticed; a bias without `has_bias` is
    refused for the same reason. `nn.linear` sets it by whether a bias is passed.

    >>> from rlx_core.ops.blocks import linear
    >>> x, w, b = np.ones((2, 3)), np.ones((3, 4)), np.ones(4)
    >>> linear(x, w, has_bias=True)
    Traceback (most recent call last):
        ...
    MissingBiasError: linear: has_bias is true, and no bias was given

    >>> linear(x, w, b, has_bias=True).shape
    (2, 4)
    >>> nn.linear(x, w).shape
    (2, 4)
    """


class TraceError(RlxError, TypeError):
    """Python needs something of a traced value that only a concrete one has.

    `rlx.jit`, `rlx.compile` and the gradients call a function once, with values
    that have a type but no elements yet, and record its operations. `if`, `while`,
    `float(x)` and `np.asarray(x)` need elements, so they cannot be recorded.

    >>> @rlx.jit
    ... def magnitude(x):
    ...     if x > 0:
    ...         return x
    ...     return -x
    >>> magnitude(np.float32(-2))
    Traceback (most recent call last):
        ...
    TraceError: trace: a truth value needs the elements of bool[], ...

    A choice between elements is an operation of the program:

    >>> rlx.jit(lambda x: rlx.where(x > 0, x, -x))(np.float32(-2))
    Array(2., dtype=float32)

    Code that depends on Python values alone (a layer count, a flag) may use `if`.
    The hint depends on the operation: `np.concatenate` is `rlx.concat` inside a
    program. A value that is kept after its trace has leaked: return it instead.
    """
