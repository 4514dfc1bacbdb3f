"""Which code a configuration file may name: its own project's, written by nobody else."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import ConfigError
from rlx_core.pipeline.config import structure
from rlx_core.pipeline.config.reading import find_config, load_config, read_sources

POSIX = pytest.mark.skipif(os.name != "posix", reason="Windows has no owners and modes of this kind")
ROOT = pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0, reason="only root gives files away; run as root for it"
)

PLUGIN = """
from rlx_core.contributions import OptionSpec
from rlx_core.hooks import hookimpl

@hookimpl
def rlx_options():
    return [OptionSpec("extra.level", int, 3, "An option that only this plugin has.")]
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a plugin in a folder of its own, and a directory below it that programs are started in."""
    place = tmp_path / "project"
    for folder in (place, place / "plugins", place / "work"):
        folder.mkdir(mode=0o755)
    (place / "plugins" / "extra.py").write_text(PLUGIN)
    (place / "rlx.toml").write_text('[plugins]\nfiles = ["plugins/extra.py"]\n')
    for file in (place / "plugins" / "extra.py", place / "rlx.toml"):
        file.chmod(0o644)
    monkeypatch.chdir(place / "work")
    return place


def test_a_plugin_file_is_relative_to_the_configuration_that_names_it(project):
    found = read_sources().plugins()

    assert found.files == (str(project / "plugins" / "extra.py"),)
    (project / "rlx.toml").write_text('[plugins]\nenable = ["more=./plugins/extra.py"]\n')
    assert read_sources().plugins().enable == (f"more={project / 'plugins' / 'extra.py'}",)


def test_its_code_runs_wherever_the_program_is_started(project):
    (project / "rlx.toml").write_text('[plugins]\nfiles = ["plugins/extra.py"]\n[options]\n"extra.level" = 5\n')

    assert rlx.jit(lambda x: x + x)(np.ones(2, np.float32)).tolist() == [2, 2]


SPOILT = {
    "the configuration": lambda project: project / "rlx.toml",
    "the plugin": lambda project: project / "plugins" / "extra.py",
    "its directory": lambda project: project / "plugins",
    "the project": lambda project: project,
}


@POSIX
@pytest.mark.parametrize("who", [0o020, 0o002], ids=["a group", "all"])
@pytest.mark.parametrize("where", SPOILT)
def test_code_that_others_can_write_is_not_run(project, where, who):
    place = SPOILT[where](project)
    place.chmod(place.stat().st_mode | who)

    with pytest.raises(ConfigError, match=f"is not run, because {place} can be written by others") as refused:
        read_sources().plugins()
    assert f"chmod go-w {place}" in refused.value.hint
    assert "--config" in refused.value.hint
    with pytest.raises(ConfigError, match="is not run"):
        rlx.jit(lambda x: x + x)(np.ones(2, np.float32))


@ROOT
@pytest.mark.parametrize("where", sorted(SPOILT.keys() - {"the configuration"}))
def test_code_of_another_user_is_not_run(project, where):
    os.chown(SPOILT[where](project), 12345, 12345)

    with pytest.raises(ConfigError, match="belongs to user 12345"):
        read_sources().plugins()


@pytest.mark.parametrize("how", ["a path", "a link", "above"])
def test_code_outside_of_the_project_is_not_run(project, tmp_path, how):
    outside = tmp_path / "outside.py"
    outside.write_text(PLUGIN)
    if how == "a link":
        (project / "inside.py").symlink_to(outside)
    named = {"a path": str(outside), "a link": "inside.py", "above": "../outside.py"}[how]
    (project / "rlx.toml").write_text(f"[plugins]\nfiles = ['{named}']\n")

    with pytest.raises(ConfigError, match="is outside of the project") as refused:
        read_sources().plugins()
    assert "move it there" in refused.value.hint


@POSIX
def test_a_configuration_that_the_program_names_may_name_what_it_likes(project, tmp_path):
    (tmp_path / "outside.py").write_text(PLUGIN)
    (project / "rlx.toml").write_text("[plugins]\nfiles = ['../outside.py']\n")
    (project / "rlx.toml").chmod(0o666)

    assert [Path(f).name for f in read_sources(project / "rlx.toml").plugins().files] == ["outside.py"]


@POSIX
def test_a_configuration_that_names_no_code_is_read_as_ever(project):
    (project / "rlx.toml").write_text('use = "inference"\n')
    (project / "rlx.toml").chmod(0o666)

    assert load_config().use == "inference"


@ROOT
def test_the_section_in_another_users_pyproject_is_not_read(project):
    (project / "rlx.toml").unlink()
    file = project / "pyproject.toml"
    file.write_text('[tool.rlx]\nuse = "training"\n')
    assert find_config() == file
    os.chown(file, 12345, 12345)

    with pytest.warns(RuntimeWarning, match="is not read, because it belongs to user 12345"):
        assert find_config() is None
    assert load_config(file).use == "training"


@ROOT
@pytest.mark.parametrize("text", ['use = "inference"\n', "[printing]\nir-dump = '.'\n", "no TOML", "[t]\n" * 2**18])
def test_another_users_configuration_is_not_read(project, text):
    (project.parent / "rlx.toml").write_text('use = "training"\n')
    (project / "rlx.toml").write_text(text)
    assert find_config() == project / "rlx.toml"
    os.chown(project / "rlx.toml", 12345, 12345)

    with pytest.warns(RuntimeWarning, match="is not read, because it belongs to user 12345"):
        assert find_config() == project.parent / "rlx.toml"  # the next one above
    with pytest.warns(RuntimeWarning, match="is not read"):
        assert rlx.jit(lambda x: x + x)(np.ones(2, np.float32)).tolist() == [2, 2]


@ROOT
def test_another_users_link_to_our_configuration_is_not_read(project):
    (project / "rlx.toml").rename(project / "other.toml")
    (project / "rlx.toml").symlink_to("other.toml")
    assert find_config() == project / "rlx.toml"
    os.chown(project / "rlx.toml", 12345, 12345, follow_symlinks=False)

    with pytest.warns(RuntimeWarning, match="is not read, because it belongs to user 12345"):
        assert find_config() is None


@ROOT
@pytest.mark.parametrize("text", ["[tool.rlx", "[tool]\nother = 1\n", "\xff"])
def test_another_users_pyproject_cannot_stop_a_program(project, text, recwarn):
    (project / "rlx.toml").unlink()
    (project / "pyproject.toml").write_text(text, "latin-1")
    os.chown(project / "pyproject.toml", 12345, 12345)

    assert find_config() is None
    assert [str(each.message) for each in recwarn if "is not read" not in str(each.message)] == []


# ---------------------------------------------------------------------------------------- bounds


@pytest.mark.medium
def test_a_configuration_of_many_faults_takes_as_long_as_one_of_few(tmp_path, monkeypatch):
    searches = []
    monkeypatch.setattr(structure, "nearest", lambda *given: searches.append(given))
    file = tmp_path / "rlx.toml"
    file.write_text("".join(f"[t{i}]\n" for i in range(20_000)))

    with pytest.raises(ConfigError, match=r"t0: unknown key \(and more than 19 more\)") as refused:
        load_config(file)
    assert len(searches) <= 2 * (structure.MAX_FAULTS + 1)
    assert len(refused.value.facts) == 2 * structure.MAX_FAULTS
    assert all(fact.where == str(file) for fact in refused.value.facts[: structure.MAX_FAULTS])


def test_a_configuration_of_many_bytes_is_refused(tmp_path):
    file = tmp_path / "rlx.toml"
    file.write_text("# " + "x" * 2**20)

    with pytest.raises(ConfigError, match="has 1048578 bytes, and a configuration at most 1048576"):
        load_config(file)


# -------------------------------------------------------------------------- what is no configuration


def test_a_number_of_too_many_digits_is_no_toml(tmp_path):
    file = tmp_path / "rlx.toml"
    file.write_text(f"[memory]\nalignment = {'1' * 4500}\n")

    with pytest.raises(ConfigError, match=r"rlx.toml is not TOML: .*4300 digits"):
        load_config(file)


@pytest.mark.parametrize("table", [{3: 4}, {"memory": {3: 4}}, {"options": {"a": {None: 1}}}], ids=str)
def test_a_key_that_is_no_text_is_refused(table):
    with pytest.raises(ConfigError, match=r"a key is text, and (3|None) is"):
        rlx.jit(lambda x: x + x, config=table)(np.ones(2, np.float32))


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"], ids=ascii)
def test_what_is_no_path_is_refused(name):
    for config in (f"{name}.toml", {"cache.directory": name}, {"printing.ir-dump": name}):
        with pytest.raises(ConfigError, match="path"):
            rlx.jit(lambda x: x + x, config=config)(np.ones(2, np.float32))
