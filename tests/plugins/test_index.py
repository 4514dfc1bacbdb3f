"""The index on disk is a copy: fast when it is right, and never believed when it is not."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest

from rlx_core.hooks import API_VERSION
from rlx_core.plugins import PluginEntry, PluginOrigin, index, installed_plugins
from rlx_core.plugins.index import core_requirements, scan


@pytest.fixture
def path(site):
    """Search only the site directory, so that what else is installed here plays no part."""
    return [str(site.path)]


@pytest.fixture
def cached(tmp_path):
    """The files of the remembered index."""
    return lambda: sorted((tmp_path / "cache" / "plugins").glob("*"))


@pytest.fixture
def scans(monkeypatch):
    """How often the metadata was really read."""
    count = []
    monkeypatch.setattr(index, "scan", lambda path: count.append(1) or scan(path))
    return count


def test_an_entry_holds_all_that_is_decided_before_import(site, path):
    requires = ("rlx-core>=0.1,<0.2", "numpy", "rlx_core>=9; extra == 'future'", "rlx-core-extras>9")
    module = site.install("acme", requires=requires, when=("compile", "target.gpu"), version="3.2")

    found = {entry.name: entry for entry in installed_plugins(path).entries}

    assert found["acme"] == PluginEntry(
        "acme",
        module,
        "acme-rlx",
        "3.2",
        ("rlx-core>=0.1,<0.2", "rlx_core>=9; extra == 'future'"),
        ("compile", "target.gpu"),
        str(site.path / "acme_rlx-3.2.dist-info"),
        others=("rlx-core-extras>9",),
    )
    assert found["acme"].incompatible is None
    assert found["rlx"].origin is PluginOrigin.BUILTIN  # rlx-core itself, installed or not


def test_the_second_look_reads_the_remembered_index(site, path, scans, cached):
    site.install("acme", requires=("rlx-core>=99",))
    site.settle()

    first, second = installed_plugins(path), installed_plugins(path)

    assert len(scans) == 1
    assert first == second
    assert second.entries[0].incompatible == f"needs rlx-core >=99, and this is {API_VERSION}"
    assert len(cached()) == 1
    assert os.name == "nt" or cached()[0].parent.stat().st_mode & 0o777 == 0o700


def test_installing_and_removing_are_noticed(site, path):
    site.install("acme")
    site.settle()
    installed_plugins(path)

    site.install("other")

    assert [entry.name for entry in installed_plugins(path).entries] == ["acme", "other", "rlx"]


def test_metadata_changed_in_place_is_noticed(site, path):
    module = site.install("acme")
    site.settle()
    installed_plugins(path)

    points = next(site.path.glob("acme*/entry_points.txt"))
    points.write_text(f"[rlx.plugins]\nrenamed = {module}\n")

    assert [entry.name for entry in installed_plugins(path).entries] == ["renamed", "rlx"]


def test_a_directory_without_distributions_does_not_matter(site, path, tmp_path, scans):
    """The directory of a script is on the path as well, and changes with every file that is saved."""
    site.install("acme")
    site.settle()
    for number in range(3):
        (tmp_path / "script").mkdir(exist_ok=True)
        (tmp_path / "script" / f"draft{number}.py").touch()
        installed_plugins([str(tmp_path / "script"), str(tmp_path / "absent"), *path])

    assert len(scans) == 1


def test_a_directory_that_may_still_change_is_not_remembered(site, path, cached):
    """Two changes within one tick of the file system's clock leave the same time behind."""
    site.install("acme")

    installed_plugins(path)

    assert cached() == []


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b'{"entries": 3, "faults": [], "sources": {}}',
        b'{"entries": [{}], "faults": [], "sources": {}}',
        b'{"entries": [{"name": 1}], "faults": [], "sources": []}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_means_a_scan_and_is_replaced(site, path, scans, cached, damage):
    site.install("acme")
    site.settle()
    good = installed_plugins(path)
    cached()[0].write_bytes(damage)

    assert installed_plugins(path) == good
    assert len(scans) == 2
    assert json.loads(cached()[0].read_text())["entries"]


@pytest.mark.parametrize("label", ["name", "module", "requires", "origin", "surprise"])
def test_an_entry_with_a_wrong_field_means_a_scan(site, path, cached, label):
    site.install("acme")
    site.settle()
    good = installed_plugins(path)
    content = json.loads(cached()[0].read_text())
    content["entries"][0][label] = 7
    cached()[0].write_text(json.dumps(content))

    assert installed_plugins(path) == good


