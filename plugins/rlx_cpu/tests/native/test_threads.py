"""How many threads a process may use: affinity, and quotas of control groups of both versions, read from folders made here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core.errors import ConfigError
from rlx_core.plugins import PluginHost
from rlx_cpu.native import threads
from rlx_cpu.native.contract import MOST_PARTS
from rlx_cpu.native.threads import usable_cpus
from rlx_cpu.tier import settings

HOST = PluginHost([rlx_cpu.plugin])


@pytest.fixture(autouse=True)
def sixteen_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)


def machine(tmp_path: Path, membership: str, files: dict[str, str]) -> int:
    """The usable CPUs where the process is in these groups, and their files say this."""
    root, member = tmp_path / "groups", tmp_path / "membership"
    member.write_text(membership)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return usable_cpus(root, member)


V1 = "4:memory:/box\n3:cpu,cpuacct:/box/inner\n1:name=systemd:/x\n"


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "max 100000\n"}, 16),
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "1000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "9900000 100000\n"}, 16),
        ("0::/a/b\n", {"cpu.max": "max 100000", "a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, 3),
        ("0::/a/b\n", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "100000 100000"}, 1),
        ("0::/not/here\n", {"cpu.max": "400000 100000"}, 4),
        ("0::/../up\n", {"cpu.max": "400000 100000"}, 4),
        (V1, {"cpu,cpuacct/box/cpu.cfs_quota_us": "250000", "cpu,cpuacct/box/cpu.cfs_period_us": "100000"}, 3),
        (V1, {"cpu/box/inner/cpu.cfs_quota_us": "50000", "cpu/box/inner/cpu.cfs_period_us": "100000"}, 1),
        (V1, {"cpu/box/inner/cpu.cfs_quota_us": "-1", "cpu/box/inner/cpu.cfs_period_us": "100000"}, 16),
        (V1, {"memory/box/cpu.cfs_quota_us": "50000", "memory/box/cpu.cfs_period_us": "100000"}, 16),
        ("", {"cpu.max": "200000 100000"}, 2),
        ("", {}, 16),
        ("0::/\n", {"cpu.max": "nonsense"}, 16),
        ("0::/\n", {"cpu.max": "5 0"}, 16),
    ],
)
def test_quotas_of_control_groups(tmp_path: Path, membership: str, files: dict[str, str], expected: int) -> None:
    assert machine(tmp_path, membership, files) == expected


def test_without_control_groups_affinity_decides(tmp_path: Path) -> None:
    assert usable_cpus(tmp_path / "none", tmp_path / "nothing") == 16


def test_unset_means_every_usable_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "usable_cpus", lambda: 3)
    chosen, alone = settings({}), settings({"cpu.threads": 1})

    assert chosen is not None
    assert alone is not None
    assert (chosen.threads, alone.threads) == (3, 1)


@pytest.mark.parametrize("count", [0, -1, -(2**40)])
@pytest.mark.parametrize("tier", ["native", "numpy"])
def test_fewer_than_one_thread_is_refused_with_what_would_work(count: int, tier: str) -> None:
    with pytest.raises(ConfigError, match=rf"cpu.threads: must be at least 1, not {count}") as refused:
        rlx.compile(
            lambda x: x + 1, rlx.spec("f32[2]"), host=HOST, target="cpu",
            config={"options": {"cpu.threads": count, "cpu.tier": tier}},
        )  # fmt: skip
    assert refused.value.hint == "leave it out for every usable CPU"


def test_a_machine_with_more_cpus_than_a_step_has_parts_uses_as_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread's part is a bit of one word: with a 65th bit a run waited for ever."""
    monkeypatch.setattr(threads, "usable_cpus", lambda: 96)
    chosen = settings({})

    assert chosen is not None
    assert chosen.threads == MOST_PARTS


def test_more_threads_than_a_step_has_parts_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"cpu.threads: must be at most 64, not 65"):
        settings({"cpu.threads": MOST_PARTS + 1})
