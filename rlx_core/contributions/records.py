"""The record classes, one per kind, and the table of kinds.

Record fields of later rlx-core versions are skipped while a plugin is collected, so that a plugin works with an earlier version
as well. A field that is like one of this version is taken for a misspelling, which is an error as for any function.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from copy import deepcopy
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar

import attrs
from attrs import Attribute, field
from attrs.validators import optional

from rlx_core.contributions.references import LazyRef, Named, reference
from rlx_core.contributions.validators import (
    OneOf,
    bare_name,
    domain_name,
    environment_variable,
    integer,
    is_plain,
    listed,
    names,
    option_name,
    refusal,
    suffixes,
    text,
)
from rlx_core.errors import PluginError, nearest
from rlx_core.system.context import assigned
from rlx_core.system.records import frozen

RULE_KINDS: Final = ("vjp", "jvp", "batch", "decompose", "cost")
STAGES: Final = ("hir", "mir", "lir")
EVENTS: Final = ("compile-start", "pass-start", "pass-end", "compile-end", "cache-hit", "cache-miss")

_T = TypeVar("_T", bound=type)
_skipped: ContextVar[list[str] | None] = ContextVar("fields of later versions", default=None)


def noting_newer_fields() -> assigned[list[str]]:
    """The fields that are skipped while the block runs: `KernelSpec.sharding`."""
    return assigned(_skipped, [])


def skips_newer_fields(cls: _T) -> _T:
    """The class of a record, whose constructor skips keywords that it does not know while a plugin is collected."""
    decorated: Any = cls
    plain = decorated.__init__
    known = frozenset(each.name for each in attrs.fields(decorated))

    @functools.wraps(plain)
    def initialise(self: Any, *args: Any, **fields: Any) -> None:
        skipped = _skipped.get()
        if skipped is not None and not fields.keys() <= known:
            for name in sorted(fields.keys() - known):
                if nearest(name, known) is None:
                    del fields[name]
                    skipped.append(f"{cls.__name__}.{name}")
        plain(self, *args, **fields)

    decorated.__init__ = initialise
    return cls


@frozen
class Contribution:
    """Base class of all records: a name within its kind, a one-line summary, and ordering constraints.

    `before` and `after` name records of the same kind; a name that no plugin provides is no constraint. Where those leave a
    choice, a higher `priority` comes first, then names decide: never the order of installation.
    """

    summary: str = field(default="", kw_only=True, validator=text)
    before: tuple[str, ...] = field(default=(), kw_only=True, converter=listed, validator=names)
    after: tuple[str, ...] = field(default=(), kw_only=True, converter=listed, validator=names)
    priority: int = field(default=0, kw_only=True, validator=integer)

    @property
    def name(self) -> str:
        raise NotImplementedError  # every record below has a field or a property of this name


@frozen
class OpSpec(Contribution):
    """An op; `load` leads to its class. `rlx_ops` may also return the class itself, or an `OpFamily`."""

    name: str = field(validator=domain_name)
    load: LazyRef = field(converter=reference)

    @classmethod
    def of(cls, op: type) -> OpSpec:
        """Return the record of an op class that is already imported; its name is the op's."""
        if not isinstance(op, Named):
            raise PluginError(f"rlx_ops: the class {op.__qualname__} has no `name`, so it is not an op")
        return cls(op.name, op)


@frozen
class OpFamily:
    """The ops of one module, contributed together and imported together when one of them is first used.

    Args:
        load: The address of a mapping from full name to op class, or of an iterable of op classes.
        names: The full names of the ops; listed here so that the module need not be imported to know them.
    """

    load: LazyRef = field(converter=reference)
    names: tuple[str, ...] = field(converter=listed, validator=names)

    def __iter__(self) -> Iterator[OpSpec]:
        for name in self.names:
            yield OpSpec(name, LazyRef(self.load.text, name, target=self.load.target))


