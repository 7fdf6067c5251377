"""The plugin's table in the configuration."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import Field

from muniment.plugin_options import PluginOptions


class Options(PluginOptions):
    """``engine`` says what computes the model: ``auto`` takes its ONNX file if it has one that will do, else PyTorch.

    ``threads`` bounds the processor threads that one computation uses (by default half of the machine's, 1 to 4),
    and ``device`` names PyTorch's device (by default the best that it finds). ``model_name`` says what the model is
    called, for two models that would have the same name.
    """

    engine: Literal["auto", "onnx", "torch"] = "auto"
    # Threads of one computation wait for each other: with one on every core, any other work on the machine slows
    # a text down several times.
    threads: int = Field(default_factory=lambda: max(1, min(4, (os.cpu_count() or 1) // 2)), ge=1, le=256)
    device: str | None = Field(default=None, min_length=1)
    model_name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$")
