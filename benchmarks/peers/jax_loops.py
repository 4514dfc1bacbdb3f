"""JAX on the CPU: loops, decoding with a cache, random numbers and an optimiser, each as its users write it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.case import Data, Program
from benchmarks.cases.decoding import HEADS, LAYERS, MAX_LENGTH, no_cache
from benchmarks.cases.numbers import RATE, moments, parts


def run_lstm(params: Mapping[str, Any], x: Any) -> Any:
    """As `nn.lstm`: what depends on one step alone is computed for all steps at once."""
    batch, hidden = x.shape[0], params["u"].shape[0]

    def step(carry: Any, z: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(z + h @ params["u"], 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    z = (x @ params["w"] + params["b"]).transpose(1, 0, 2)
    start = jnp.zeros((batch, hidden), x.dtype)
    return jax.lax.scan(step, (start, start), z)[1].transpose(1, 0, 2)


def lstm_loss(params: Mapping[str, Any], x: Any, y: Any) -> Any:
    outputs = run_lstm(params, x)
    return (outputs * outputs).mean() - y


def timed(function: Callable[..., Any], *inputs: Any, results: Callable[[Any], Sequence[Any]] | None = None) -> Program:
    compiled = jax.jit(function)
    read = results or (lambda output: [output])
    return Program(lambda: compiled(*inputs).block_until_ready(), lambda: read(compiled(*inputs)))


def donating(step: Callable[..., Any], initial: Mapping[str, np.ndarray], *inputs: Any) -> Program:
    """Steps of training whose parameters are donated: `step(params, *inputs)` returns the loss and the next parameters."""
    compiled = jax.jit(step, donate_argnums=0)

    def fresh() -> dict[str, Any]:
        return {n: jnp.array(p) for n, p in initial.items()}

    state = fresh()

    def run() -> None:
        nonlocal state
        _, state = compiled(state, *inputs)
        jax.block_until_ready(state)

    def results() -> list[Any]:
        value, params = compiled(fresh(), *inputs)
        return [value, *(params[n] for n in sorted(params))]

    return Program(run, results)


def lstm(data: Data) -> Mapping[str, Program]:
    params, x = {n: jnp.asarray(a) for n, a in data["params"].items()}, jnp.asarray(data["x"])
    return {
        "jax.jit": timed(run_lstm, params, x),
        "jax.jit, weights constant": timed(partial(run_lstm, params), x),
    }


def scan(data: Data) -> Mapping[str, Program]:
    def function(w: Any, c: Any, xs: Any) -> Any:
        return jax.lax.scan(lambda c, x: (jnp.tanh(c @ w + x), None), c, xs)[0]

    return {"jax.jit": timed(function, *map(jnp.asarray, data["arrays"]))}


# ----------------------------------------------------------------------------------------- decoding


def rms_norm(x: Any, g: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g


def decode_step(params: Mapping[str, Any], cache: Sequence[Any], token: Any, place: Any) -> tuple[Any, Any, list[Any]]:
    h = params["embedding"][token] + params["positions"][place]
    seen, new = jnp.arange(MAX_LENGTH) <= place, []
    for i in range(LAYERS):
        q, k, v = jnp.split(rms_norm(h, params[f"norm_a{i}"]) @ params[f"qkv{i}"], 3)
        keys, values = (
            jax.lax.dynamic_update_slice(c, n[None, None], (0, place, 0))
            for c, n in ((cache[2 * i], k), (cache[2 * i + 1], v))
        )
        new += [keys, values]
        heads, by_head = q.reshape(HEADS, -1), (a.reshape(MAX_LENGTH, HEADS, -1) for a in (keys, values))
        their_keys, their_values = by_head
        scores = jnp.einsum("hd,rhd->hr", heads, their_keys) / math.sqrt(heads.shape[-1])
        weights = jax.nn.softmax(jnp.where(seen, scores, -1e30))
        h = h + jnp.einsum("hr,rhd->hd", weights, their_values).reshape(-1) @ params[f"out{i}"]
        inner = jax.nn.gelu(rms_norm(h, params[f"norm_b{i}"]) @ params[f"up{i}"], approximate=False)
        h = h + inner @ params[f"down{i}"]
    scores = rms_norm(h, params["norm"]) @ params["embedding"].T
    return scores.argmax(), scores, new


def decode(data: Data) -> Mapping[str, Program]:
    params = {n: jnp.asarray(a) for n, a in data["params"].items()}
    fed = jax.jit(decode_step, donate_argnums=1)
    bound = jax.jit(partial(decode_step, params), donate_argnums=0)

    def written(compiled: Callable[..., Any]) -> list[Any]:
        cache, token, tokens, scores = [jnp.asarray(c) for c in no_cache()], 1, [], None
        for place in range(data["tokens"]):
            next_token, scores, cache = compiled(cache, token, place)
            token = int(next_token)
            tokens.append(token)
        return [np.array(tokens), scores]

    runs = {
        "jax.jit donated": partial(written, partial(fed, params)),
        "jax.jit, weights constant": partial(written, bound),
    }
    return {name: Program(run, run) for name, run in runs.items()}


# ------------------------------------------------------------------------------------------ numbers


def random(draw: Callable[..., Any], data: Data) -> Mapping[str, Program]:
    return {"jax.jit": timed(lambda key: draw(key, (data["count"],)), jax.random.key(0), results=moments)}


def fft(data: Data) -> Mapping[str, Program]:
    return {"jax.jit": timed(jnp.fft.fft, jnp.asarray(data["x"]), results=parts)}


def adamw(data: Data) -> Mapping[str, Program]:
    def step(p: Any, m: Any, v: Any, count: Any, g: Any) -> Any:
        count = count + 1
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        steady = jnp.sqrt(v / (1 - 0.999**count)) + 1e-8
        return p - RATE * (m / (1 - 0.9**count) / steady + 1e-4 * p), m, v, count

    compiled, grads = jax.jit(step, donate_argnums=(0, 1, 2, 3)), jnp.asarray(data["grads"])

    def fresh() -> Any:
        p = jnp.array(data["params"])
        return p, jnp.zeros_like(p), jnp.zeros_like(p), jnp.zeros((), jnp.float32)

    state = fresh()

    def run() -> None:
        nonlocal state
        state = jax.block_until_ready(compiled(*state, grads))

    return {"jax.jit donated": Program(run, lambda: [compiled(*fresh(), grads)[0]])}


MAKERS: Mapping[str, Callable[[Data], Mapping[str, Program]]] = {
    "lstm": lstm,
    "scan": scan,
    "decode": decode,
    "random-uniform": partial(random, jax.random.uniform),
    "random-normal": partial(random, jax.random.normal),
    "fft": fft,
    "adamw": adamw,
}
