"""`profile`: time, memory and transfers of each step and each source line of a compiled function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

from rlx_core.errors import ConfigError
from rlx_core.hints.keywords import checked_call
from rlx_core.pipeline.profile import Profile, profiled
from rlx_core.runtime.compiled_function import CompiledFunction
from rlx_core.runtime.executable import Executable
from rlx_core.runtime.jit import Jitted
from rlx_core.trees.flatten import expect_function

P = ParamSpec("P")


@checked_call
def profile(function: Callable[P, Any], *, runs: int = 1) -> Callable[P, Profile]:
    """Return a function that calls `function` and returns its profile; `print` it, or display it in a notebook.

    The profile has the time of each step and of each source line, the memory of each program, and the bytes transferred
    between the host and devices; `profile.save_trace("trace.json")` writes it for Chrome or Perfetto, and `profile.result` is
    the result of `function`. Steps run one by one, so the total is longer than an unobserved call. To exclude the effects of
    first runs (page faults, cold caches) from the times, call the function once before.

    Args:
        function: A compiled function (`rlx.jit`, `rlx.compile`, `rlx.grad`, `rlx.train_step`, …; the `run` of an executable),
            or a Python function of arrays, which is compiled by `rlx.jit`.
        runs: Calls with the same arguments; tables show each step at its fastest. One, if the function donates arguments.

    Raises:
        ConfigError: `runs` is not a positive integer.

    >>> square = rlx.jit(lambda x: x @ x)
    >>> print(rlx.profile(square)(np.ones((64, 64), np.float32)).line_table())      # doctest: +SKIP
     share        us steps  line
    100.0%      14.2     1  example.py:3  square = rlx.jit(lambda x: x @ x)
    """
    expect_function("profile", function)
    if type(runs) is not int or runs < 1:
        raise ConfigError(f"profile: runs must be a positive integer, not {runs!r}")
    owner = getattr(function, "__self__", function)  # `executable.run` is a method of the compiled object
    is_compiled = isinstance(owner, Jitted | CompiledFunction | Executable)
    called: Callable[P, Any] = function if is_compiled else Jitted(function, {}, ())

    @functools.wraps(function)
    def profiling(*args: P.args, **kwargs: P.kwargs) -> Profile:
        with profiled() as taken:
            for _ in range(runs):
                taken.result = called(*args, **kwargs)
        return taken

    return profiling
