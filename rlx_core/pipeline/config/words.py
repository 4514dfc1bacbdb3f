"""Words of a configuration that name ops: one that matches no op is an error, since the policy would have no effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from operator import attrgetter

from rlx_core.errors import ConfigError, Fact, nearest
from rlx_core.ir.graph import Graph, ops_inside
from rlx_core.pipeline.config.records import Configuration
from rlx_core.plugins import PluginHost

KEYS = ("dispatch.force_common", "dispatch.force_native", "dispatch.allow_host", "precision.keep")


def check_words(configuration: Configuration, host: PluginHost, graph: Graph) -> None:
    """Require that every op that the configuration names exists.

    Raises:
        ConfigError: One does not.
    """
    entries = list(words_of(configuration))
    if not entries:
        return
    used = {op.name for op in ops_inside(graph)}
    unknown = [each for each in entries if not means_an_op(each[1], {*host.registry().ops, *used}, host)]
    if not unknown:
        return
    known = {*host.activate_all().ops, *used}
    for key, word in unknown:
        if not means_an_op(word, known, host):
            short = [name.removeprefix("rlx.") for name in known]
            raise ConfigError(
                f"{key}: {word!r} means no op and no plugin",
                Fact("said by", configuration.origin_of(key)),
                hint=nearest(word, [*short, *known]) or "`rlx ops` lists them",
            )


def words_of(configuration: Configuration) -> Iterator[tuple[str, str]]:
    """Each word with the key that it is under."""
    for key in KEYS:
        words: tuple[str, ...] = attrgetter(key)(configuration)
        for word in words:
            yield key.replace("_", "-"), word


def means_an_op(word: str, known: Iterable[str], host: PluginHost) -> bool:
    """Return whether a word is an op, an op of `rlx` without that, a plugin, or a pattern that some op matches."""
    domain = word.removesuffix(".*")
    if any(domain == entry.name for entry in host.entries):
        return True
    return any(fnmatchcase(name, word) or name == f"rlx.{word}" for name in known)