@frozen
class RuleSpec(Contribution):
    """A rule (VJP, JVP, batching, decomposition, cost) for an op of this or another plugin."""

    op: str = field(validator=domain_name)
    kind: Literal["vjp", "jvp", "batch", "decompose", "cost"] = field(validator=OneOf(*RULE_KINDS))
    load: LazyRef = field(converter=reference)

    @property
    def name(self) -> str:
        return f"{self.op}:{self.kind}"


@frozen
class PassSpec(Contribution):
    """A pass; `load` leads to its class. With `stage="hir"` it extends the model-building level.

    Args:
        ops: Ops, by name, without any of which it leaves a program of MIR as it is: it is then not even imported. Such a pass
            requires at most that programs are lowered, ensures and invalidates nothing, and names no neighbours.
    """

    name: str = field(validator=domain_name)
    load: LazyRef = field(converter=reference)
    stage: Literal["hir", "mir", "lir"] | None = field(default=None, validator=OneOf(*STAGES, None), kw_only=True)
    ops: tuple[str, ...] = field(default=(), converter=listed, validator=names, kw_only=True)


@frozen
class RuleSetSpec(Contribution):
    """A set of rewrite rules."""

    name: str = field(validator=domain_name)
    load: LazyRef = field(converter=reference)


@frozen
class LegalizationSpec(Contribution):
    """A table of rewrites that make nodes legal for one target."""

    target: str = field(validator=bare_name)
    name: str = field(validator=domain_name)
    load: LazyRef = field(converter=reference)


@frozen
class BackendSpec(Contribution):
    """A backend; its name is the target that users write.

    Args:
        devices: The device words it answers to, where they differ from its name.
    """

    name: str = field(validator=bare_name)
    load: LazyRef = field(converter=reference)
    devices: tuple[str, ...] = field(default=(), converter=listed, validator=names, kw_only=True)


@frozen
class KernelSpec(Contribution):
    """A table of kernels for a target of this or another plugin, for ops of any plugin.

    Args:
        owner: The plugin, where two plugins provide a table at one address; set when the registry is frozen.
    """

    target: str = field(validator=bare_name)
    load: LazyRef = field(converter=reference)
    owner: str = field(default="", kw_only=True)

    @property
    def name(self) -> str:
        return f"{self.target}:{self.load}" + (f"@{self.owner}" if self.owner else "")


@frozen
class BlockSpec(Contribution):
    """A HIR block: a layer as the builder of a model writes it, and its lowerings."""

    name: str = field(validator=domain_name)
    load: LazyRef = field(converter=reference)


@frozen
class SchemeSpec(Contribution):
    """A scheme of quantised weights; `load` leads to its class.

    Args:
        ggml_id: The number of the type in GGUF files, if it has one.
    """

    name: str = field(validator=domain_name)
    load: LazyRef = field(converter=reference)
    ggml_id: int | None = field(default=None, validator=optional(integer), kw_only=True)


@frozen
class ImporterSpec(Contribution):
    """A reader of model files, chosen by suffix; `load` leads to a function of the path and the host that uses it."""

    name: str = field(validator=domain_name)
    load: LazyRef = field(converter=reference)
    suffixes: tuple[str, ...] = field(converter=listed, validator=suffixes)


@frozen
class ExporterSpec(Contribution):
    """A writer of model files, chosen by suffix; `load` leads to a function of the path, the value and the host."""

    name: str = field(validator=domain_name)
    load: LazyRef = field(converter=reference)
    suffixes: tuple[str, ...] = field(converter=listed, validator=suffixes)


@frozen
class PipelineSpec(Contribution):
    """A named pipeline: the same tables a configuration file would hold."""

    name: str = field(validator=domain_name)
    config: Mapping[str, Any] = field(hash=False)

    @config.validator
    def _is_plain(self, attribute: Attribute[Any], value: object) -> None:
        if not isinstance(value, Mapping) or not is_plain(value):
            raise refusal(self, attribute.name, value, "a table of strings, numbers, lists and tables")

    def __attrs_post_init__(self) -> None:
        # The plugin keeps its own copy.
        object.__setattr__(self, "config", MappingProxyType(deepcopy(dict(self.config))))


