"""Events that go to Python's `logging`, under `rlx.*`: each kind of event, with its logger, its level and its message.

Nothing is logged above INFO, because faults are raised or warned about; and no handler is installed, so that nothing is
shown until a program configures it: `logging.basicConfig(level="INFO")`, or "DEBUG" for every pass. Where `logging` was not
imported there is no handler either, and it is not imported for this.

`logging` has locks, which a thread that forks acquires before it waits for rlx: so a fork does not wait for a thread that logs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final, Literal

from rlx_core.system.locks import fork_safepoint

LOGGED: Final[Mapping[str, tuple[str, Literal["DEBUG", "INFO"], str]]] = {
    "compile-start": ("rlx.compile", "DEBUG", "%(program)s for %(target)s: key %(key).12s"),
    "cache-hit": ("rlx.cache", "DEBUG", "%(program)s: found, %(source)s"),
    "cache-miss": ("rlx.cache", "DEBUG", "%(program)s: not found"),
    "pass-end": ("rlx.passes", "DEBUG", "%(program)s: %(name)s, %(nodes)d nodes, %(seconds).4f s, %(counts)s"),
    "compile-end": ("rlx.compile", "INFO", "%(program)s for %(target)s: %(source)s, %(seconds).3f s"),
    "specialize": ("rlx.compile", "INFO", "%(program)s: planned for %(sizes)s, %(seconds).3f s"),
    "unrecorded": ("rlx.compile", "DEBUG", "%(program)s: %(sizes)s are not recorded: %(reason)s"),
    "binary-refused": ("rlx.cache", "INFO", "%(device)s: %(reason)s"),
    "traced-for-every-call": ("rlx.compile", "INFO", "%(program)s is traced again for every call: %(reason)s"),
    "build": ("rlx.compile", "INFO", "%(program)s for %(target)s: code %(code)s, %(seconds).3f s"),
}
"""Event → its logger, its level and its message, in the names of the event's facts."""


def log_event(event: str, facts: Mapping[str, Any]) -> None:
    """Log an event that is in the table, if its logger is enabled for its level."""
    logging: Any = sys.modules.get("logging")
    if logging is None or event not in LOGGED:
        return
    name, level, words = LOGGED[event]
    with fork_safepoint:
        logger, number = _logger(logging, name), getattr(logging, level)
        if logger.isEnabledFor(number):
            logger.log(number, words, facts)


def _logger(logging: Any, name: str) -> Any:
    """Return a logger, without the lock of `logging` where it exists already."""
    logger = logging.Logger.manager.loggerDict.get(name)
    return logger if isinstance(logger, logging.Logger) else logging.getLogger(name)
