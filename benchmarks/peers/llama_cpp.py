"""llama.cpp by llama-cpp-python, which is compiled for this processor when it is installed."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import llama_cpp
import numpy as np

from benchmarks.case import Data, Program
from benchmarks.cases.gguf import normalised

NO_LOG = llama_cpp.llama_log_callback(lambda level, text, data: None)
"""A receiver of llama.cpp's log, which has a line for each tensor."""


class Llama:
    """A model of llama.cpp with a context; sampling is greedy, as rlx's."""

    def __init__(self, path: str, threads: int) -> None:
        llama_cpp.llama_log_set(NO_LOG, None)
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_threads, params.n_threads_batch = 512, 512, threads, threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.model or not self.context:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def clear(self) -> None:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def logits(self, ids: Any) -> np.ndarray:
        """Process tokens after those in the context, and return the logits f32[vocabulary] of the last one."""
        tokens = (llama_cpp.llama_token * len(ids))(*map(int, ids))
        if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(tokens, len(ids))):
            raise RuntimeError("llama_decode failed")
        pointer = llama_cpp.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (self.vocabulary,))

    def generate(self, prompt: Any, tokens: int) -> list[int]:
        self.clear()
        new = [int(self.logits(prompt).argmax())]
        while len(new) < tokens:
            new.append(int(self.logits(new[-1:]).argmax()))
        return new


def make(kind: str, data: Data, threads: int) -> Mapping[str, Program]:
    if kind != "gguf":
        return {}
    llama = Llama(str(data["path"]), threads)

    def results() -> list[Any]:
        llama.clear()
        return [normalised(llama.logits(data["ids"]))]

    return {"llama.cpp": Program(lambda: llama.generate(data["prompt"], data["tokens"]), results, threads)}