@frozen
class Trial:
    """A value of an option that `rlx check --target` compares with the interpreter.

    Args:
        value: The value.
        dtypes: Dtypes of operands that the value affects; empty for all of them.
        epsilon: The precision of the results, where that is less than the operands'.
        is_library: Whether the vendor's library then multiplies matrices: the speed of products is compared with it.
    """

    value: bool | int | float | str
    dtypes: tuple[str, ...] = ()
    epsilon: float = 0.0
    is_library: bool = field(default=False, kw_only=True)


@frozen
class OptionSpec(Contribution):
    """A configuration option: its type, default and description, and the environment variable that may set it.

    Args:
        env: Begins with the name's first word, optionally after `RLX_`: `ACME_LEVEL`, `RLX_ACME_LEVEL`. If such a variable is
            set, the plugin of that name is activated for its options.
        trials: Values of an option of a device that a validation of the device tries, each alone.
        former: Earlier names of the option. A configuration that contains one of them is an error with the new name.
    """

    name: str = field(validator=option_name)
    type: type = field()
    default: bool | int | float | str | tuple[str, ...] | None = field()
    doc: str = field(validator=text)
    env: str | None = field(default=None, validator=environment_variable)
    trials: tuple[Trial, ...] = field(default=(), kw_only=True, converter=listed)
    former: tuple[str, ...] = field(default=(), kw_only=True, converter=listed)

    def __attrs_post_init__(self) -> None:
        if self.type not in (bool, int, float, str, tuple):
            raise refusal(self, "type", self.type, "bool, int, float, str or tuple")
        if self.default is not None and not isinstance(self.default, self.type):
            raise refusal(self, "default", self.default, f"of type {self.type.__name__}")
        for trial in self.trials:
            if not isinstance(trial, Trial) or not isinstance(trial.value, self.type):
                raise refusal(self, "trials", trial, f"a Trial of a {self.type.__name__}")
        if self.env is not None and not self.env.startswith(option_variables(self.name.partition(".")[0])):
            beginnings = " or ".join(f"{each}…" for each in option_variables(self.name.partition(".")[0]))
            raise refusal(self, "env", self.env, f"of the form {beginnings}, by which its plugin is found")


def option_variables(domain: str) -> tuple[str, ...]:
    """Return the prefixes of the environment variables of a domain's options."""
    word = domain.upper().replace("-", "_")
    return (f"{word}_", f"RLX_{word}_")


@frozen
class CommandSpec(Contribution):
    """A command of the `rlx` program; `load` is the address of the function that it calls."""

    name: str = field(validator=bare_name)
    load: LazyRef = field(converter=reference)


@frozen
class FunctionSpec(Contribution):
    """A function that users access as an attribute of `rlx_core`, such as one that converts another library's model.

    The distribution declares the entry point `function.<name>` in the group `rlx.when`: an attribute that no package declares
    is refused without importing a plugin.
    """

    name: str = field(validator=bare_name)
    load: LazyRef = field(converter=reference)


@frozen
class EventSpec(Contribution):
    """A listener to one compile event."""

    event: str = field(validator=OneOf(*EVENTS))
    load: LazyRef = field(converter=reference)

    @property
    def name(self) -> str:
        return f"{self.event}:{self.load}"


KINDS: Final[Mapping[str, type[Contribution]]] = MappingProxyType(
    {
        "ops": OpSpec,
        "rules": RuleSpec,
        "passes": PassSpec,
        "rulesets": RuleSetSpec,
        "legalizations": LegalizationSpec,
        "backends": BackendSpec,
        "kernels": KernelSpec,
        "blocks": BlockSpec,
        "schemes": SchemeSpec,
        "importers": ImporterSpec,
        "exporters": ExporterSpec,
        "pipelines": PipelineSpec,
        "options": OptionSpec,
        "commands": CommandSpec,
        "functions": FunctionSpec,
        "events": EventSpec,
    }
)

for _record in (*KINDS.values(), Trial):
    skips_newer_fields(_record)
