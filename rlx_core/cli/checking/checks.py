"""The checks of `rlx doctor`: each looks at one thing, yields findings, and needs nothing of the others."""

from __future__ import annotations

import importlib
import os
import platform
import stat
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal

from attrs import evolve

from rlx_core.cli.commands import COMMANDS
from rlx_core.cli.conforming.verdicts import recorded_verdicts
from rlx_core.cli.session import quietly
from rlx_core.contributions import KINDS
from rlx_core.errors import ConfigError, DeviceUnavailableError
from rlx_core.plugins import PluginHost, PluginStatus, State
from rlx_core.plugins.entry import CORE, normalized
from rlx_core.plugins.journal import journal_file, recorded
from rlx_core.plugins.states import attempt
from rlx_core.system.records import frozen

Verdict = Literal["ok", "note", "wrong"]
OLDEST_PYTHON: Final = (3, 11)
VERDICTS: Final[dict[State | None, Verdict]] = {
    State.ACTIVE: "ok",
    State.BLOCKED: "note",
    State.UNAVAILABLE: "note",
    State.SHADOWED: "note",
    State.INCOMPATIBLE: "wrong",
    State.FAILED: "wrong",
    None: "note",  # not imported, because the policy that may forbid it cannot be read
}


@frozen
class Finding:
    """The result of one check.

    Args:
        verdict: `note` is informative and no problem; `wrong` is a problem.
        found: The observed state.
        mend: The command or the change that fixes it.
        section: Its heading, from the table of the checks.
    """

    name: str
    verdict: Verdict
    found: str
    mend: str | None = None
    section: str = ""


def gathered(checks: Mapping[str, Callable[[], Iterable[Finding]]]) -> list[Finding]:
    """The findings of the checks by section; a check that raises is itself a finding."""
    rows: list[Finding] = []
    for section, check in checks.items():
        outcome = attempt(lambda check=check: quietly(lambda: list(check())))  # type: ignore[misc]
        if outcome.failure is not None:
            rows.append(Finding("(check)", "wrong", f"could not be finished: {outcome.failure.summary}", None, section))
        rows += [evolve(each, section=section) for each in outcome.value or ()]
    return rows


def python() -> Iterator[Finding]:
    """The interpreter and the machine."""
    is_old = sys.version_info[:2] < OLDEST_PYTHON
    oldest = ".".join(map(str, OLDEST_PYTHON))
    yield Finding(
        "version",
        "wrong" if is_old else "ok",
        f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}",
        f"use Python {oldest} or newer" if is_old else None,
    )
    yield Finding("platform", "ok", f"{platform.system()} {platform.release()}, {platform.machine()}")


def dependencies() -> Iterator[Finding]:
    """Check the dependencies of rlx-core: installed, in a compatible version, and importable."""
    from packaging.requirements import Requirement

    requirements = list(own_requirements())
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        yield dependency(requirement)
    if not requirements:
        mend = f"python -m pip install --force-reinstall {CORE}"
        yield Finding(CORE, "note", "its metadata is not installed, so that nothing can be compared", mend)


def own_requirements() -> Iterator[str]:
    """rlx-core's requirements, from its metadata or from the source tree that it runs from."""
    try:
        yield from metadata.requires(CORE) or ()
        return
    except metadata.PackageNotFoundError:
        project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    if project.is_file():
        table = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {})
        if normalized(str(table.get("name"))) == CORE:
            yield from table.get("dependencies", ())


def dependency(requirement: Any) -> Finding:
    """One requirement."""
    name, specifier = requirement.name, str(requirement.specifier)
    install = f'python -m pip install --upgrade "{requirement.name}{specifier}"'
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, "wrong", f"not installed; rlx-core needs {specifier}", install)
    if not requirement.specifier.contains(version, prereleases=True):
        return Finding(name, "wrong", f"{version}; rlx-core needs {specifier}", install)
    outcome = attempt(lambda: importlib.import_module(name.replace("-", "_")))
    if outcome.failure is not None:
        mend = f"python -m pip install --force-reinstall {name}"
        return Finding(name, "wrong", f"{version}, which cannot be imported: {outcome.failure.summary}", mend)
    return Finding(name, "ok", f"{version} ({specifier})")


