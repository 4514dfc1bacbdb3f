"""The checks of `rlx check`, in the order of their dependences.

They cover the plugin and its contributions, their activation when a program needs them, the laws, and whether its programs
are compiled alike everywhere.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from attrs import evolve

from rlx_core.cli.checking import checks
from rlx_core.cli.checking.checks import Finding
from rlx_core.cli.session import CliSession
from rlx_core.contributions import EventSpec, FunctionSpec, KernelSpec, LegalizationSpec, RuleSpec
from rlx_core.errors import Fact, UnknownNameError, nearest
from rlx_core.plugins import Claim, PluginEntry, PluginHost
from rlx_core.plugins.conditions import COMPILE, conditions_of
from rlx_core.plugins.entry import PluginOrigin, named_entry
from rlx_core.plugins.states import attempt
from rlx_core.system.processes import cause, module_command, variables
from rlx_core.system.records import frozen

SEEDS: Final = (0, 1, 2)
"""The hash seeds under which programs are compiled."""

PARTS: Final = ("plan", "program", "error", "declined")
"""The part of a compiled program that must not depend on orders; see `rlx_core.testing.orders.Became`."""


@frozen(eq=False)
class Package:
    """A plugin under test.

    Attributes:
        entry: Its packaging metadata.
        entries: All other available plugins.
        session: The policy, and the function that creates a host from it.
    """

    entry: PluginEntry
    entries: tuple[PluginEntry, ...]
    session: CliSession

    @classmethod
    def named(cls, session: CliSession, word: str | None) -> Package:
        """The plugin with a name, or the one of the project in this folder.

        Raises:
            UnknownNameError: There is none.
        """
        entries = session.host.entries
        if word is None:
            word = project_here()
        address = word.rpartition("=")[2]
        entry = next((e for e in entries if e.matches(word) or address in (e.module, e.file)), None)
        if entry is None and (word.endswith(".py") or importable(address)):
            entry = named_entry(word)
            entries = (*entries, entry)
        if entry is None:
            known = [e.name for e in entries if e.origin is not PluginOrigin.BUILTIN]
            raise UnknownNameError(
                f"check: there is no plugin, package, module or file {word}",
                Fact("plugins", ", ".join(known) or "none"),
                hint=nearest(word, known) or "python -m pip install -e . installs the project that lies here",
            )
        return cls(entry, entries, session)

    @property
    def word(self) -> str:
        """Its name on the command line of another process."""
        entry = self.entry
        return entry.name if entry.origin is PluginOrigin.INSTALLED else f"{entry.name}={entry.module}"

    def host(self) -> PluginHost:
        """A new host without activated plugins."""
        if self.entry in self.session.host.entries:
            return self.session.make_host(self.session.policy)
        return PluginHost(self.entries, policy=self.session.policy)


def project_here() -> str:
    """The name of the project in the working directory.

    Raises:
        UnknownNameError: There is none.
    """
    try:
        table = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
        name = table["project"]["name"]
    except (OSError, ValueError, KeyError, TypeError):
        name = None
    if isinstance(name, str) and name:
        return name
    raise UnknownNameError(
        "check: there is no project in this folder",
        Fact("looked for", Path("pyproject.toml").absolute()),
        hint="rlx check PACKAGE names one that is installed",
    )


def importable(address: str) -> bool:
    """Return whether a module of this name exists."""
    module = address.partition(":")[0]
    return bool(attempt(lambda: importlib.util.find_spec(module)).value)


# ------------------------------------------------------------------------------------------------ gathering


def findings(package: Package, *, is_quick: bool) -> list[Finding]:
    """Everything that was looked at; of a plugin that cannot be used, no more than that."""
    rows = [evolve(each, section="plugin") for each in plugin(package)]
    if any(each.verdict == "wrong" for each in rows):
        return rows
    return rows + checks.gathered(
        {
            "contributions": lambda: contributions(package),
            "laws": lambda: laws(package, is_quick),
            "plans": lambda: plans(package, SEEDS[:1] if is_quick else SEEDS),
        }
    )


def plugin(package: Package) -> Iterator[Finding]:
    """Its state, and whether its names are its own."""
    host = package.host()
    for row in host.survey():
        if (row.name, row.distribution) == (package.entry.name, package.entry.distribution):
            verdict: checks.Verdict = "wrong" if row.contested else checks.VERDICTS[row.state]
            description = f"{row.label}, {row.distribution} {row.version}" + (f": {row.reason}" if row.reason else "")
            yield Finding(row.name, verdict, description, checks.mending(row))
            listed = [f"{kind}: {', '.join(names)}" for kind, names in row.provides.items()]
            none = "nothing; its hooks are functions with @hookimpl, in the module that the entry point names"
            yield Finding("provides", "ok" if listed else "wrong", "; ".join(listed) or none)


def contributions(package: Package) -> Iterator[Finding]:
    """Each address imported, and each thing there when it is needed."""
    from rlx_core.cli.checking.contributions import contribution_faults

    host = package.host()
    wrong = 0
    for fault in contribution_faults(host):
        if (fault.owner.plugin, fault.owner.distribution) == (package.entry.name, package.entry.distribution):
            where = f" ({fault.where})" if fault.where else ""
            verdict: checks.Verdict = "wrong" if fault.is_wrong else "note"
            yield Finding(fault.what, verdict, f"{fault.reason}{where}", fault.mend)
            wrong += fault.is_wrong
    claims = own_claims(package, host)
    yield Finding("(all)", "ok", f"{len(claims)} imported, {wrong or 'none'} of them no use")
    for claim in claims:
        yield from absence(package, claim)


def own_claims(package: Package, host: PluginHost) -> list[Claim]:
    return [claim for claim in host.activate_all().claims.values() if claim.entry.key == package.entry.key]


def absence(package: Package, claim: Claim) -> Iterator[Finding]:
    """Report implicit contributions that would be inactive, because nothing activates their plugin.

    A plugin is activated by declarations of its distribution, so one that is not installed is active from the beginning.
    """
    conditions = needed_when(claim)
    if not conditions or package.entry.origin is not PluginOrigin.INSTALLED:
        return
    if claim.name in package.host().activate_for(*conditions).table(claim.kind):
        return
    message = f"it is not there when a program needs it: nothing activates {package.entry.name} then"
    condition = next(each for each in conditions if each == COMPILE or "." in each)
    mend = f'pyproject.toml: [project.entry-points."rlx.when"] "{condition}" = "{package.entry.module}"'
    yield Finding(f"{claim.kind} {claim.name}", "wrong", message, mend)


def needed_when(claim: Claim) -> tuple[str, ...]:
    """The conditions that hold when a program needs an implicit record; empty for other records.

    The domains of its ops come last: for its own domain, the plugin is active already.
    """
    record: Any = claim.record
    if isinstance(record, EventSpec):
        return (COMPILE,)
    if isinstance(record, FunctionSpec):
        return conditions_of(claim.kind, claim.name)
    if isinstance(record, LegalizationSpec):
        return (f"target.{record.target}", COMPILE)
    if isinstance(record, RuleSpec):
        return (f"domain.{record.op.partition('.')[0]}",)
    if isinstance(record, KernelSpec):
        rows = attempt(lambda: list(record.load.resolve())).value or []
        domains = dict.fromkeys(row.op.name.partition(".")[0] for row in rows if row.op.name)
        return (f"target.{record.target}", COMPILE, *(f"domain.{each}" for each in domains))
    return ()


# --------------------------------------------------------------------------------------- separate processes


def laws(package: Package, is_quick: bool) -> Iterator[Finding]:
    """The laws over its ops, rules and kernels, and over what its backends compute of the standard ops."""
    if importlib.util.find_spec("pytest") is None:
        yield Finding("pytest", "wrong", "it is not installed, and runs the laws", "python -m pip install pytest")
        return
    from rlx_core.testing.subjects import TRIED

    claims = own_claims(package, package.host())
    samples = f"--rlx-samples={'one' if is_quick else 'all'}"
    if any(claim.kind in TRIED for claim in claims):
        yield from lawful(package, "contributions", [f"--rlx-plugin={package.word}", samples])
    for claim in claims:
        if claim.kind == "backends":
            options = [f"--rlx-backend={claim.name}", "--rlx-partial", "--rlx-samples=one", "-k", "backend_agrees"]
            yield from lawful(package, f"target {claim.name}", options)
    if not any(claim.kind in (*TRIED, "backends") for claim in claims):
        yield Finding(
            "(none)", "note", "they are about ops, rules, kernels, rewrites, blocks, schemes, formats and backends"
        )


def lawful(package: Package, name: str, options: list[str]) -> Iterator[Finding]:
    """The findings of one run of the laws: one for all of them, and one for each that failed or was declined."""
    again = f"python -m pytest --pyargs rlx_core.testing {' '.join(options)}"
    if package.entry.origin is not PluginOrigin.INSTALLED:
        again = f"python -m rlx_core.testing.verdict answer.json {package.word} {' '.join(options)}"
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        done = in_a_process("rlx_core.testing.verdict", str(answer), package.word, "-q", *options)
        if not answer.exists():
            yield Finding(name, "wrong", f"the run broke off: {last_line(done)}", again)
            return
        result = json.loads(answer.read_text(encoding="utf-8"))
    lines, declined = result["lines"] or [last_line(done)], result["declined"]
    if declined and not result["tried"]:
        message = f"it declines everything that needs a kernel, of {len(declined)} ops; {next(iter(declined.values()))}"
        yield Finding(name, "wrong", message, again)
        return
    yield Finding(name, "wrong" if result["ended"] else "ok", lines[-1], again if result["ended"] else None)
    for line in lines[:-1]:
        subject, _, message = line.strip().partition(": ")
        failed = " failed, on " in line or " (" in subject
        yield Finding(subject, "wrong" if failed else "ok", message or line)
    for subject, message in declined.items():
        yield Finding(subject, "note", message)


def plans(package: Package, seeds: Iterable[int]) -> Iterator[Finding]:
    """Check that its programs are compiled alike, for every order of plugins and under any hash seed."""
    became: dict[str, list[dict[str, str]]] = {}
    for seed in seeds:
        words = ("rlx_core.testing.orders", package.word, str(seed))
        done = in_a_process(*words, PYTHONHASHSEED=str(seed))
        answer = attempt(lambda done=done: json.loads(done.stdout.splitlines()[-1])).value  # type: ignore[misc]
        if done.returncode != 0 or answer is None:
            again = f"PYTHONHASHSEED={seed} python -m {' '.join(words)}"
            yield Finding(f"(seed {seed})", "wrong", f"the run broke off: {last_line(done)}", again)
            continue
        for name, those in answer.items():
            became.setdefault(name, []).extend(those)
    if not became:
        return
    alike = 0
    backends = {claim.name for claim in own_claims(package, package.host()) if claim.kind == "backends"}
    for name, those in became.items():
        first, *others = those
        parts = [part for part in PARTS if any(each[part] != first[part] for each in others)]
        if parts:
            message = f"its {' and its '.join(parts)} depend on the order of plugins or on the hash seed"
            yield Finding(name, "wrong", message)
        elif first["declined"] and name.rpartition(" on ")[2] in backends:
            yield Finding(name, "note", f"declined: {first['declined']}")
        elif first["error"]:
            yield Finding(name, "wrong", f"it does not compile: {first['error']}")
        else:
            alike += 1
    times = max(map(len, became.values()), default=0)
    all_are: checks.Verdict = "ok" if alike == len(became) else "note"
    yield Finding("(all)", all_are, f"{alike} of {len(became)} programs, each compiled {times} times, are alike")


def in_a_process(module: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a module of rlx in a separate process with the same import path."""
    command = module_command(module, *words)
    quiet = [command[0], "-W", "ignore", *command[1:]]
    return subprocess.run(quiet, env=variables(**environment), capture_output=True, text=True, check=False)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The last message of a process: the line of an exception above its facts and hints, if there is one."""
    lines = [line.strip() for line in (done.stderr.strip() or done.stdout.strip()).splitlines() if line.strip()]
    raised = [line for line in lines if line.partition(":")[0].endswith(("Error", "ERROR"))]
    if done.returncode < 0 or not lines:
        return cause(done.returncode)  # a signal: earlier output is not the reason
    return [*lines, *raised][-1]
