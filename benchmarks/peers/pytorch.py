"""PyTorch, eager and compiled, with its own fused functions where it has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.case import Data, Program
from benchmarks.cases.training import HEADS, LAYERS, RATE
from benchmarks.peers import pytorch_loops, pytorch_vision
from benchmarks.peers.pytorch_programs import inference, training


def make(kind: str, data: Data, threads: int) -> Mapping[str, Program]:
    torch.set_num_threads(threads)
    if kind in pytorch_loops.MAKERS:
        return pytorch_loops.MAKERS[kind](data)
    if kind.startswith("vision"):
        return pytorch_vision.make(kind, data)
    if kind in ("mlp", "gpt"):
        loss = mlp_loss if kind == "mlp" else gpt_loss
        x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
        functions = {"torch eager": loss, "torch.compile": torch.compile(loss)}
        return {name: training(function, data["params"], x, y, RATE) for name, function in functions.items()}
    if kind == "minilm":
        encoder = SentenceEncoder(data["weights"], data["config"])
        inputs = torch.from_numpy(data["ids"]), torch.from_numpy(data["mask"])
        return both(encoder, torch.compile(encoder, dynamic=False), inputs)
    maker = {"call": call, "chain": chain, "gemm": gemm}.get(kind) or MATH.get(kind)
    if maker is None:
        return {}
    function, inputs = maker(data)
    return both(function, torch.compile(function, dynamic=False), inputs)


def both(eager: Any, compiled: Any, inputs: tuple[torch.Tensor, ...]) -> Mapping[str, Program]:
    return {"torch eager": inference(eager, *inputs), "torch.compile": inference(compiled, *inputs)}


# ------------------------------------------------------------------------------------------- MiniLM


class SentenceEncoder(torch.nn.Module):
    """A BERT encoder with mean pooling; weights are buffers named as in the file."""

    def __init__(self, weights: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        super().__init__()
        self.heads, self.eps = config["num_attention_heads"], config["layer_norm_eps"]
        self.layers = config["num_hidden_layers"]
        for name, array in weights.items():
            self.register_buffer(name.replace(".", "_"), torch.from_numpy(np.array(array)))

    def weight(self, name: str) -> torch.Tensor:
        return getattr(self, name.replace(".", "_"))

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"))

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weight(f"{name}.weight"), self.weight(f"{name}.bias"), self.eps)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length = ids.shape
        words = F.embedding(ids, self.weight("embeddings.word_embeddings.weight"))
        kind = self.weight("embeddings.token_type_embeddings.weight")[0]
        places = self.weight("embeddings.position_embeddings.weight")[:length]
        h = self.norm(words + kind + places, "embeddings.LayerNorm")
        hidden = ((1.0 - mask) * -1e9)[:, None, None, :]
        for i in range(self.layers):
            prefix = f"encoder.layer.{i}"
            q, k, v = (
                self.linear(h, f"{prefix}.attention.self.{n}").view(batch, length, self.heads, -1).transpose(1, 2)
                for n in ("query", "key", "value")
            )
            context = F.scaled_dot_product_attention(q, k, v, attn_mask=hidden).transpose(1, 2).reshape(h.shape)
            h = self.norm(
                h + self.linear(context, f"{prefix}.attention.output.dense"), f"{prefix}.attention.output.LayerNorm"
            )
            inner = F.gelu(self.linear(h, f"{prefix}.intermediate.dense"))
            h = self.norm(h + self.linear(inner, f"{prefix}.output.dense"), f"{prefix}.output.LayerNorm")
        valid = mask[:, :, None]
        pooled = (h * valid).sum(1) / valid.sum(1)
        return pooled / pooled.norm(dim=1, keepdim=True)


# ----------------------------------------------------------------------------------------- training


def mlp_loss(params: Mapping[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for i in range(3):
        x = torch.addmm(params[f"b{i}"], x, params[f"w{i}"])
        x = F.relu(x) if i < 2 else x
    return F.cross_entropy(x, y)


def gpt_loss(params: Mapping[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    batch, length = x.shape
    h = params["embedding"][x] + params["positions"]
    features = h.shape[-1:]
    for i in range(LAYERS):
        packed = F.rms_norm(h, features, params[f"norm_a{i}"], 1e-5) @ params[f"qkv{i}"]
        q, k, v = (u.view(batch, length, HEADS, -1).transpose(1, 2) for u in packed.chunk(3, -1))
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(h.shape)
        h = h + context @ params[f"out{i}"]
        inner = F.gelu(F.rms_norm(h, features, params[f"norm_b{i}"], 1e-5) @ params[f"up{i}"])
        h = h + inner @ params[f"down{i}"]
    logits = F.rms_norm(h, features, params["norm"], 1e-5) @ params["embedding"].T
    return F.cross_entropy(logits.flatten(0, 1), y.flatten())


# -------------------------------------------------------------------------------------- small programs


def call(data: Data) -> Any:
    weights, biases = ([torch.from_numpy(a) for a in data[n]] for n in ("weights", "biases"))

    def layers(x: torch.Tensor) -> torch.Tensor:
        for w, b in zip(weights, biases, strict=True):
            x = torch.tanh(x @ w + b)
        return x

    return layers, (torch.from_numpy(data["x"]),)


def chain(data: Data) -> Any:
    def function(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return torch.tanh(a * b + c) * torch.exp(-a) + torch.sqrt(b) / (c + 1.5)

    return function, tuple(torch.from_numpy(data[n]) for n in "abc")


def gemm(data: Data) -> Any:
    w = torch.from_numpy(data["w"])
    return lambda x: x @ w, (torch.from_numpy(data["x"]),)


def of_one_variable(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Data], Any]:
    return lambda data: (lambda x: function(x), (torch.from_numpy(data["x"]),))


MATH = {
    "math-exp": of_one_variable(torch.exp),
    "math-tanh": of_one_variable(torch.tanh),
    "math-gelu": of_one_variable(F.gelu),
}