def plugins(host: PluginHost, load: bool) -> Iterator[Finding]:
    """Every plugin with its state."""
    for row in host.survey(load):
        verdict = "wrong" if row.contested and row.state is not State.UNAVAILABLE else VERDICTS[row.state]
        description = f"{row.label}, {row.distribution} {row.version}" + (f": {row.reason}" if row.reason else "")
        yield Finding(row.name, verdict, description, mending(row))
    for note in host.notes:
        yield Finding("(policy)", "note", note)
    for fault in host.index_faults:
        mend = "install that distribution again, or tell its author"
        yield Finding("(index)", "wrong", f"its plugins cannot be read: {fault}", mend)
    if load:
        builtin_names = {spec.name for spec in COMMANDS}
        for name in sorted(builtin_names & set(host.registry().commands)):
            owner = host.registry().owner("commands", name)
            yield Finding(owner.plugin, "note", f"its command `{name}` is never reached: rlx has one of that name")


def contributions(host: PluginHost, load: bool) -> Iterator[Finding]:
    """Everything that plugins contribute, imported: what cannot be used, whose it is, and what mends it."""
    if not load:
        yield Finding("(not tried)", "note", "no plugin is imported until the configuration can be read")
        return
    from rlx_core.cli.checking.contributions import contribution_faults  # imports everything there is

    faults = contribution_faults(host)
    for fault in faults:
        where = f" ({fault.where})" if fault.where else ""
        description = f"{fault.what}, of {fault.owner.distribution} {fault.owner.version}: {fault.reason}{where}"
        yield Finding(fault.owner.plugin, "wrong" if fault.is_wrong else "note", description, fault.mend)
    yield from failures_at_use(host)
    count = sum(len(host.registry().table(kind)) for kind in KINDS)
    bad = sum(fault.is_wrong for fault in faults)
    used = f"{bad} of them cannot be used" if bad else "all of them can be used"
    yield Finding("(all)", "ok", f"{count} looked at, {used}")


def failures_at_use(host: PluginHost) -> Iterator[Finding]:
    """Failures at use, in this process or an earlier one, of plugins that are installed in the same version."""
    for failure in recorded((entry.distribution, entry.version) for entry in host.entries):
        where = f" ({failure.where})" if failure.where else ""
        description = (
            f"{failure.record}, of {failure.distribution} {failure.version}, failed at use: {failure.reason}{where}"
        )
        mend = f"{failure.mend}; when it is corrected, remove {journal_file()}"
        yield Finding(failure.plugin, "wrong", description, mend)


def mending(row: PluginStatus) -> str | None:
    """The remedy for a plugin."""
    if row.mend is None and row.contested and row.state is not State.UNAVAILABLE:
        return f'choose one in the configuration: [plugins.override] "{row.contested[0]}" = "{row.name}"'
    return row.mend


def targets(host: PluginHost, load: bool) -> Iterator[Finding]:
    """Which devices can be compiled for here."""
    if not load:
        yield Finding("(not tried)", "note", "no plugin is imported until the configuration can be read")
        return
    from rlx_core.pipeline.targets import no_backend

    registry = host.activate_all()
    for name in registry.backends:
        outcome = attempt(lambda name=name: devices(host, name))  # type: ignore[misc]
        if outcome.failure is not None:
            error = outcome.failure.error
            if isinstance(error, DeviceUnavailableError):
                yield Finding(name, "note", error.message, error.hint)
            else:
                yield Finding(name, "wrong", outcome.failure.summary)
        else:
            found_devices = ", ".join(outcome.value or ()) or "its plugin works, and finds no device"
            yield Finding(name, "ok" if outcome.value else "note", found_devices)
    yield from conformance(host)
    for (kind, name), refusal in registry.refused.items():
        if kind == "backends":
            reasons = [str(fact.value) for fact in refusal.facts if fact.label == "missing"]
            yield Finding(name, "note", reasons[0] if reasons else refusal.message, refusal.hint)
    if not registry.backends:
        error = no_backend(host)
        missing = "; ".join(str(fact.value) for fact in error.facts)
        consequence = (
            f"nothing can be compiled: {missing}" if missing else "no backend is installed: programs are interpreted"
        )
        yield Finding("(none)", "wrong", consequence, error.hint)


