"""The laws' options, a backend where rlx is on the path without being installed, and a cache that starts empty."""

from __future__ import annotations

import importlib.util
import zlib
from argparse import ArgumentTypeError
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from rlx_core.plugins import PluginHost, set_default_host

pytest_plugins = ["rlx_core.testing.plugin"]

# How long an example takes says how busy the machine is, and nothing about rlx.
settings.register_profile("rlx", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rlx")


@pytest.fixture(scope="session", autouse=True)
def empty_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads what another run compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLX_CACHE_DIR", str(tmp_path_factory.mktemp("cache") / "rlx"))
        yield


@pytest.fixture(scope="session", autouse=True)
def nothing_is_allowed_by_the_shell() -> Iterator[None]:
    """What may run on the host is each test's own choice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RLX_ALLOW_HOST", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def a_backend_is_there() -> Iterator[None]:
    """A default host with the backend of this checkout, unless one is installed."""
    if PluginHost().activate_all().backends or importlib.util.find_spec("rlx_cpu") is None:
        yield
        return
    import rlx_cpu.plugin

    before = set_default_host(PluginHost([rlx_cpu.plugin]))
    yield
    set_default_host(before)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write what pages of the documentation print into them")
    parser.addoption(
        "--cases",
        type=int,
        metavar="N",
        help="run N cases of a parametrised test, and one for each op, others with another --rlx-seed; without it, all",
    )
    parser.addoption(
        "--part",
        type=part,
        metavar="I/N",
        help="of what would be run, run the I-th of N parts, 1/N to N/N: every N-th test, so that parts take equally long",
    )
    parser.addoption(
        "--quick-alone",
        action="append",
        default=[],
        metavar="FOLDER",
        help="of the tests in this folder, leave out what is marked slow",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--cases N`, keep N cases of each parametrised test, and at least one for each op that it is about."""
    elsewhere = [Path(folder).resolve() for folder in config.getoption("--quick-alone")]
    if elsewhere:
        keep(config, items, [i for i in items if not (i.get_closest_marker("slow") and is_in(elsewhere, i.path))])
    count, seed = config.getoption("--cases"), config.getoption("--rlx-seed")
    if count is not None:
        tests: dict[str, list[pytest.Item]] = {}
        for item in items:
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
        keep(config, items, [item for cases in tests.values() for item in chosen(cases, count, seed)])
    if (chosen_part := config.getoption("--part")) is not None:
        keep(config, items, in_part(items, chosen_part))


def part(text: str) -> tuple[int, int]:
    """Which part of how many `I/N` names.

    Raises:
        ArgumentTypeError: It names none, or one that does not exist.
    """
    number, slash, parts = text.partition("/")
    if not (slash and number.isdigit() and parts.isdigit() and 1 <= int(number) <= int(parts)):
        raise ArgumentTypeError(f"{text!r} is not I/N with 1 <= I <= N, such as 2/5")
    return int(number), int(parts)


def keep(config: pytest.Config, items: list[pytest.Item], kept: Collection[pytest.Item]) -> None:
    """Run these alone, in their order."""
    kept = frozenset(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def in_part(items: Sequence[pytest.Item], number_of: tuple[int, int]) -> list[pytest.Item]:
    """The tests of a part: neighbours, which take about as long, are in different ones."""
    number, parts = number_of
    return list(items[number - 1 :: parts])


def is_in(folders: Sequence[Path], path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def chosen(cases: Sequence[pytest.Item], count: int, seed: int = 0) -> list[pytest.Item]:
    """So many of a test's cases, which is a matter of their names: neighbours, which are alike, are seldom both chosen."""
    if len(cases) <= count or cases[0].get_closest_marker("every_case"):
        return list(cases)
    shuffled = sorted(cases, key=lambda item: zlib.crc32(f"{item.nodeid}{seed or ''}".encode()))
    one_an_op = {op_of(item): item for item in reversed(shuffled)}
    return list(dict.fromkeys([*shuffled[:count], *one_an_op.values()]))


def op_of(item: pytest.Item) -> object:
    """The op that a case is about, if it says so: a parameter that is one, or that has one."""
    values = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    return next((op for value in values for op in (value, getattr(value, "op", None)) if is_op(op)), None)


def is_op(value: object) -> bool:
    from rlx_core.ir.op import Op

    return isinstance(value, type) and issubclass(value, Op)
