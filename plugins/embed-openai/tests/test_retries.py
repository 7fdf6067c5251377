"""Which failures are tried again, for how long, and how a call ends that is given up."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate

import pytest

from muniment.errors import ConfigurationError, EmbedderUnavailable, MunimentError
from muniment_embed_openai.embedder import OpenAIEmbedder
from muniment_embed_openai.loopback_api import Asked, LoopbackApi, Reply, hangs, refuses, says

Opened = Callable[..., Awaitable[OpenAIEmbedder]]


async def test_an_answer_that_breaks_off_is_asked_for_again(api: LoopbackApi, opened: Opened) -> None:
    """A connection that is lost in the middle of an answer is one more reason to try again."""
    embedder = await opened(max_retries=1)
    await embedder.space()
    api.then(says(b'{"object": "li', length=5_000))
    assert len(await embedder.embed_passages(["a text"])) == 1
    api.then(*[says(b'{"object": "li', length=5_000)] * 2)
    with pytest.raises(EmbedderUnavailable, match="broke the connection off"):
        await embedder.embed_passages(["a text"])


async def test_an_answer_that_came_whole_is_not_asked_for_again(api: LoopbackApi, opened: Opened) -> None:
    """Its length is the one that was announced: whoever wrote it, wrote no more, and writes the same again."""
    embedder = await opened(max_retries=3)
    await embedder.space()
    api.asked.clear()
    api.then(says(b'{"object": "li'))
    with pytest.raises(EmbedderUnavailable, match="cannot be read"):
        await embedder.embed_passages(["a text"])
    assert len(api.asked) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_no_other_status_is_tried_again(status: int, api: LoopbackApi, opened: Opened) -> None:
    """Whatever the server, or something between, says of it."""
    embedder = await opened(max_retries=3)
    await embedder.space()
    api.asked.clear()
    api.always(refuses(status, headers={"x-should-retry": "true", "retry-after-ms": "1"}))
    with pytest.raises(MunimentError):
        await embedder.embed_passages(["a text"])
    assert len(api.asked) == 1


async def test_those_who_waited_for_a_first_answer_share_its_failure(api: LoopbackApi, opened: Opened) -> None:
    """Each would else ask for itself, one after the other; who comes later asks again."""
    embedder = await opened(max_retries=0)
    api.always(refuses(503))
    ended = await asyncio.gather(*(embedder.embed_query("a text") for _ in range(10)), return_exceptions=True)
    assert {type(one) for one in ended} == {EmbedderUnavailable}
    assert len(api.asked) == 1
    api.always(None)
    assert len(await embedder.embed_passages(["a text"])) == 1


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 599])
async def test_each_status_that_may_pass_is_tried_again(status: int, api: LoopbackApi, opened: Opened) -> None:
    """As the README lists them."""
    embedder = await opened(max_retries=1)
    await embedder.space()
    api.then(refuses(status, headers={"retry-after-ms": "1"}))
    assert len(await embedder.embed_passages(["a text"])) == 1


@pytest.mark.parametrize("wait", [{"retry-after": "0"}, {"retry-after-ms": "1"}, {"retry-after": "soon"}, {}])
async def test_a_storm_of_refusals_passes(wait: dict[str, str], api: LoopbackApi, opened: Opened) -> None:
    """As many attempts as set are made for 429, 5xx and the like, and no more."""
    embedder = await opened(max_retries=2)
    await embedder.space()
    api.asked.clear()
    api.then(refuses(429, headers=wait), refuses(503, headers=wait))
    assert len(await embedder.embed_passages(["a text"])) == 1
    assert len(api.asked) == 3

    api.asked.clear()
    api.always(refuses(429, headers=wait))
    with pytest.raises(EmbedderUnavailable, match="asked too often"):
        await embedder.embed_passages(["a text"])
    assert len(api.asked) == 3


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_retry_after_is_waited_for(
    form: str, api: LoopbackApi, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    """The client waits as long as the server asks, in either form, where that is within the call's time."""
    embedder = await opened(max_retries=1)
    await embedder.space()
    said = "2" if form == "seconds" else formatdate(time.time() + 3, usegmt=True)
    api.then(refuses(429, headers={"retry-after": said}))
    with caplog.at_level(logging.INFO, "openai"):
        assert len(await embedder.embed_passages(["a text"])) == 1

    (waited,) = re.findall(r"Retrying request in ([\d.]+) seconds", caplog.text)
    assert 1 < float(waited) <= 3


@pytest.mark.parametrize("form", ["seconds", "date", "milliseconds"])
async def test_a_wait_beyond_the_call_s_time_ends_it(form: str, api: LoopbackApi, opened: Opened) -> None:
    """Who asks for more is neither waited for nor asked once more: the refusal comes at once, and says so."""
    embedder = await opened(max_retries=5, timeout=20)
    await embedder.space()
    api.asked.clear()
    headers = {
        "seconds": {"retry-after": "3600"},
        "date": {"retry-after": formatdate(time.time() + 100, usegmt=True)},
        "milliseconds": {"retry-after-ms": "100000"},
    }[form]
    for status, said in ((429, r"wants (3,600|100|9\d) s of waiting"), (503, "HTTP 503")):
        api.then(refuses(status, headers=headers))
        with pytest.raises(EmbedderUnavailable, match=said):
            await embedder.embed_passages(["a text"])
    assert len(api.asked) == 2


async def test_a_used_up_quota_is_not_tried_again(api: LoopbackApi, opened: Opened) -> None:
    """Waiting does not fill it, whatever the server says of trying again."""
    embedder = await opened(max_retries=5)
    await embedder.space()
    api.asked.clear()
    for said in ({"code": "insufficient_quota"}, {"kind": "insufficient_quota"}):
        api.then(refuses(429, headers={"retry-after": "1", "x-should-retry": "true"}, **said))
        with pytest.raises(EmbedderUnavailable, match="quota is used up"):
            await embedder.embed_passages(["a text"])
    assert len(api.asked) == 2


async def test_a_query_is_given_up_sooner(api: LoopbackApi, opened: Opened) -> None:
    """A search waits for one more attempt at most, since it can go on without meaning."""
    embedder = await opened(max_retries=5)
    await embedder.space()
    api.asked.clear()
    api.always(refuses(500))
    with pytest.raises(EmbedderUnavailable):
        await embedder.embed_query("a text")
    assert len(api.asked) == 2


async def test_one_batch_that_fails_takes_the_others_back(api: LoopbackApi, opened: Opened) -> None:
    """Where one of several requests is refused, so is the call, at once; nothing goes on behind it."""
    embedder = await opened(batch_texts=1, concurrency=2)
    await embedder.space()
    api.asked.clear()
    api.then(hangs, refuses(401))
    with pytest.raises(ConfigurationError, match="API key"):
        await embedder.embed_passages(["one", "two", "three", "four"])
    assert len(api.asked) == 2


async def test_closing_ends_what_waits(api: LoopbackApi, opened: Opened) -> None:
    """A call that waits for its answer ends typed when the embedder is closed; a closed one refuses."""
    embedder = await opened(max_retries=0)
    await embedder.space()
    arrived = threading.Event()

    async def held(asked: Asked, reply: Reply) -> None:
        arrived.set()
        await reply.left()

    api.always(held)
    waiting = asyncio.create_task(embedder.embed_query("a text"))
    assert await asyncio.to_thread(arrived.wait, 30)
    await embedder.close()
    with pytest.raises(EmbedderUnavailable):
        await waiting
    with pytest.raises(EmbedderUnavailable, match="closed; open it again"):
        await embedder.embed_query("a text")
