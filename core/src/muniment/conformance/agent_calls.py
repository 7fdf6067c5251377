"""The calls of agent memory that races and loads are made of."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from muniment import limits
from muniment.agent_models import ExchangeKind
from muniment.models import Agent
from muniment.ports import AgentStorage, Claim, ExchangeAppend, ExchangeDraft

ANN = Agent(name="ann", instance="1")
BOB = Agent(name="bob", instance="1")
HOUR = timedelta(hours=1)


def exchange(*agents: Agent, key: str, kept: int = limits.EXCHANGES_KEPT) -> ExchangeAppend:
    """An exchange for these recipients."""
    kind = ExchangeKind.DM_CONCLUSION
    drafts = (ExchangeDraft(agent, kind, "pod", "label", (), "takeaway", 100) for agent in agents)
    return ExchangeAppend(tuple(drafts), key, kept)


async def append(storage: AgentStorage, agent: Agent, prefix: str, count: int) -> Sequence[int]:
    """The revisions of so many exchanges that are appended at once, each with a key of its own after ``prefix``."""

    async def one(number: int) -> int:
        appended = await storage.append_exchange(exchange(agent, key=f"{prefix}{number}"))
        return appended.revisions[0] or 0

    return await asyncio.gather(*(one(number) for number in range(count)))


async def take(storage: AgentStorage, agent: Agent, *tokens: str) -> list[str]:
    """The events that a claim got, under a lease of an hour."""
    claimed = await storage.claim(Claim(agent, tokens, HOUR, limits.ATTEMPTS_MAX))
    return [event.id for event in claimed.events]
