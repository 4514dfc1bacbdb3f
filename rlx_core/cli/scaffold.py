"""Output of `rlx new`: a package from templates with the author's names.

A template is a data file under `templates/`, by the kind of package; files of a later folder of a kind replace those of an
earlier one. `$domain` in a template becomes the domain's name.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator, Mapping
from importlib import metadata, resources, util
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import Final

from rlx_core.contributions.validators import BARE_NAME, DOMAIN_NAME
from rlx_core.errors import ConfigError, Fact, FileError, nearest
from rlx_core.hooks import API_VERSION
from rlx_core.plugins.entry import normalized
from rlx_core.system.records import frozen

SUFFIX: Final = ".tmpl"
PACKAGE_NAME: Final = re.compile(r"[a-z]([a-z0-9._-]*[a-z0-9])?")


@frozen
class Kind:
    """One kind of package.

    Attributes:
        summary: Its description; `$name` is the full name.
        folders: Its templates; later ones take precedence.
        has_name: Whether the author chooses a name in a domain, and not the domain only.
        provides: The kinds of records that it contributes.
        laws: The options of `pytest` for the laws.
    """

    summary: str
    folders: tuple[str, ...]
    has_name: bool
    provides: tuple[str, ...]
    laws: str = ""


KINDS: Final[Mapping[str, Kind]] = {
    "op": Kind("The op $name for rlx.", ("common", "op"), True, ("ops",), "--rlx-plugin=$domain"),
    "pass": Kind("The pass $name for rlx.", ("common", "pass"), True, ("passes",)),
    "backend": Kind(
        "The target $name for rlx.",
        ("common", "backend"),
        False,
        ("backends",),
        "--rlx-backend=$domain --rlx-samples=one",
    ),
    "plugin": Kind(
        "An op, its kernel and a pass for rlx.",
        ("common", "op", "pass", "plugin"),
        False,
        ("kernels", "ops", "passes"),
        "--rlx-plugin=$domain",
    ),
}
"""The kinds of packages, by their names on the command line."""

EXAMPLES: Final[Mapping[str, str]] = {"op": "shrink", "pass": "guard-exp"}
"""Names of the op and the pass of a plugin template, which the author does not choose."""


@frozen
class Names:
    """The names in a package: what its author chose, and what follows from it."""

    kind: str
    name: str
    domain: str
    distribution: str

    @property
    def package(self) -> str:
        """The name of the imported package."""
        return re.sub(r"[-.]+", "_", self.distribution)

    @property
    def values(self) -> dict[str, str]:
        """The variables of the templates."""
        local_name = self.name.partition(".")[2]
        op, pass_ = (local_name if self.kind == kind else EXAMPLES[kind] for kind in ("op", "pass"))
        kind = KINDS[self.kind]
        major, minor = map(int, API_VERSION.split(".")[:2])
        fields = {
            "name": self.name,
            "domain": self.domain,
            "target": self.domain,
            "distribution": self.distribution,
            "package": self.package,
            "core": f"{major}.{minor}",
            "next_core": f"{major}.{minor + 1}",
            "op": f"{self.domain}.{op}",
            "function": op.replace("-", "_"),
            "Class": f"{camel(self.domain)}Program" if self.kind == "backend" else camel(op),
            "BackendClass": f"{camel(self.domain)}Backend",
            "pass_": f"{self.domain}.{pass_}",
            "pass_name": pass_,
            "PassClass": camel(pass_),
            "kinds": ", ".join(f'"{each}"' for each in kind.provides),
        }
        return fields | {part: Template(getattr(kind, part)).substitute(fields) for part in ("summary", "laws")}


def camel(name: str) -> str:
    """The class of a name: `soft-shrink` is `SoftShrink`."""
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[-_.]+", name) if word)


def names_for(kind: str, name: str, distribution: str | None, taken: Mapping[str, str]) -> Names:
    """The names of a package, checked.

    Args:
        kind: One of `KINDS`.
        name: `domain.name` for a kind with names in a domain, otherwise the domain.
        distribution: The distribution's name; the domain and `-rlx` by default.
        taken: The domains that are in use, each with its owner.

    Raises:
        ConfigError: A name does not have the form that its kind requires, or is in use.
    """
    if kind not in KINDS:
        listed = ", ".join(KINDS)
        raise ConfigError(f"new: there is no template {kind!r}", Fact("known", listed), hint=nearest(kind, KINDS))
    check_form(kind, name)
    domain = name.partition(".")[0]
    if domain in taken:
        raise ConfigError(
            f"new {kind} {name}: the domain {domain} is taken",
            Fact("has it", taken[domain]),
            hint="names begin with a word of your own, such as your project's or your company's",
        )
    names = Names(kind, name, domain, f"{domain}-rlx" if distribution is None else distribution)
    check_package(names)
    return names


def check_form(kind: str, name: str) -> None:
    """Require a lower-case name with as many words as its kind has.

    Raises:
        ConfigError: It has another form.
    """
    if not KINDS[kind].has_name:
        if not BARE_NAME.fullmatch(name):
            raise ConfigError(f"new {kind}: {name!r} is not one lower-case word of a-z, 0-9, _ and -")
        return
    if DOMAIN_NAME.fullmatch(name) and name.count(".") == 1:
        return
    hint = f"rlx new {kind} acme.{name}, with your own word for acme" if BARE_NAME.fullmatch(name) else None
    raise ConfigError(f"new {kind}: {name!r} is not a lower-case `domain.name`", hint=hint)


def check_package(names: Names) -> None:
    """Require that the distribution can be installed and its package imported together with everything installed.

    Raises:
        ConfigError: One of them is not a valid name, or is in use.
    """
    where = f"new {names.kind} {names.name}"
    if not PACKAGE_NAME.fullmatch(names.distribution):
        raise ConfigError(
            f"{where}: {names.distribution!r} is no name of a package",
            hint="lower-case letters, digits, and - between them; --package=NAME says another",
        )
    installed = {normalized(each.name) for each in metadata.distributions() if each.name}
    if normalized(names.distribution) in installed:
        raise ConfigError(
            f"{where}: a package {names.distribution} is installed already", hint="--package=NAME says another name"
        )
    if keyword.iskeyword(names.package) or util.find_spec(names.package) is not None:
        raise ConfigError(
            f"{where}: a module {names.package} is there already", hint="--package=NAME says another name"
        )


def rendered(names: Names) -> dict[str, str]:
    """The files of the package by their path in it.

    Raises:
        ConfigError: A class or a function would be called like something that its module imports, or like a word of Python.
    """
    values = names.values
    files: dict[str, str] = {}
    for folder in KINDS[names.kind].folders:
        for path, text in templates(resources.files(__package__) / "templates" / folder):
            file = path.replace("PACKAGE", names.package).replace("gitignore", ".gitignore")
            files[file] = Template(text).substitute(values)
    for path, text in files.items():
        if path.endswith(".py"):
            check_module(names, path, text)
    return files


def templates(folder: Traversable, inside: str = "") -> Iterator[tuple[str, str]]:
    """The templates under a folder: path without the suffix, and text."""
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if each.is_dir():
            yield from templates(each, f"{inside}{each.name}/")
        elif each.name.endswith(SUFFIX):
            yield inside + each.name.removesuffix(SUFFIX), each.read_text(encoding="utf-8")


def check_module(names: Names, path: str, text: str) -> None:
    """Require that a module parses, and uses the author's names for nothing else.

    Raises:
        ConfigError: It does not.
    """
    where = f"new {names.kind} {names.name}"
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        raise ConfigError(
            f"{where}: Python cannot have a class or a function of this name", Fact("file", path)
        ) from error
    chosen = {names.values[part] for part in ("function", "Class", "PassClass")}
    if clash := sorted(chosen & bound(module, names.package)):
        raise ConfigError(
            f"{where}: its code says {clash[0]} for something else", Fact("file", path), hint="choose another name"
        )


def bound(module: ast.Module, package: str) -> set[str]:
    """The names that a module imports from outside its package, and those of its parameters and local variables."""
    names: set[str] = set()
    for each in ast.walk(module):
        if isinstance(each, ast.Import) or (isinstance(each, ast.ImportFrom) and not own(each, package)):
            names |= {alias.asname or alias.name for alias in each.names}
        elif isinstance(each, ast.FunctionDef | ast.Lambda):
            inside = list(ast.walk(each))
            names |= {part.arg for part in inside if isinstance(part, ast.arg)}
            names |= {part.id for part in inside if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return names


def own(each: ast.ImportFrom, package: str) -> bool:
    return (each.module or "").partition(".")[0] == package


def write(names: Names, into: Path) -> list[Path]:
    """Write the package into a folder of its name below `into`; returns the files.

    Raises:
        ConfigError: See `rendered`.
        FileError: The folder is there already, or it cannot be written.
    """
    files = rendered(names)
    project = into / names.distribution
    try:
        project.mkdir(parents=True)
        for path, text in files.items():
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_text(text, encoding="utf-8")
    except FileExistsError as error:
        raise FileError(
            f"new: {project} is there already; nothing was written",
            hint="--into=DIR writes it elsewhere, and --package=NAME under another name",
        ) from error
    except OSError as error:
        raise FileError(f"new: {project} cannot be written ({error.strerror or error})") from error
    return [project / path for path in sorted(files)]
