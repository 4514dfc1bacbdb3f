"""JAX on the CPU, jitted: weights as arguments and as constants, training with donated parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.case import Data, Program
from benchmarks.cases.training import HEADS, LAYERS, RATE
from benchmarks.peers import jax_loops, jax_vision


def make(kind: str, data: Data, threads: int) -> Mapping[str, Program]:
    if kind in LOSSES:
        return {"jax.jit donated": training(LOSSES[kind], data)}
    if kind in jax_loops.MAKERS:
        return jax_loops.MAKERS[kind](data)
    if kind.startswith("vision"):
        return jax_vision.make(kind, data)
    if kind == "minilm":
        return {"jax.jit": minilm(data), "jax.jit, weights constant": minilm_constant(data)}
    if kind == "compile":
        from benchmarks.first_call import program as first_call  # which starts a process that imports this module

        return {"jax.jit": first_call("jax", data)}
    if kind == "call":
        function, (x,) = call(data)
        compiled = jax.jit(function)
        converted = Program(lambda: np.asarray(compiled(data["x"])), lambda: [compiled(x)])
        return {"jax.jit": program(function, (x,)), "jax.jit, NumPy in and out": converted}
    maker = {"chain": chain, "gemm": gemm}.get(kind) or MATH.get(kind)
    return {} if maker is None else {"jax.jit": program(*maker(data))}


def program(function: Callable[..., Any], inputs: tuple[Any, ...]) -> Program:
    compiled = jax.jit(function)
    return Program(lambda: compiled(*inputs).block_until_ready(), lambda: [compiled(*inputs)])


# ------------------------------------------------------------------------------------------- MiniLM


def encode(weights: Mapping[str, Any], ids: Any, mask: Any, config: Mapping[str, Any]) -> Any:
    """Embeddings of token ids; the same model as the other programs, in primitives."""
    batch, length = ids.shape
    heads, eps = config["num_attention_heads"], config["layer_norm_eps"]

    def linear(x: Any, name: str) -> Any:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x: Any, name: str) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + eps)
        return centred * scale * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    words = weights["embeddings.word_embeddings.weight"][ids]
    kind = weights["embeddings.token_type_embeddings.weight"][0]
    h = norm(words + kind + weights["embeddings.position_embeddings.weight"][:length], "embeddings.LayerNorm")
    hidden = ((1.0 - mask) * -1e9)[:, None, None, :]
    for i in range(config["num_hidden_layers"]):
        prefix = f"encoder.layer.{i}"
        q, k, v = (
            linear(h, f"{prefix}.attention.self.{n}").reshape(batch, length, heads, -1).transpose(0, 2, 1, 3)
            for n in ("query", "key", "value")
        )
        p = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1]) + hidden)
        context = (p @ v).transpose(0, 2, 1, 3).reshape(h.shape)
        h = norm(h + linear(context, f"{prefix}.attention.output.dense"), f"{prefix}.attention.output.LayerNorm")
        inner = jax.nn.gelu(linear(h, f"{prefix}.intermediate.dense"), approximate=False)
        h = norm(h + linear(inner, f"{prefix}.output.dense"), f"{prefix}.output.LayerNorm")
    valid = mask[:, :, None]
    pooled = (h * valid).sum(1) / valid.sum(1)
    return pooled / jnp.linalg.norm(pooled, axis=1, keepdims=True)


def minilm(data: Data) -> Program:
    weights = {n: jnp.asarray(a) for n, a in data["weights"].items()}
    compiled = jax.jit(lambda w, ids, mask: encode(w, ids, mask, data["config"]))
    ids, mask = jnp.asarray(data["ids"]), jnp.asarray(data["mask"])
    return Program(lambda: compiled(weights, ids, mask).block_until_ready(), lambda: [compiled(weights, ids, mask)])


def minilm_constant(data: Data) -> Program:
    weights = {n: jnp.asarray(a) for n, a in data["weights"].items()}
    return program(
        lambda ids, mask: encode(weights, ids, mask, data["config"]),
        (jnp.asarray(data["ids"]), jnp.asarray(data["mask"])),
    )


# ----------------------------------------------------------------------------------------- training


def training(loss: Callable[..., Any], data: Data) -> Program:
    def step(params: Mapping[str, Any], x: Any, y: Any) -> tuple[Any, dict[str, Any]]:
        value, grads = jax.value_and_grad(loss)(params, x, y)
        return value, {n: p - RATE * grads[n] for n, p in params.items()}

    return jax_loops.donating(step, data["params"], jnp.asarray(data["x"]), jnp.asarray(data["y"]))


def cross_entropy(logits: Any, y: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()


def mlp_loss(params: Mapping[str, Any], x: Any, y: Any) -> Any:
    for i in range(3):
        x = x @ params[f"w{i}"] + params[f"b{i}"]
        x = jax.nn.relu(x) if i < 2 else x
    return cross_entropy(x, y)


def rms_norm(x: Any, g: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g


def gpt_loss(params: Mapping[str, Any], x: Any, y: Any) -> Any:
    batch, length = x.shape
    h = params["embedding"][x] + params["positions"]
    visible = jnp.tril(jnp.ones((length, length), bool))
    for i in range(LAYERS):
        packed = jnp.split(rms_norm(h, params[f"norm_a{i}"]) @ params[f"qkv{i}"], 3, -1)
        q, k, v = (u.reshape(batch, length, HEADS, -1).transpose(0, 2, 1, 3) for u in packed)
        scores = jnp.where(visible, q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1]), -1e30)
        h = h + (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(h.shape) @ params[f"out{i}"]
        inner = jax.nn.gelu(rms_norm(h, params[f"norm_b{i}"]) @ params[f"up{i}"], approximate=False)
        h = h + inner @ params[f"down{i}"]
    logits = rms_norm(h, params["norm"]) @ params["embedding"].T
    return cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


LOSSES: Mapping[str, Callable[..., Any]] = {"mlp": mlp_loss, "gpt": gpt_loss, "lstm-train": jax_loops.lstm_loss}


# -------------------------------------------------------------------------------------- small programs


def call(data: Data) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    layers = [(jnp.asarray(w), jnp.asarray(b)) for w, b in zip(data["weights"], data["biases"], strict=True)]

    def function(x: Any) -> Any:
        for w, b in layers:
            x = jnp.tanh(x @ w + b)
        return x

    return function, (jnp.asarray(data["x"]),)


def chain(data: Data) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    def function(a: Any, b: Any, c: Any) -> Any:
        return jnp.tanh(a * b + c) * jnp.exp(-a) + jnp.sqrt(b) / (c + 1.5)

    return function, tuple(jnp.asarray(data[n]) for n in "abc")


def gemm(data: Data) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return lambda x, w: x @ w, (jnp.asarray(data["x"]), jnp.asarray(data["w"]))


def of_one_variable(function: Callable[[Any], Any]) -> Callable[[Data], tuple[Callable[..., Any], tuple[Any, ...]]]:
    return lambda data: (function, (jnp.asarray(data["x"]),))


MATH = {
    "math-exp": of_one_variable(jnp.exp),
    "math-tanh": of_one_variable(jnp.tanh),
    "math-gelu": of_one_variable(lambda x: jax.nn.gelu(x, approximate=False)),
}
