"""ONNX's node tests, each run as its own runner runs it, and what became of it."""

from __future__ import annotations

import tomllib
import warnings
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from attrs import frozen
from onnx import TensorProto, numpy_helper

from rlx_core.errors import RlxError
from rlx_onnx.backend import RlxBackend

LISTED = Path(__file__).with_name("refused.toml")


@frozen
class Outcome:
    """What became of a test.

    Attributes:
        kind: `passed`; `held`, which passed with inputs compiled in at their values; `drawn`, where other random numbers of the
            right type came; `refused` with a typed error; `wrong`.
        words: The error, or the difference.
    """

    kind: Literal["passed", "held", "drawn", "refused", "wrong"]
    words: str = ""


@cache
def cases() -> list[Any]:
    """All 1,884 of them; making them takes ten seconds."""
    from onnx.backend.test.loader import load_model_tests  # here, because importing it makes half of them

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the makers of the tests divide by zero
        found: list[Any] = load_model_tests(kind="node")
    return found


@cache
def listed() -> dict[str, dict[str, str]]:
    """The tests that are not passed, and why."""
    return tomllib.loads(LISTED.read_text())


def outcome(case: Any) -> Outcome:
    """Run a test on the CPU."""
    from onnx.backend.test.runner import Runner  # here, because it imports the makers too

    held = False
    for inputs, expected in case.data_sets:
        prepared = RlxBackend.prepare(case.model)
        try:
            found = prepared.run(inputs)
        except RlxError as error:
            return Outcome("refused", f"{type(error).__name__} {error}")
        held = held or bool(prepared.held)
        wanted = [numpy_helper.to_array(each) if isinstance(each, TensorProto) else each for each in expected]
        if case.name in listed()["drawn"]:
            alike = all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(wanted, found, strict=True))
            return Outcome("drawn") if alike and set(np.unique(found[0])) <= {0, 1} else Outcome("wrong", "other types")
        try:
            for a, b in zip(wanted, found, strict=True):
                pair = (a, b) if isinstance(b, list) else ([a], [b])  # the runner itself stumbles over lists of scalars
                Runner.assert_similar_outputs(*pair, case.rtol, case.atol)
        except (AssertionError, TypeError) as error:
            return Outcome("wrong", str(error))
    return Outcome("held" if held else "passed")
