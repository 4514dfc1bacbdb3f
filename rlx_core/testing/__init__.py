"""The laws that every op, rule, kernel and backend must obey, as tests that a third party runs over its own.

    python -m pytest --pyargs rlx_core.testing                           the standard ops
    python -m pytest --pyargs rlx_core.testing --rlx-plugin=acme         what a plugin contributes, or a module's ops
    python -m pytest --pyargs rlx_core.testing --rlx-backend=cpu         a backend, against the interpreter
    python -m pytest --pyargs rlx_core.testing --rlx-backend=x --rlx-partial    one that may decline programs
    python -m pytest --pyargs rlx_core.testing --rlx-op=softmax          one op
    python -m pytest --pyargs rlx_core.testing --rlx-samples=one         of each op one sample, another for each law
    python -m pytest --pyargs rlx_core.testing --rlx-samples=one --rlx-seed=7    of each op another sample

They need pytest, which comes with the extra `rlx-core[testing]`.

`laws/` states each law once; `subjects.py` finds what a plugin contributes; `cases.py` makes a program
of every sample that the ops bring along, and `variants.py` others that their authors did not think of; `choice.py` says which
of them a law tries; `judges.py` and `differences.py` say what is near enough; `plugin.py` holds the options and `summary.py`
what is said in the end. A test suite of its own subclasses `EveryOp`.
"""
