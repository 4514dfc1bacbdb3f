"""What the MiniLM example holds in memory: its weights, its arena and little more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWANCE = (
    60e6  # bytes for everything else: the compiler's own code and graphs, the tokenizer, the caches of allocators
)

PEAK = """
import resource, sys

def peak():
    # Linux says kilobytes, macOS bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
"""

BASELINE = "import numpy\nprint(peak())"

RUN = """
import json, pathlib
import minilm

sentences = ["A compiler turns programs into programs.", "Bread.", "Attention must not see the padding of a batch."]
model, tokenizer = minilm.build(target="cpu")
embeddings = model(*minilm.tokenize(tokenizer, sentences))
assert embeddings.shape == (3, 384)
report = model.report
weights = minilm.model_files()["model.safetensors"].stat().st_size
print(json.dumps({"peak": peak(), "arena": report.arena_nbytes, "weights": weights, "prepared": report.prepared_nbytes}))
"""


def run(program: str, cache: Path) -> str:
    environment = {**os.environ, "RLX_CACHE_DIR": str(cache)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "examples"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, "-c", PEAK + program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(
    not any(d.name == "rlx-cpu" for d in distributions()), reason="needs rlx-cpu installed, as `make test` does"
)
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no getrusage")
@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_minilm_needs_its_weights_its_arena_and_little_more(tmp_path: Path, cache: str) -> None:
    pytest.importorskip("tokenizers", reason="needs the packages of the demo")
    baseline = int(run(BASELINE, tmp_path))
    if cache == "warm":
        run(RUN, tmp_path)
    found = json.loads(run(RUN, tmp_path))

    beyond = found["peak"] - baseline
    allowed = found["weights"] + found["arena"] + ALLOWANCE
    numbers = {name: f"{count / 1e6:.1f} MB" for name, count in {**found, "baseline": baseline}.items()}
    assert found["arena"] > 0, "the plan of the sizes that ran is reported"
    assert beyond <= allowed, (
        f"{beyond / 1e6:.1f} MB beyond the interpreter with NumPy, {allowed / 1e6:.1f} allowed: {numbers}"
    )
