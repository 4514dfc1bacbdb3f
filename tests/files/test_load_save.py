"""`rlx.load` and `rlx.save`: the suffix chooses who reads and writes, and a program read back runs as before."""

from __future__ import annotations

import re

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.contributions import ExporterSpec, ImporterSpec
from rlx_core.errors import ConfigError, FileError, FormatError, UnknownNameError
from rlx_core.hints.packages import KnownPackage
from rlx_core.hooks import hookimpl
from rlx_core.ir.module import Module
from rlx_core.plugins import PluginEntry, PluginHost, explain

X = np.float32([[1, -2, 3]])


def model(x):
    return nn.gelu(nn.linear(x, np.float32([[1, 2], [3, 4], [5, 6]])))


def test_arrays_are_saved_and_loaded_by_suffix(tmp_path):
    rlx.save(tmp_path / "w.safetensors", {"x": X})

    np.testing.assert_array_equal(rlx.load(str(tmp_path / "w.safetensors"))["x"], X)


def test_the_case_of_a_suffix_does_not_matter(tmp_path):
    rlx.save(tmp_path / "W.SafeTensors", {"x": X})

    assert rlx.load(tmp_path / "W.SafeTensors").keys() == {"x"}


@pytest.mark.parametrize(
    "wrap", [lambda g: g, Module.of_hir, lambda g: Module.of_hir(g).lower()], ids=["graph", "HIR", "MIR"]
)
def test_a_program_read_back_is_equal_and_compiles_to_the_same(tmp_path, wrap):
    program = wrap(rlx.trace(model, X))
    rlx.save(tmp_path / "model.rlx", program)
    loaded = rlx.load(tmp_path / "model.rlx")

    assert loaded == program
    graph = loaded if isinstance(loaded, rlx.Graph) else loaded.content
    (found,) = rlx.Session().compile(graph).run({"x": X})
    np.testing.assert_array_equal(found, rlx.jit(model)(X))


def test_a_program_cut_or_damaged_is_refused_with_the_file(tmp_path):
    rlx.save(tmp_path / "model.rlx", rlx.trace(model, X))
    whole = (tmp_path / "model.rlx").read_bytes()
    bad = tmp_path / "bad.rlx"
    for data in (whole[:-1], whole[:20], b"", whole[:-1] + bytes([whole[-1] ^ 1])):
        bad.write_bytes(data)
        with pytest.raises(FormatError) as caught:
            rlx.load(bad)
        assert caught.value.facts[-1].value == bad


@pytest.mark.parametrize("suffix", [".safetensors", ".rlx"])
def test_a_value_of_another_kind_is_refused_and_nothing_is_written(tmp_path, suffix):
    with pytest.raises(FormatError, match="not a int"):
        rlx.save(tmp_path / f"a{suffix}", 3)
    assert not list(tmp_path.iterdir())


def test_an_unknown_suffix_names_the_nearest(tmp_path):
    with pytest.raises(UnknownNameError, match=re.escape(".safetensor: no plugin can import")) as caught:
        rlx.load(tmp_path / "w.safetensor")
    assert caught.value.hint == "did you mean `.safetensors`?"
    with pytest.raises(UnknownNameError, match=re.escape(".safetensor: no plugin can export")):
        rlx.save(tmp_path / "w.safetensor", {})
    with pytest.raises(UnknownNameError, match="no suffix: no plugin can import"):
        rlx.load(tmp_path / "weights")


def test_an_unknown_suffix_names_the_package_that_is_known_to_have_it(tmp_path, monkeypatch):
    monkeypatch.setattr(explain, "known_packages", lambda: {"import.acme": KnownPackage("acme-rlx")})

    with pytest.raises(UnknownNameError, match="acme-rlx") as caught:
        rlx.load(tmp_path / "model.acme")
    assert caught.value.hint == "python -m pip install acme-rlx"


class Acme:
    """A stranger's format: lines of numbers."""

    @hookimpl
    def rlx_importers(self):
        return [ImporterSpec("acme.lines", lambda path, host: np.loadtxt(path), suffixes=[".lines"])]

    @hookimpl
    def rlx_exporters(self):
        return [ExporterSpec("acme.lines", lambda path, value, host: np.savetxt(path, value), suffixes=[".lines"])]


def test_a_plugin_brings_a_format(tmp_path):
    host = PluginHost([PluginEntry("acme", plugin=Acme())])
    rlx.save(tmp_path / "x.lines", X, host=host)

    np.testing.assert_array_equal(rlx.load(tmp_path / "x.lines", host=host), X[0])


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"], ids=ascii)
@pytest.mark.parametrize("suffix", ["safetensors", "rlx"])
def test_what_is_no_path_is_refused_as_a_file_is(tmp_path, name, suffix):
    path = f"{tmp_path}/{name}.{suffix}"
    with pytest.raises(FileError, match=r"load: .* is no path"):
        rlx.load(path)
    with pytest.raises(FileError, match=r"save: .* is no path"):
        rlx.save(path, {"x": X})


def test_a_name_that_is_no_text_of_any_file_is_refused(tmp_path):
    with pytest.raises(FormatError, match=r"safetensors: '\\ud800' in a name or a text is no character"):
        rlx.save(tmp_path / "w.safetensors", {"w\ud800": X})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("digest", [5, "", "0" * 63, "g" * 64, b"0" * 64])
def test_a_digest_is_64_hex_digits(tmp_path, digest):
    path = tmp_path / "x.safetensors"
    rlx.save(path, {"x": np.ones(2, np.float32)})
    with pytest.raises(ConfigError, match="sha256 is a text of 64 hex digits"):
        rlx.load(path, sha256=digest)
