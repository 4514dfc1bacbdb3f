"""Settings: the environment variables of the configuration, as a table.

`RLX_NO_FUSION`-like names that contain a target's name are patterns; plugins add variables through `OptionSpec.env`. A
variable that begins with `RLX_` and is not known is reported, never an error: it may belong to another version.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rlx_core.errors import ConfigError, Fact, nearest
from rlx_core.pipeline.config.records import UnknownSetting
from rlx_core.system.records import frozen

FALSE = frozenset({"", "0", "false", "off", "no"})


def is_true(text: str) -> bool:
    """Return whether a setting is on: anything but "", 0, false, off and no."""
    return text.strip().lower() not in FALSE


def whole_number(text: str) -> int:
    return int(text, 10)


def words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def dispatch_policy(text: str) -> str:
    try:
        return {"common": "force-common", "native": "prefer-native"}[text]
    except KeyError:
        raise ValueError("common or native") from None


@frozen
class Setting:
    """One variable: the configuration key that it sets, and how its text is read."""

    name: str
    key: str
    read: Callable[[str], Any]
    doc: str

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(re.escape(self.name).replace("<TARGET>", "([A-Z0-9]+(?:_[A-Z0-9]+)*?)"))


SETTINGS = (
    Setting("RLX_TARGET", "target", str, "The device to compile for."),
    Setting("RLX_VERBOSE", "printing.verbose", is_true, "A line for every pass."),
    Setting("RLX_DISPATCH_REPORT", "printing.dispatch-report", is_true, "Print what runs where after compiling."),
    Setting("RLX_FUSION_REPORT", "printing.fusion-report", is_true, "Print what was fused and what nearly was."),
    Setting("RLX_KERNEL_DISPATCH", "dispatch.policy", dispatch_policy, "common: decompose ops that have both."),
    Setting("RLX_ALLOW_HOST", "dispatch.allow-host", words, "Ops that may run on the host; * is every op."),
    Setting("RLX_IR_DUMP", "printing.ir-dump", str, "A directory for HIR, MIR before and after, and LIR."),
    Setting("RLX_<TARGET>_NO_FUSION", "fusion.enabled", lambda t: not is_true(t), "Skip fusion for that target."),
    Setting("RLX_<TARGET>_UNFUSE_REGIONS", "fusion.unfuse-regions", is_true, "Take fused regions apart again."),
    Setting("RLX_CACHE_DIR", "cache.directory", str, "Where the index of plugins and compiled programs are kept."),
    Setting("RLX_PLUGINS_BLOCK", "plugins.block", words, "Plugins that are never imported."),
    Setting("RLX_PLUGINS_ALLOW", "plugins.allow", words, "The only plugins that may be imported."),
)

READERS: Mapping[type, Callable[[str], Any]] = {bool: is_true, int: whole_number, float: float, str: str, tuple: words}


def read_settings(
    environ: Mapping[str, str], target: str | None = None, options: Iterable[Any] = ()
) -> tuple[dict[str, tuple[Any, str]], tuple[UnknownSetting, ...]]:
    """Return the settings of the environment: key path → (value, variable), and the unknown variables.

    Args:
        environ: Usually `os.environ`.
        target: The target whose `RLX_<TARGET>_...` variables count; those of other targets are known and ignored.
        options: Contributed options (`OptionSpec`), some of which name a variable.

    Raises:
        ConfigError: The text of a variable cannot be parsed as the type of its setting.
    """
    options = list(options)
    table = [*SETTINGS, *(Setting(o.env, f"options.{o.name}", READERS[o.type], o.doc) for o in options if o.env)]
    values: dict[str, tuple[Any, str]] = {}
    unknown: list[UnknownSetting] = []
    for name in sorted(heeded(environ, options)):
        setting, meant_for = match_setting(table, name)
        if setting is None:
            unknown.append(UnknownSetting(name, nearest(name, [s.name for s in table])))
        elif meant_for is None or target is None or meant_for == target.upper().replace("-", "_"):
            values[setting.key] = (read_one(setting, name, environ[name]), name)
    return values, tuple(unknown)


def heeded(environ: Mapping[str, str], options: Iterable[Any]) -> list[str]:
    """Return the names of the variables that are read: the ones that begin with `RLX_`, and the ones of contributed options."""
    contributed = {o.env for o in options if o.env}
    return [name for name in environ if name.startswith("RLX_") or name in contributed]


def match_setting(table: Iterable[Setting], name: str) -> tuple[Setting | None, str | None]:
    """The setting that a variable sets, and the target in its name, if the setting has one."""
    for setting in table:
        match = setting.pattern.fullmatch(name)
        if match:
            return setting, match.group(1) if match.groups() else None
    return None, None


def read_one(setting: Setting, name: str, text: str) -> Any:
    try:
        return setting.read(text)
    except ValueError as error:
        requirement = str(error) if setting.read is dispatch_policy else "a number"
        raise ConfigError(f"{name}: found {text!r}, wanted {requirement}", Fact("sets", setting.key)) from None
