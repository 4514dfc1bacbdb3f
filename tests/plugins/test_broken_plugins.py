"""Every kind of broken plugin is harmless to programs that do not use it, and is reported by its name."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.cli.checking import checks
from rlx_core.errors import RlxError
from rlx_core.plugins import PluginEntry, PluginHost, default_host

from .broken import GIVEN, INSTALLED, Broken
from .guests import EVERYWHERE, X

KINDS = (*INSTALLED, *GIVEN)
HAS_NATIVE_CODE = all(importlib.util.find_spec(name) is not None for name in ("rlx_cpu", "llvmlite"))


def test_the_table_has_as_many_kinds_as_were_found_by_testers() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS) >= 97


def version_of(kind: Broken) -> str:
    """A version for each kind: compiled programs are kept by the plugins' versions."""
    return f"1.{KINDS.index(kind)}"


def unrelated(host: PluginHost) -> None:
    """Programs that have nothing to do with the plugin."""
    np.testing.assert_allclose(rlx.jit(lambda x: rlx.tanh(x) * 2, host=host)(X), np.tanh(X) * 2, rtol=1e-5)
    gradient = rlx.jit(rlx.grad(lambda x: rlx.sum(rlx.tanh(x))), host=host)
    np.testing.assert_allclose(gradient(X), 1 - np.tanh(X) ** 2, rtol=1e-5)


def listing(host: PluginHost) -> str:
    """What the listings say."""
    rows = [f"{row.name} {row.distribution} {row.label}: {row.reason}" for row in host.survey()]
    findings = [*checks.plugins(host, True), *checks.contributions(host, True)]
    return "\n".join([*rows, *(f"{each.name} {each.found}; {each.mend}" for each in findings)])


def reported(kind: Broken, host: PluginHost, folder: Path) -> str:
    """What a user of the plugin is told: the error, or the warning where the use succeeds all the same."""
    assert kind.use is not None, "others are reported by the listings"
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        if kind.falls_back:
            kind.use(host, folder)
            return "\n".join(str(each.message) for each in seen)
        with pytest.raises(RlxError) as caught:
            kind.use(host, folder)
        return str(caught.value)


@pytest.mark.medium
@pytest.mark.parametrize("kind", GIVEN, ids=lambda kind: kind.name)
def test_a_broken_plugin_is_harmless_and_named(kind: Broken, tmp_path: Path) -> None:
    if kind.name.startswith("emitter") and not HAS_NATIVE_CODE:
        pytest.skip("the target cpu has no native code here")
    assert kind.plugin is not None
    # A plugin with the condition `target` would offer its backend as the default, to programs that are not its own.
    when = () if kind.name.startswith(("backend", "device")) else EVERYWHERE
    name = "fake" if kind.name.startswith("device") else "acme"
    entry = PluginEntry(name, plugin=kind.plugin(), distribution="acme-rlx", version=version_of(kind), when=when)
    host = PluginHost([*default_host().entries, entry])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        unrelated(host)
    said = listing(host) if kind.use is None else reported(kind, host, tmp_path)
    assert kind.says in said
    assert "acme-rlx" in said
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        unrelated(host)


@pytest.mark.medium
@pytest.mark.parametrize("kind", INSTALLED, ids=lambda kind: kind.name)
def test_a_plugin_that_cannot_be_imported_is_harmless_and_named(kind: Broken, site) -> None:
    module = site.install("acme", requires=kind.requires, when=EVERYWHERE, module=kind.module or "acme_broken")
    if kind.module is None:
        source = kind.source if isinstance(kind.source, bytes) else kind.source.encode()
        (site.path / f"{module}.py").write_bytes(source)
    else:
        (site.path / f"{module}.py").unlink()
    host = PluginHost()
    unrelated(host)
    said = listing(host)
    assert kind.says in said
    assert "acme-rlx" in said
