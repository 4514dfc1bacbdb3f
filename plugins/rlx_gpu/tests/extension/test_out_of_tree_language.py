"""A package outside of the repository adds a language and its target by public names, and its programs agree with the CPU's."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import kit as core_kit
from rlx_core import nn
from rlx_core.errors import DeviceUnavailableError, IndexRangeError, NoKernelError
from rlx_core.plugins import PluginHost
from rlx_gpu import kit
from rlx_gpu.testing.shim.compiler import compiler

pytest.importorskip("rlx_cpu", reason="it compares with the CPU: rlx-cpu is not installed")

PACKAGE = Path(__file__).with_name("acme_gpu")
STAND_IN = {"rlx_gpu.testing.shim.dialects", "rlx_gpu.testing.shim.driver"}
PUBLIC = {"rlx_core", "rlx_core.contributions", "rlx_core.errors", "rlx_core.hooks", "rlx_core.kit", "rlx_gpu.kit"}

X = np.linspace(-3, 3, 7 * 33, dtype=np.float32).reshape(7, 33)
W = np.cos(np.arange(33 * 18, dtype=np.float32)).reshape(33, 18)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginHost]:
    """A host that discovers the package as an installed one, by the metadata that an installer writes of its pyproject.toml."""
    try:
        compiler()
    except DeviceUnavailableError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    site = tmp_path_factory.mktemp("site")
    info = site / f"acme_gpu-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    rows = [line for group, rows in groups for line in (f"[{group}]", *(f"{k} = {v}" for k, v in rows.items()))]
    (info / "entry_points.txt").write_text("\n".join(rows) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        patch.syspath_prepend(str(PACKAGE / "src"))
        patch.setenv("RLX_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield PluginHost()
        for name in [name for name in sys.modules if name.partition(".")[0] == "acme_gpu"]:
            del sys.modules[name]


def gelu(x: Any) -> Any:
    return nn.gelu(x * 1.5 + 0.25)


def mean_and_maximum(x: Any) -> Any:
    return rlx.mean(x, axis=-1), rlx.max(x, axis=0), rlx.sum(x)


def softmax(x: Any) -> Any:
    return nn.softmax(x)


def product(x: Any) -> Any:
    return rlx.maximum(x @ W, 0.0)


def ordered(x: Any) -> Any:
    return rlx.cumulative_sum(rlx.sort(x, axis=-1), axis=-1)


@pytest.mark.medium
@pytest.mark.parametrize("function", [gelu, mean_and_maximum, softmax, product, ordered], ids=lambda f: f.__name__)
@pytest.mark.parametrize("poison", [False, True], ids=["", "poison"])
def test_programs_on_the_language_agree_with_the_cpu(
    host: PluginHost, function: Callable[..., Any], poison: bool
) -> None:
    """No step may run on the host: `dispatch.allow-host` is not given."""
    config = {"options": {"acme.poison": poison}}
    results = rlx.jit(function, target="acme", host=host, config=config)(X)
    expected = rlx.jit(function, target="cpu")(X)
    pairs = zip(results, expected, strict=True) if isinstance(results, tuple) else [(results, expected)]
    for result, right in pairs:
        # f32: the order of sums of 33 to 231 terms, and functions of 4 ulp
        np.testing.assert_allclose(np.asarray(result), np.asarray(right), rtol=4e-6, atol=4e-6)


def test_the_source_is_in_the_language(host: PluginHost) -> None:
    program = rlx.compile(product, rlx.spec("f32[7, 33]"), target="acme", host=host)
    assert "acme" in program.report.target
    source = program.emit("acme")
    assert re.search(r"^acme_kernel\(\d+\) \w+\(on_device const f32\* ", source, re.MULTILINE)
    assert "__global__" not in source


@pytest.mark.medium
def test_faults_and_missing_dtypes_are_errors_with_names(host: PluginHost) -> None:
    """The language's own atomic minimum reports the index; a dtype that it does not have is refused by name."""
    take = rlx.jit(lambda x, i: rlx.take(x, i, axis=0), target="acme", host=host)
    with pytest.raises(IndexRangeError, match="9"):
        np.asarray(take(X, np.array([2, 9], np.int32)))
    with pytest.raises(NoKernelError, match="f64"):
        rlx.jit(gelu, target="acme", host=host)(X.astype(np.float64))


def test_the_package_imports_public_names_only() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    modules = set(re.findall(r"^from (rlx_\w+(?:\.\w+)*) import", text, re.MULTILINE))
    assert modules <= PUBLIC | STAND_IN
    assert {"rlx_core.kit", "rlx_gpu.kit"} <= modules
    for module, names in (("rlx_core.kit", core_kit.__all__), ("rlx_gpu.kit", kit.__all__)):
        used = re.findall(rf"^from {module} import (.+)$", text, re.MULTILINE)
        assert {name.strip() for line in used for name in line.split(",")} <= set(names)
