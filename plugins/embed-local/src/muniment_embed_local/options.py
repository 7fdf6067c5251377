"""The plugin's table in the configuration."""

from __future__ import annotations

import os
import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from muniment.plugin_options import PluginOptions

_DEVICE = re.compile(r"(?:cpu|cuda|mps|xpu|npu|hpu)(?::\d{1,3})?")
_DEVICE_PROBLEM: Final = (
    "must be cpu, cuda, mps, xpu, npu or hpu, with a number where there are several, such as cuda:1"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")
_NAME_PROBLEM: Final = "must be a name of 1 to 200 letters, digits and . _ / - that begins with a letter or a digit"


def _device(value: str) -> str:
    if not _DEVICE.fullmatch(value):
        raise PydanticCustomError("device", _DEVICE_PROBLEM)
    return value


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise PydanticCustomError("model_name", _NAME_PROBLEM)
    return value


class Options(PluginOptions):
    """``engine`` says what computes the model: ``auto`` takes its ONNX file if it has one that will do, else PyTorch.

    ``threads`` bounds the processor threads that one computation uses (by default half of the machine's, 1 to 4),
    and ``device`` names PyTorch's device (by default the best that it finds). ``model_name`` says what the model is
    called, for two models that would have the same name.
    """

    engine: Literal["auto", "onnx", "torch"] = "auto"
    # Threads of one computation wait for each other: with one on every core, any other work on the machine slows
    # a text down several times.
    threads: int = Field(default_factory=lambda: max(1, min(4, (os.cpu_count() or 1) // 2)), ge=1, le=256, strict=True)
    device: Annotated[str, AfterValidator(_device)] | None = None
    model_name: Annotated[str, AfterValidator(_name)] | None = None

    @property
    def off_processor(self) -> bool:
        """Whether ``device`` names another one than the processor, which only PyTorch computes on."""
        return self.device is not None and self.device.partition(":")[0] != "cpu"
