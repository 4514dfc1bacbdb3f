"""Error classes of rlx, raised where an operation cannot be done.

Every error is built from the same four parts: one line with the operation and the *difference*, facts in the
user's own terms, a hint where one is likely right, and the page that explains the class (`rlx explain`), which is the
class's docstring: why it is refused, a program that fails, a program that works, both of which the tests run.
The parts stay on the exception (`facts`, `hint`), so tests and tools read fields, not prose.

Three kinds of failure are distinct: an `RlxError` is about the user's program or input; a `MissingRuleError` names the
missing rule and shows the method to write; `assert` is about rlx itself.
"""

from rlx_core.errors import base, compiling, configuring, running, writing
from rlx_core.errors.base import *
from rlx_core.errors.compiling import *
from rlx_core.errors.configuring import *
from rlx_core.errors.running import *
from rlx_core.errors.writing import *

__all__ = [
    *base.__all__,
    *compiling.__all__,
    *configuring.__all__,
    *running.__all__,
    *writing.__all__,
]

# A traceback names a class by the module from which it is imported, not by the file that defines it.
for _name in __all__:
    globals()[_name].__module__ = __name__
del _name
