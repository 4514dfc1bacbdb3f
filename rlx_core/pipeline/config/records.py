"""Configuration: the settings of a compilation, as immutable records with the defaults in plain sight.

These records are the whole vocabulary. Reading them from files, the environment and code, and reporting the faults of a
value, is `reading.py` and `structure.py`; resolving the named passes and plugins for a target is `plan.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, get_args

import attrs
from attrs import Factory, field
from attrs.validators import ge, in_

from rlx_core.errors import ConfigError
from rlx_core.plugins.policy import PluginPolicy
from rlx_core.system.budget import Budget
from rlx_core.system.records import frozen

STAGES = ("forward", "hir", "mir", "lir")

Entry = str | Mapping[str, Mapping[str, Any]]
"""One line of a pipeline: a name, or one name with a table of options."""

EMPTY: Mapping[str, Any] = MappingProxyType({})


class Plain:
    """A record of frozen tables; pickles hold its fields as plain tables, from which it is restored."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        fields: Any = attrs.fields(type(self))  # type: ignore[arg-type]
        return made_of, (type(self), {a.name: thaw(getattr(self, a.name)) for a in fields})


def made_of(cls: type[Any], fields: Mapping[str, Any]) -> Any:
    """The record with these fields, checked as any."""
    return cls(**fields)


def thaw(value: Any) -> Any:
    """Return read-only mappings as mutable tables, recursively."""
    if isinstance(value, Mapping):
        return {k: thaw(v) for k, v in value.items()}
    return tuple(map(thaw, value)) if isinstance(value, tuple) else value


