"""Rates of words that are not standard terms, for each folder: they may fall and not rise.

A word counts where the field has a term for it; it counts in ordinary English too, so that the aim is a low rate and not zero.
`python tests/test_terminology.py` prints the rates of the tree.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from .source_trees import parsed, statements

ROOT = Path(__file__).parents[1]

PROSE = re.compile(
    r"\b(found|wanted|told|tells|apart|guests?|roads?|doors?|rooms?|besides?|lacks?|asked for|asks for|said|says|turned|turning|"
    r"held|holds good|stands? for|(?:is|are) none|of (?:its|their) own|whoever|anew|crossed|crosses|settled?|unsettled|parted|"
    r"spots?|seldom|abreast|dear(?:er|est)?|given back|let go|way back|taken apart|nobody|somebody|what (?:is|it|a|an|the) \w+|"
    r"those that|that of|that which|the likeliest|dealt|kept apart|made of|of what|to be had|as many as|"
    r"what \w+ (?:says|say|lacks|wants|holds))\b",
    re.IGNORECASE,
)
"""Words and phrases of comments, docstrings and pages."""

NAMES = frozenset(
    "found made wanted said there whole rest at of own apart held told given asked lacks beside besides dealt turned turning "  # noqa: SIM905
    "settled parted crossed kept room road door spot guest guests fewest most enough worth far small deep later dear seldom anew "
    "sure fit fits reaches stands told_apart".split()
)
"""Assigned names."""

PROSE_LIMITS: dict[str, float] = {
    "GLOSSARY.md": 0.0,
    "README.md": 0.0,
    "benchmarks": 0.0,
    "docs": 0.1,
    "docs/decisions": 0.6,
    "docs/how-to": 0.3,
    "docs/reference": 1.1,
    "examples": 2.1,
    "plugins/rlx_cpu": 1.0,
    "plugins/rlx_cuda": 0.4,
    "plugins/rlx_custom_ops": 1.3,
    "plugins/rlx_gpu": 0.7,
    "plugins/rlx_jax": 2.2,
    "plugins/rlx_metal": 0.0,
    "plugins/rlx_models": 1.8,
    "plugins/rlx_onnx": 1.3,
    "plugins/rlx_rocm": 0.0,
    "plugins/rlx_torch": 0.4,
    "plugins/rlx_wgpu": 1.1,
    "rlx_core": 0.8,
    "rlx_core/cli": 1.0,
    "rlx_core/codegen": 0.8,
    "rlx_core/contributions": 0.0,
    "rlx_core/device": 0.9,
    "rlx_core/draw": 0.0,
    "rlx_core/emit": 0.0,
    "rlx_core/errors": 1.4,
    "rlx_core/files": 0.6,
    "rlx_core/functions": 1.0,
    "rlx_core/hints": 0.0,
    "rlx_core/importing": 0.0,
    "rlx_core/ir": 0.7,
    "rlx_core/models": 0.0,
    "rlx_core/nn": 1.0,
    "rlx_core/ops": 1.0,
    "rlx_core/optim": 0.0,
    "rlx_core/passes": 0.1,
    "rlx_core/pipeline": 0.3,
    "rlx_core/plugins": 1.0,
    "rlx_core/quantization": 0.0,
    "rlx_core/run": 0.0,
    "rlx_core/runtime": 1.1,
    "rlx_core/special": 0.0,
    "rlx_core/system": 0.9,
    "rlx_core/testing": 0.2,
    "rlx_core/transforms": 1.1,
    "rlx_core/trees": 0.0,
    "rlx_core/tuning": 0.0,
}
"""Folder → words per 1,000 of its prose."""

NAME_LIMITS: dict[str, float] = {
    "benchmarks": 0.0,
    "docs": 3.2,
    "examples": 0.0,
    "plugins/rlx_cpu": 0.4,
    "plugins/rlx_cuda": 0.0,
    "plugins/rlx_custom_ops": 0.5,
    "plugins/rlx_gpu": 0.9,
    "plugins/rlx_jax": 0.0,
    "plugins/rlx_metal": 0.0,
    "plugins/rlx_models": 0.0,
    "plugins/rlx_onnx": 3.8,
    "plugins/rlx_rocm": 0.0,
    "plugins/rlx_torch": 1.1,
    "plugins/rlx_wgpu": 2.5,
    "rlx_core": 0.0,
    "rlx_core/cli": 1.2,
    "rlx_core/codegen": 1.5,
    "rlx_core/contributions": 0.0,
    "rlx_core/device": 3.2,
    "rlx_core/draw": 0.0,
    "rlx_core/emit": 0.0,
    "rlx_core/errors": 0.0,
    "rlx_core/files": 0.0,
    "rlx_core/functions": 0.0,
    "rlx_core/hints": 0.0,
    "rlx_core/importing": 0.0,
    "rlx_core/ir": 1.1,
    "rlx_core/models": 0.0,
    "rlx_core/nn": 0.0,
    "rlx_core/ops": 0.3,
    "rlx_core/optim": 0.0,
    "rlx_core/passes": 0.6,
    "rlx_core/pipeline": 0.0,
    "rlx_core/plugins": 1.9,
    "rlx_core/quantization": 0.0,
    "rlx_core/run": 1.0,
    "rlx_core/runtime": 3.0,
    "rlx_core/special": 0.0,
    "rlx_core/system": 0.0,
    "rlx_core/testing": 0.0,
    "rlx_core/transforms": 0.0,
    "rlx_core/trees": 0.0,
    "rlx_core/tuning": 0.0,
}
"""Folder → names per 1,000 of its assigned names."""


def folder_of(file: Path) -> str:
    parts = file.relative_to(ROOT).parts
    is_whole = len(parts) <= 2 or parts[0] in ("benchmarks", "examples")
    return parts[0] if is_whole else "/".join(parts[:2])


def files() -> Iterator[Path]:
    code = ("rlx_core/**/*.py", "plugins/*/src/**/*.py", "benchmarks/**/*.py", "examples/**/*.py")
    for pattern in (*code, "plugins/*/*.md", "docs/**/*.md", "docs/*.py", "*.md"):
        yield from (path for path in sorted(ROOT.glob(pattern)) if path.name != "CHANGELOG.md")


def prose(path: Path) -> Iterator[str]:
    """The lines of comments and docstrings of a module, or of a page outside of its code blocks."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        for number, part in enumerate(re.split(r"^```.*$", text, flags=re.MULTILINE)):
            if number % 2 == 0:
                yield from part.splitlines()
        return
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    yield from (token.string for token in tokens if token.type == tokenize.COMMENT)
    for node in (parsed(path), *statements(parsed(path))):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else ():
            if (
                isinstance(each, ast.Expr)
                and isinstance(each.value, ast.Constant)
                and isinstance(each.value.value, str)
            ):
                yield from each.value.value.splitlines()


def assigned(path: Path) -> Iterator[str]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


@cache
def rates() -> tuple[dict[str, float], dict[str, float]]:
    """Words per 1,000 of prose, and names per 1,000 assigned ones, by folder."""
    words, hits, names, odd = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for path in files():
        folder = folder_of(path)
        for line in prose(path):
            words[folder] += len(line.split())
            hits[folder] += len(PROSE.findall(line))
        if path.suffix == ".py":
            each = list(assigned(path))
            names[folder] += len(each)
            odd[folder] += sum(name.lower().strip("_") in NAMES for name in each)
    return (
        {folder: 1000 * hits[folder] / count for folder, count in words.items()},
        {folder: 1000 * odd[folder] / count for folder, count in names.items()},
    )


@pytest.mark.parametrize(("kind", "limits"), [(0, PROSE_LIMITS), (1, NAME_LIMITS)], ids=["prose", "names"])
def test_rates_do_not_rise(kind: int, limits: dict[str, float]) -> None:
    found = rates()[kind]
    assert found.keys() == limits.keys(), "give a new folder its limit: 3 for prose, 6 for names"
    risen = {folder: (round(rate, 2), limits[folder]) for folder, rate in found.items() if rate > limits[folder]}
    assert risen == {}, "use the terms of the field (GLOSSARY.md), or standard English"


if __name__ == "__main__":
    for rate in rates():
        print({folder: -(-int(10 * value + 0.999999) // 1) / 10 for folder, value in sorted(rate.items())})
