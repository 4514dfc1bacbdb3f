"""The laws that every op and every backend must obey, as tests that a third party runs over its own.

    pytest --pyargs rlx_core.testing                                     the standard ops
    pytest --pyargs rlx_core.testing --rlx-plugin=acme                   the ops of a plugin, or of a module
    pytest --pyargs rlx_core.testing --rlx-backend=cpu                   a backend, against the interpreter
    pytest --pyargs rlx_core.testing --rlx-op=softmax                    one op

`laws.py` states each law once; `cases.py` makes a program of every sample that the ops bring along; `differences.py` is the
independent judge of derivatives; `plugin.py` holds the options. A test suite of its own subclasses `EveryOp`.
"""
