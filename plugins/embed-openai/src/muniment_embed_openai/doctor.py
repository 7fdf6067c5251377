"""What ``muniment doctor`` says of this plugin: the client's version, and whether the provider gives vectors.

Makes one small request, as the first use would.
"""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version
from pathlib import Path

from muniment.errors import MunimentError
from muniment.hookspecs import DoctorContext, Finding
from muniment.ports import PluginContext, Space
from muniment_embed_openai.embedder import SCHEME, OpenAIEmbedder, create


def findings(context: DoctorContext) -> list[Finding]:
    """The findings for the configured embedder; none where another plugin serves it."""
    if not context.embedder.startswith(SCHEME):
        return []
    return [Finding("openai", ok=True, detail=version("openai")), _answers(context)]


def _answers(context: DoctorContext) -> Finding:
    subject = f"vectors of {context.embedder}"
    try:
        embedder = create(PluginContext(context.embedder, data_dir=Path(context.data_dir), options=context.options))
        began = time.monotonic()
        space = asyncio.run(_space(embedder))
    except MunimentError as error:
        return Finding(subject, ok=False, detail=error.message)
    took = time.monotonic() - began
    return Finding(subject, ok=True, detail=f"{space.id}, {space.dimensions} dimensions, first answer in {took:.1f} s")


async def _space(embedder: OpenAIEmbedder) -> Space:
    await embedder.open()
    try:
        return await embedder.space()
    finally:
        await embedder.close()
