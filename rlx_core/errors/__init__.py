"""Error classes of rlx, raised where an operation cannot be done.

Every error is built from the same four parts: one line with the operation and the *difference*, facts in the
user's own terms, a hint where one is likely right, and the page that explains the class (`rlx explain`), which is the
class's docstring: why it is refused, a program that fails, a program that works, both of which the tests run.
The parts stay on the exception (`facts`, `hint`), so tests and tools read fields, not prose.

Three kinds of failure are distinct: an `RlxError` is about the user's program or input; a `MissingRuleError` names the
missing rule and shows the method to write; `assert` is about rlx itself.
"""

from rlx_core.errors.base import Fact, RlxError, nearest
from rlx_core.errors.compiling import (
    BudgetError,
    CacheError,
    CycleError,
    LegalizeError,
    MissingRuleError,
    NoKernelError,
    PassOrderError,
    VerifyError,
    WrongStageError,
)
from rlx_core.errors.configuring import (
    ConfigError,
    DeviceError,
    DeviceUnavailableError,
    FileError,
    FormatError,
    PluginError,
    UnknownNameError,
)
from rlx_core.errors.devices import DeviceCallError, DeviceLostError, KernelBuildError, PlaceError
from rlx_core.errors.importing import UnsupportedError, unsupported
from rlx_core.errors.running import (
    BindingError,
    CallbackError,
    DeadlockError,
    DonatedError,
    GuardError,
    LengthMismatchError,
    MissingInputError,
    NonFiniteError,
    OutOfMemoryError,
)
from rlx_core.errors.writing import (
    AbsentNameError,
    AxisError,
    AxisNameError,
    DtypeError,
    IndexRangeError,
    MissingBiasError,
    PromotionError,
    ShapeError,
    TraceError,
    WrongInputCountError,
)

__all__ = [
    "AbsentNameError",
    "AxisError",
    "AxisNameError",
    "BindingError",
    "BudgetError",
    "CacheError",
    "CallbackError",
    "ConfigError",
    "CycleError",
    "DeadlockError",
    "DeviceCallError",
    "DeviceError",
    "DeviceLostError",
    "DeviceUnavailableError",
    "DonatedError",
    "DtypeError",
    "Fact",
    "FileError",
    "FormatError",
    "GuardError",
    "IndexRangeError",
    "KernelBuildError",
    "LegalizeError",
    "LengthMismatchError",
    "MissingBiasError",
    "MissingInputError",
    "MissingRuleError",
    "NoKernelError",
    "NonFiniteError",
    "OutOfMemoryError",
    "PassOrderError",
    "PlaceError",
    "PluginError",
    "PromotionError",
    "RlxError",
    "ShapeError",
    "TraceError",
    "UnknownNameError",
    "UnsupportedError",
    "VerifyError",
    "WrongInputCountError",
    "WrongStageError",
    "nearest",
    "unsupported",
]

# A traceback names a class by the module from which it is imported, not by the file that defines it.
for _name in __all__:
    globals()[_name].__module__ = __name__
del _name