def freeze(value: Any) -> Any:
    """Return lists as tuples and tables as read-only mappings, recursively."""
    if isinstance(value, Mapping):
        return MappingProxyType({k: freeze(v) for k, v in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return tuple(map(freeze, value))
    return value


def is_path(record: object, attribute: Any, value: str | None) -> None:
    """A validator: the value is a valid path."""
    try:
        has_nul = value is not None and b"\0" in os.fsencode(value)
    except UnicodeEncodeError as error:
        raise ValueError(f"'{attribute.name}' must be a path: {value!a} ({error.reason})") from None
    if has_nul:
        raise ValueError(f"'{attribute.name}' must be a path: {value!a} (it holds a NUL)")


def power_of_two(record: object, attribute: Any, value: int | None) -> None:
    if value is not None and (value < 1 or value & (value - 1)):
        raise ValueError(f"'{attribute.name}' must be a power of two: {value}")


@frozen
class PluginConfig(Plain):
    """The selection of plugins.

    Attributes:
        enable: Plugins to activate at once.
        block: Names or patterns that are never imported.
        allow: If not empty, the only ones that may be.
        override: Contested name → the plugin that provides it.
        files: Plugin files that are not installed; relative to the configuration file.
    """

    enable: tuple[str, ...] = ()
    block: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    override: Mapping[str, str] = field(default=EMPTY, converter=freeze)
    files: tuple[str, ...] = ()

    def policy(self, source: str) -> PluginPolicy:
        """The selection as plugin hosts take it; reports name `source` for each of its words."""
        enable = (*self.enable, *self.files)
        return PluginPolicy.of(block=self.block, allow=self.allow, enable=enable, override=self.override, source=source)


@frozen
class PipelineConfig(Plain):
    """A pipeline: the passes of a program, one ordered list per stage.

    Attributes:
        forward: Passes on a function before reverse-mode differentiation, while the program is traced.
        hir, mir, lir: Passes on the program afterwards.
    """

    forward: tuple[Entry, ...] = field(default=(), converter=freeze)
    hir: tuple[Entry, ...] = field(default=(), converter=freeze)
    mir: tuple[Entry, ...] = field(default=(), converter=freeze)
    lir: tuple[Entry, ...] = field(default=(), converter=freeze)


@frozen
class DispatchConfig:
    """The choice of kernels for nodes.

    Attributes:
        policy: `prefer-native` takes a kernel where there is one; `force-common` decomposes ops that have both;
            `force-native` refuses ops that have both and no kernel that accepts them.
        force_common, force_native: Ops, or plugins (`acme.*`), for which that policy holds instead; native wins.
        allow_host: Ops (or patterns) that may run on the host with the reference kernels; `["*"]` is every op.
        rounds: Maximum number of rewriting rounds before illegal nodes are reported.
    """

    policy: Literal["prefer-native", "force-common", "force-native"] = field(
        default="prefer-native", validator=in_(("prefer-native", "force-common", "force-native"))
    )
    force_common: tuple[str, ...] = ()
    force_native: tuple[str, ...] = ()
    allow_host: tuple[str, ...] = ()
    rounds: int = field(default=16, validator=ge(1))


Precision = Literal["f32", "bf16", "f16"]
"""The dtype of matrix products, convolutions and attention in f32 programs."""

PRECISIONS: tuple[Precision, ...] = get_args(Precision)


@frozen
class PrecisionConfig:
    """The compute precision of f32 programs: the options of the pass `mixed-precision`, which runs unless the policy is `f32`.

    Attributes:
        policy: The dtype of matrix products, convolutions and attention.
        force: Whether these are in that dtype on targets that compute them faster in f32, too.
        keep: Ops that stay in f32: names, or patterns of names.
    """

    policy: Precision = field(default="f32", validator=in_(PRECISIONS))
    force: bool = False
    keep: tuple[str, ...] = ()


@frozen
class FusionConfig:
    """Settings of fusion.

    Attributes:
        policy: The lowering of HIR blocks: `fusable` leaves work for the passes, `direct` emits fused ops.
        enabled: Whether fusion passes of the pipeline run; without them the program is merely cleaned and legalised.
        unfuse_regions: Whether fused element-wise regions are decomposed again before code is generated.
        assert_clean: Whether a program with a place that was nearly fused is refused, with all such places.
        allowed_misses: Reasons (`BiasRankTooHigh`) or patterns (`fuse-matmul-bias-act/matmul-bias`) that this check ignores.
    """

    policy: Literal["fusable", "direct"] = field(default="direct", validator=in_(("fusable", "direct")))
    enabled: bool = True
    unfuse_regions: bool = False
    assert_clean: bool = False
    allowed_misses: tuple[str, ...] = ()


@frozen
class CacheConfig:
    """The cache of compiled programs.

    Attributes:
        entries: The most programs one compiled function keeps in memory.
        disk: Whether they are kept on disk too.
        directory: Its directory; the user's cache directory if not given.
        limit: Bytes on disk before the least recently used go.
    """

    entries: int = field(default=64, validator=ge(1))
    disk: bool = True
    directory: str | None = field(default=None, validator=is_path)
    limit: int = field(default=1 << 30, validator=ge(0))  # bytes


@frozen
class MemoryConfig:
    """The planning of the arena: alignment in bytes (the target's own if not given) and the packing strategy."""

    alignment: int | None = field(default=None, validator=power_of_two)
    strategy: str = "best"


@frozen
class PrintingConfig:
    """Output that a compilation prints while it works.

    Attributes:
        verbose: A line for every pass.
        dispatch_report, fusion_report: Print these reports after compiling.
        before, after: Passes around which the graph is printed; `["*"]` is all.
        ir_dump: A directory that HIR, MIR before and after, and LIR are written to.
    """

    verbose: bool = False
    dispatch_report: bool = False
    fusion_report: bool = False
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    ir_dump: str | None = field(default=None, validator=is_path)

    @property
    def shows_passes(self) -> bool:
        """Whether passes must run to print the requested output: a program from a cache has no passes to show."""
        return self.verbose or bool(self.before or self.after) or self.ir_dump is not None

    @property
    def shows_results(self) -> bool:
        """Whether something is printed after compiling."""
        return self.verbose or self.dispatch_report or self.fusion_report


@frozen
class UnknownSetting:
    """An unknown `RLX_...` variable, with the nearest known one."""

    name: str
    hint: str | None


@frozen
class Configuration(Plain):
    """All settings of a compilation. A value: equal configurations compile equally.

    Attributes:
        target: The device to compile for; the preferred one that is available, if not given.
        use: The name of the pipeline.
        pipeline: Pipelines of the user's own, by name; they stand before contributed ones of the same name.
        include: Passes that run as well, each at the position that the `before` and `after` of its record determine.
        passes: Options for passes wherever they occur, by pass name.
        options: Values for options that plugins contribute, by option name.
        verify: Whether the verifier runs after every pass.
        origins: Key path → its source (a file, a variable, "the program"); not part of equality.
        unknown_settings: Environment variables that look like settings and are not known.
    """

    target: str | None = None
    use: str = "inference"
    pipeline: Mapping[str, PipelineConfig] = field(default=EMPTY, converter=freeze)
    include: tuple[Entry, ...] = field(default=(), converter=freeze)
    passes: Mapping[str, Mapping[str, Any]] = field(default=EMPTY, converter=freeze)
    options: Mapping[str, Any] = field(default=EMPTY, converter=freeze)
    plugins: PluginConfig = Factory(PluginConfig)
    dispatch: DispatchConfig = Factory(DispatchConfig)
    precision: PrecisionConfig = Factory(PrecisionConfig)
    fusion: FusionConfig = Factory(FusionConfig)
    cache: CacheConfig = Factory(CacheConfig)
    memory: MemoryConfig = Factory(MemoryConfig)
    printing: PrintingConfig = Factory(PrintingConfig)
    budget: Budget = Factory(Budget)
    verify: bool = True
    origins: Mapping[str, str] = field(default=EMPTY, converter=freeze, eq=False, repr=False)
    unknown_settings: tuple[UnknownSetting, ...] = field(default=(), eq=False)

    @property
    def included(self) -> dict[str, Entry]:
        """The additional passes by key path: the entries of `include`, and `mixed-precision` if a precision is set."""
        result = {f"include[{i}]": entry for i, entry in enumerate(self.include)}
        if self.precision.policy != "f32":
            options = {"dtype": self.precision.policy, "force": self.precision.force, "keep": self.precision.keep}
            result["precision.policy"] = {"mixed-precision": options}
        return result

    def origin_of(self, key: str) -> str:
        """Return the source of a key, or of the nearest table around it; "the default" if it was not set."""
        return source_of(key, self.origins) or "the default"


def source_of(key: str, origins: Mapping[str, str]) -> str | None:
    """Return the source of a key, or of the nearest table around it, among key paths with their sources."""
    while key and key not in origins:
        key = key.rpartition(".")[0]
    return origins.get(key)


def split_entry(entry: Entry, where: str) -> tuple[str, Mapping[str, Any]]:
    """The name and the options of one line of a pipeline.

    Raises:
        ConfigError: It is neither a name nor one name with a table.
    """
    if isinstance(entry, str):
        return entry, EMPTY
    if isinstance(entry, Mapping) and len(entry) == 1:
        (name, options), *_ = entry.items()
        if isinstance(options, Mapping):
            return name, options
    raise ConfigError(f"{where}: an entry is a name or {{ name = {{ options }} }}, not {entry!r}")
