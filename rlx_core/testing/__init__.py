"""The laws that every op, rule, kernel and backend must obey, as tests that a third party runs over its own.

    python -m pytest --pyargs rlx_core.testing                           the standard ops
    python -m pytest --pyargs rlx_core.testing --rlx-plugin=acme         contributions of a plugin, or a module's ops
    python -m pytest --pyargs rlx_core.testing --rlx-backend=cpu         a backend, against the interpreter
    python -m pytest --pyargs rlx_core.testing --rlx-backend=x --rlx-partial    a backend that may decline programs
    python -m pytest --pyargs rlx_core.testing --rlx-op=softmax          one op
    python -m pytest --pyargs rlx_core.testing --rlx-samples=one         one sample per op, another for each law
    python -m pytest --pyargs rlx_core.testing --rlx-samples=one --rlx-seed=7    another sample per op

They need pytest, which comes with the extra `rlx-core[testing]`.

`laws/` states each law once; `subjects.py` lists the contributions of a plugin; `cases.py` makes a program
of every sample that the ops provide, and `variants.py` further programs with other types; `choice.py` chooses the
programs that a law tries; `judges.py` and `differences.py` define the tolerances; `plugin.py` has the options and `summary.py`
prints the summary. A test suite of a plugin subclasses `EveryOp`.
"""
