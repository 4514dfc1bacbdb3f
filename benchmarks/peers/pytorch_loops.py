"""PyTorch: its own LSTM, decoding with a cache, and its fused optimiser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.case import Data, Program
from benchmarks.cases.decoding import FEATURES, HEADS, LAYERS, MAX_LENGTH, no_cache
from benchmarks.cases.numbers import RATE
from benchmarks.cases.training import RATE as SGD_RATE
from benchmarks.peers.pytorch_programs import inference


def lstm_of(params: Mapping[str, np.ndarray]) -> torch.nn.LSTM:
    """`torch.nn.LSTM` with our weights; its second bias is 0 and is not updated."""
    module = torch.nn.LSTM(params["w"].shape[0], params["u"].shape[0], batch_first=True)
    with torch.no_grad():
        for name, value in (
            ("weight_ih_l0", params["w"].T),
            ("weight_hh_l0", params["u"].T),
            ("bias_ih_l0", params["b"]),
        ):
            getattr(module, name).copy_(torch.from_numpy(np.ascontiguousarray(value)))
        module.bias_hh_l0.zero_()
    module.bias_hh_l0.requires_grad_(False)
    return module


def lstm(data: Data) -> Mapping[str, Program]:
    module, x = lstm_of(data["params"]), torch.from_numpy(data["x"])
    return {"torch eager": inference(lambda x: module(x)[0], x)}


def lstm_train(data: Data) -> Mapping[str, Program]:
    x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])

    def step(module: torch.nn.LSTM) -> torch.Tensor:
        outputs = module(x)[0]
        value: torch.Tensor = (outputs * outputs).mean() - y
        tensors = [module.weight_ih_l0, module.weight_hh_l0, module.bias_ih_l0]
        grads = torch.autograd.grad(value, tensors)
        with torch.no_grad():
            torch._foreach_sub_(tensors, torch._foreach_mul(grads, SGD_RATE))
        return value

    trained = lstm_of(data["params"])

    def results() -> list[np.ndarray]:
        module = lstm_of(data["params"])
        value = step(module).detach().numpy()
        u, w = (getattr(module, f"weight_{n}_l0").detach().numpy().T for n in ("hh", "ih"))
        return [value, module.bias_ih_l0.detach().numpy(), u, w]

    return {"torch eager": Program(lambda: step(trained), results, torch.get_num_threads())}


# ----------------------------------------------------------------------------------------- decoding


def decode_step(
    params: Mapping[str, torch.Tensor], cache: list[torch.Tensor], token: torch.Tensor, place: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The cache is written in place."""
    h = (params["embedding"][token] + params["positions"][place]).view(1, 1, -1)
    seen = (torch.arange(MAX_LENGTH) <= place).view(1, 1, 1, MAX_LENGTH)
    for i in range(LAYERS):
        normed = F.rms_norm(h, (FEATURES,), params[f"norm_a{i}"], 1e-5)
        q, k, v = (normed @ params[f"qkv{i}"]).chunk(3, -1)
        for old, new in ((cache[2 * i], k), (cache[2 * i + 1], v)):
            old.index_copy_(1, place.view(1), new)
        heads, keys, values = (
            u.view(1, -1, HEADS, FEATURES // HEADS).transpose(1, 2) for u in (q, *cache[2 * i : 2 * i + 2])
        )
        context = F.scaled_dot_product_attention(heads, keys, values, attn_mask=seen)
        h = h + context.transpose(1, 2).reshape(h.shape) @ params[f"out{i}"]
        inner = F.gelu(F.rms_norm(h, (FEATURES,), params[f"norm_b{i}"], 1e-5) @ params[f"up{i}"])
        h = h + inner @ params[f"down{i}"]
    scores = (F.rms_norm(h, (FEATURES,), params["norm"], 1e-5) @ params["embedding"].T).view(-1)
    return scores.argmax(), scores


def decode(data: Data) -> Mapping[str, Program]:
    params = {n: torch.from_numpy(a) for n, a in data["params"].items()}

    @torch.inference_mode()
    def written(step: Callable[..., Any]) -> list[np.ndarray]:
        cache = [torch.from_numpy(c) for c in no_cache()]
        token, tokens, scores = torch.tensor(1), [], torch.empty(0)
        for place in range(data["tokens"]):
            token, scores = step(params, cache, token, torch.tensor(place))
            tokens.append(int(token))
        return [np.array(tokens), scores.numpy()]

    run = partial(written, decode_step)
    return {"torch eager": Program(run, run, torch.get_num_threads())}


# ------------------------------------------------------------------------------------------ numbers


def adamw(data: Data) -> Mapping[str, Program]:
    def fresh() -> tuple[torch.Tensor, torch.optim.Optimizer]:
        p = torch.from_numpy(data["params"].copy()).requires_grad_()
        p.grad = torch.from_numpy(data["grads"])
        return p, torch.optim.AdamW([p], lr=RATE, weight_decay=1e-4, fused=True)

    _, fused = fresh()

    def results() -> list[np.ndarray]:
        p, optimiser = fresh()
        optimiser.step()
        return [p.detach().numpy()]

    return {"torch fused": Program(fused.step, results, torch.get_num_threads())}


MAKERS: Mapping[str, Callable[[Data], Mapping[str, Program]]] = {
    "lstm": lstm,
    "lstm-train": lstm_train,
    "decode": decode,
    "adamw": adamw,
}
