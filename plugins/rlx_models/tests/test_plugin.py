"""The plugin: imports without torch, names of rlx, former names, and readers of other packages."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_checkpoints import CONFIGS, written
from typer.testing import CliRunner

import rlx_core as rlx
import rlx_models
from rlx_core.cli.main import app
from rlx_core.errors import ConfigError, PluginError, UnknownNameError, WrongInputCountError
from rlx_models.readers import GROUP, ReadRequest, find_reader, reader_names

IMPORTS = """
import pkgutil, sys, importlib, rlx_models
for module in pkgutil.walk_packages(rlx_models.__path__, "rlx_models."):
    if module.name != "rlx_models.serving.server":  # it needs the extra `serve`
        importlib.import_module(module.name)
sys.exit(bool({"torch", "transformers", "tokenizers", "llguidance", "starlette", "uvicorn", "rlx_torch"} & set(sys.modules)))
"""


@pytest.mark.medium
def test_no_module_imports_torch() -> None:
    assert subprocess.run([sys.executable, "-c", IMPORTS], check=False).returncode == 0


def test_the_package_has_the_functions_of_rlx() -> None:
    assert rlx.from_pretrained is rlx_models.from_pretrained
    assert callable(rlx_models.generate)
    assert issubclass(rlx_models.PretrainedModel, rlx.Model)
    with pytest.raises(AttributeError, match="has no generator"):
        _ = rlx_models.generator


@pytest.mark.parametrize(
    ("former", "present"),
    [
        ("features", "input_features="),
        ("stop", "eos_token_id="),
        ("until", "stopping_criterion="),
        ("suppress", "suppress_tokens="),
        ("suppress_first", "begin_suppress_tokens="),
    ],
)
def test_former_keywords_of_generate_state_the_present_ones(former: str, present: str, tmp_path: Path) -> None:
    model = rlx.from_pretrained(written(tmp_path / "m", CONFIGS["llama"]))
    with pytest.raises(UnknownNameError, match=f"not {former}=") as caught:
        rlx_models.generate(model, [[1]], 1, **{former: None})
    assert caught.value.hint == present


def test_former_names_of_models_state_the_present_ones(tmp_path: Path) -> None:
    model = rlx.from_pretrained(written(tmp_path / "m", CONFIGS["clip"]))
    with pytest.raises(ConfigError, match="part was renamed") as caught:
        model.part("texts")
    assert "submodel" in str(caught.value)
    with pytest.raises(ConfigError, match="generation was renamed") as caught:
        _ = model.generation
    assert "generation_config" in str(caught.value)
    with pytest.raises(WrongInputCountError, match="input_ids"):
        model(ids=np.array([[1]]), pixels=np.zeros((1, 1, 8, 8), np.float32))


def test_the_former_option_of_the_command_states_the_present_one(tmp_path: Path) -> None:
    folder = written(tmp_path / "m", CONFIGS["llama"])
    result = CliRunner().invoke(app, ["generate", str(folder), "one", "--tokens", "3"])
    assert result.exit_code == 2
    assert "--max-new-tokens 3" in result.output
    assert "--tokens" not in CliRunner().invoke(app, ["generate", "--help"]).output


def fake_entry_points(monkeypatch: pytest.MonkeyPatch, **readers: str) -> None:
    """Replace the installed readers by `name="module:function"`."""
    points = [importlib.metadata.EntryPoint(name, value, GROUP) for name, value in readers.items()]

    def entry_points(**selection: str) -> Any:
        return importlib.metadata.EntryPoints(points).select(**selection)

    monkeypatch.setattr("rlx_models.readers.entry_points", entry_points)


def read_as_llama(request: ReadRequest) -> Any:
    """A reader of another package: an architecture of this one by the configuration in another file."""
    config = rlx_models.checkpoints.Config(json.loads((request.folder / "other.json").read_text()))
    architecture = rlx_models.architectures.ARCHITECTURES["llama"](config)
    rng = np.random.default_rng(0)
    shapes = architecture.shapes.items()
    return architecture, {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes}


@pytest.mark.medium
def test_a_reader_of_another_package_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "acme_reader", sys.modules[__name__])
    fake_entry_points(monkeypatch, acme="acme_reader:read_as_llama")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "acme"}))
    (tmp_path / "other.json").write_text(json.dumps(CONFIGS["llama"]))
    model = rlx.from_pretrained(tmp_path, reader="acme")
    assert (model.name, model.reader) == ("acme", "acme")
    assert model(np.array([[1, 2, 3]])).shape == (1, 3, 11)
    assert reader_names() == ["rlx", "acme", "transformers"]


def test_an_unknown_reader_is_rejected_with_the_names_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_entry_points(monkeypatch, acme="acme_reader:read")
    with pytest.raises(ConfigError, match="unknown reader 'onnx'") as caught:
        find_reader("onnx")
    assert caught.value.hint == "the readers are rlx, acme, transformers"


def test_a_reader_without_its_packages_states_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_entry_points(monkeypatch)
    with pytest.raises(PluginError, match="reader='transformers' is not installed") as caught:
        find_reader("transformers")
    assert caught.value.hint == "python -m pip install 'rlx-torch[models]'"
    fake_entry_points(monkeypatch, transformers="a_module_that_is_not_installed:read")
    with pytest.raises(PluginError, match="needs a_module_that_is_not_installed, which is not installed") as caught:
        find_reader("transformers")
    assert "rlx-torch[models]" in str(caught.value)