def foreign(file):
    os.chown(file, os.geteuid() + 1, -1)


SPOILT = {
    "written by a group": lambda file: file.chmod(0o660),
    "written by all": lambda file: file.chmod(0o602),
    "a link": lambda file: file.symlink_to(file.rename(file.with_suffix(".moved"))),
    "in a directory that others write to": lambda file: file.parent.chmod(0o770),
    "below one that others write to": lambda file: file.parent.parent.chmod(0o777),
    "another user's": foreign,
}


@pytest.mark.skipif(os.name != "posix", reason="Windows has neither these modes nor these links")
@pytest.mark.parametrize("spoil", SPOILT)
def test_an_index_that_others_may_have_written_is_not_believed(site, path, scans, cached, spoil):
    """It names modules to import."""
    if spoil == "another user's" and os.geteuid() != 0:
        pytest.skip("only root gives files away; CI runs as root in a container")
    site.install("acme")
    site.settle()
    good = installed_plugins(path)
    (file,) = cached()
    file.write_text(file.read_text().replace("acme", "evil"))
    SPOILT[spoil](file)

    assert installed_plugins(path) == good
    assert len(scans) == 2


def test_an_index_of_other_places_is_not_believed(site, path, scans, cached, tmp_path):
    """A file that is whole and another key's."""
    site.install("acme")
    site.settle()
    good = installed_plugins(path)
    (file,) = cached()
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "key": "index-0", "entries": []}))

    assert installed_plugins(path) == good
    assert len(scans) == 2


def test_a_cache_that_cannot_be_written_costs_only_time(site, path, tmp_path):
    site.install("acme")
    site.settle()
    (tmp_path / "cache").write_text("a file where the directory should be")

    assert [entry.name for entry in installed_plugins(path).entries] == ["acme", "rlx"]


def test_a_user_without_a_home_costs_only_time(site, path, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    site.install("acme")
    monkeypatch.setattr(index, "cache_directory", homeless)

    assert [entry.name for entry in installed_plugins(path).entries] == ["acme", "rlx"]


def test_one_unreadable_distribution_hides_no_other(site, path):
    site.install("acme")
    site.install("torn")
    next(site.path.glob("torn*/entry_points.txt")).write_bytes(b"\xff\xff[rlx.plugins]")

    found = installed_plugins(path)

    assert [entry.name for entry in found.entries] == ["acme", "rlx"]
    assert len(found.faults) == 1
    assert "torn_rlx-1.0.dist-info" in found.faults[0]


def test_of_two_versions_the_first_on_the_path_counts(site, path, tmp_path):
    second = tmp_path / "second"
    second.mkdir()
    site.install("acme", version="2.0")
    type(site)(second).install("acme", version="1.0")

    found = [entry.version for entry in installed_plugins([*path, str(second)]).entries if entry.name == "acme"]

    assert found == ["2.0"]


def test_requirements_on_other_packages_are_left_to_the_installer():
    texts = [
        "rlx-core",
        "RLX.Core[all] >=1",
        "rlx_core@ https://x",
        "rlx-core-x",
        "numpy",
        " rlx-core;python_version>'3'",
    ]

    assert core_requirements(texts) == tuple(sorted([texts[0], texts[1], texts[2], texts[5]]))


def test_the_version_that_plugins_are_held_against_is_the_package_version():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]

    assert project["version"] == API_VERSION
    assert project["entry-points"]["rlx.plugins"] == {"rlx": "rlx_core.builtin"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[rlx.plugins\nacme = acme", "`[rlx.plugins` is no group in brackets"),
        ("[rlx.plugins]\nacme", "`acme` is no `name = module` in a group"),
        ("[rlx.plugin]\nacme = acme", "rlx reads no group `rlx.plugin`; did you mean `rlx.plugins`?"),
    ],
)
def test_a_malformed_file_of_entry_points_is_a_fault(site, path, text, says):
    """Python passes over lines that it cannot read, and the plugin would merely be missing."""
    site.install("acme")
    (file,) = site.path.glob("*.dist-info/entry_points.txt")
    file.write_text(text)

    found, _ = scan(path)

    assert says in " ".join(found.faults)
    assert str(file.parent) in " ".join(found.faults)