def conformance(host: PluginHost) -> Iterator[Finding]:
    """The verdicts of `rlx conform` on the targets that are installed, and which of them are out of date."""
    import rlx_core

    installed = {entry.distribution: entry.version for entry in host.entries}
    for each in recorded_verdicts():
        if each.distribution not in installed:
            continue
        current = (installed[each.distribution], rlx_core.__version__)
        counts = f"{each.passed} law cases passed, {each.failed} failed, {each.host} ops on the host"
        description = f"level {each.level} ({each.distribution} {each.version}, rlx-core {each.core}): {counts}"
        again = f"rlx conform {each.target}"
        if (each.version, each.core) != current:
            description = (
                f"out of date, now {each.distribution} {current[0]} with rlx-core {current[1]}; was {description}"
            )
            yield Finding(each.target, "note", description, again)
        else:
            yield Finding(each.target, "wrong" if each.failed else "ok", description, again if each.failed else None)


def devices(host: PluginHost, name: str) -> list[str]:
    """The devices of one backend."""
    from rlx_core.pipeline.targets import opened

    return list(opened(host, name).devices())


def caches() -> Iterator[Finding]:
    """The directory of the index and of compiled programs: the owner's alone, and how full."""
    from rlx_core.system.private import cache_directory

    yield cache(cache_directory())


def cache(directory: Path) -> Finding:
    """One directory."""
    from rlx_core.pipeline.report import human_bytes

    try:
        status = directory.stat()
    except FileNotFoundError:
        return Finding("directory", "ok", f"{directory}, made when it is first needed")
    if not stat.S_ISDIR(status.st_mode):
        return Finding("directory", "wrong", f"{directory} is a file", "move it away, or set RLX_CACHE_DIR")
    if os.name == "posix" and status.st_uid != os.geteuid():
        message = f"{directory} belongs to user {status.st_uid}, not to {os.geteuid()}"
        return Finding("directory", "wrong", message, "set RLX_CACHE_DIR to a directory of your own")
    if os.name == "posix" and status.st_mode & 0o077:
        message = f"{directory} is open to others (mode {stat.S_IMODE(status.st_mode):o}, not 700)"
        return Finding("directory", "wrong", message, f"chmod 700 {directory}")
    files = [each for each in directory.rglob("*") if each.is_file()]
    size = sum(each.stat().st_size for each in files)
    return Finding("directory", "ok", f"{directory}, owner only; {len(files)} files, {human_bytes(size)}")


def environment(host: PluginHost, load: bool) -> Iterator[Finding]:
    """Check environment variables: those that rlx reads, and similar names that it does not read."""
    from rlx_core.pipeline.config.settings import read_settings

    options = host.registry().options.values() if load else ()
    try:
        values, unknown = read_settings(os.environ, None, options)
    except ConfigError as error:
        variable, _, message = error.message.partition(": ")
        yield Finding(variable, "wrong", message, f"unset {variable}, or give it such a value")
        return
    for key, (value, variable) in sorted(values.items()):
        yield Finding(variable, "ok", f"sets {key} to {value!r}")
    for each in unknown:
        message = f"no setting has this name; {each.hint}" if each.hint else "no setting has this name"
        yield Finding(each.name, "note", message)
