"""Train the classifier of `examples/digits.py` and write it for the page in this folder, which needs no rlx server.

python examples/browser/export.py
python -m http.server -d examples/browser
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import rlx_core as rlx
from rlx_core import nn
from rlx_wgpu.export import export

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
digits: Any = import_module("digits")


def shares_and_digit(params: Any, x: Any) -> tuple[Any, Any]:
    """The probability of each digit, f32[1, 10], and the most probable digit, i64[1]."""
    scores = digits.logits(params, x)
    return nn.softmax(scores), rlx.argmax(scores, axis=-1)


def main() -> None:
    params, loss = digits.initial(), float("nan")
    for params, loss in digits.train(epochs=20):  # noqa: B007 - the last ones are used below
        pass
    program = rlx.compile(shares_and_digit, params, rlx.spec("f32[1, 64]"), target="wgpu:absent")
    form, contents = export(program, HERE / "site")
    print(f"loss {loss:.4f}; {form} and {contents}, {form.stat().st_size + contents.stat().st_size} bytes")


if __name__ == "__main__":
    main()
