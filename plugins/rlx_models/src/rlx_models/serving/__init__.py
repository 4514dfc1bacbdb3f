"""Serving of decoders: the engine of continuous batching, and an HTTP server with OpenAI's protocol (`rlx serve`)."""

from rlx_models.serving.engine import ServingEngine
from rlx_models.serving.options import RequestOptions
from rlx_models.serving.requests import EngineStatus, Request, TokenLogprob, Update

__all__ = ["EngineStatus", "Request", "RequestOptions", "ServingEngine", "TokenLogprob", "Update"]
