"""What every storage says where the same thing is wrong, in the same words, so that no caller can tell them apart."""

from __future__ import annotations

from muniment.errors import ConfigurationError, NotFound, StorageUnavailable
from muniment.models import Agent


def no_memory(memory_id: str, *, deleted: bool) -> NotFound:
    """No memory has this id and the state that the change needs."""
    return NotFound(f"There is no memory {memory_id} that is {'' if deleted else 'not '}deleted.")


def no_project(project_id: str) -> NotFound:
    """No project has this id."""
    return NotFound(f"There is no project {project_id}; list what there is.")


def no_delivery(event_id: str) -> NotFound:
    """The agent was never given this event."""
    return NotFound(f"There is no event {event_id} that was delivered to this agent; claim it first.")


class NoSpace(ConfigurationError):
    """No space with this id is registered, or it was dropped meanwhile."""


def no_space(space: str) -> NoSpace:
    """No space with this id is registered, or it was dropped."""
    return NoSpace(f"The space {space} is not registered with this storage, or was pruned; start what uses it again.")


def memory_kept_changing(memory_id: str) -> StorageUnavailable:
    """Every attempt to write it lost a race."""
    return StorageUnavailable(f"Memory {memory_id} kept changing while it was written; try again.")


def envelope_kept_changing(agent: Agent) -> StorageUnavailable:
    """Every attempt to write its sections lost a race."""
    return StorageUnavailable(
        f"The envelope of {agent.name}/{agent.instance} kept changing while it was written; try again."
    )


def project_not_stored(key: str) -> StorageUnavailable:
    """It was neither inserted nor found."""
    return StorageUnavailable(f"Project {key} was not stored; try again.")


def not_open() -> StorageUnavailable:
    """It was never opened, or is closed."""
    return StorageUnavailable("The storage is not open; open it first.")


def closed() -> StorageUnavailable:
    """It was closed while the call waited."""
    return StorageUnavailable("The storage is closed; open it first.")
