"""``muniment serve``: one storage, one embedder and some transports around one engine, until a client that has one
alone leaves or a signal comes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import click

from muniment import local_paths
from muniment.cli import options
from muniment.errors import ConfigurationError, PluginError

if TYPE_CHECKING:
    from muniment.authentication.settings import AuthSettings
    from muniment.authentication.verifier import Verifier
    from muniment.cli.ending import Ending
    from muniment.config import Settings
    from muniment.engine import Engine
    from muniment.engine.watching import Watch
    from muniment.models import CallContext, Principal
    from muniment.ports import Callers, Storage, Transport
    from muniment.serving.settings import LimitSettings

log = logging.getLogger(__name__)

BEFORE_CALLERS = "1.0"
"""The contract in which a transport was given the one caller that it serves."""


@click.command("serve", short_help="Serve memories to a client, over MCP on standard input and output or HTTP.")
@click.option(
    "--transport",
    "transports",
    default=("mcp",),
    show_default=True,
    multiple=True,
    metavar="NAME",
    help="How clients call it; repeat for more, each with an address of its own as in http:http://127.0.0.1:8766.",
)
@click.option("--http", metavar="HOST:PORT", help="Serve at this address instead, such as 127.0.0.1:8765.")
@click.option("--no-auth", "auth", flag_value="none", help="Ask nobody for credentials at --http.")
@options.configured
def command(transports: tuple[str, ...], http: str | None, **flags: Any) -> int:
    """Serve memories to a client, over MCP on standard input and output, or to any number of them with --http.

    An MCP client starts this itself; `muniment mcp-config` prints what to tell it. With --http it is started once, and
    --transport mcp --transport http serves both protocols at that address. Who calls is then what a token proves, by
    [auth] in muniment.toml; with --no-auth whatever reaches the address, which must be one of this machine, acts as the
    configured user. The project that a write of that user without a scope goes to is --project, else what the file
    .muniment-project says, in the working directory or above it. SIGTERM ends it at any moment with exit code 0, once
    what was begun is answered and what was opened is closed.
    """
    import asyncio
    import contextlib
    import os
    import signal

    from muniment import standard_streams
    from muniment.cli import INTERRUPTED
    from muniment.cli.ending import Ending

    # For good: a signal that comes while the interpreter ends is no failure either.
    ending = Ending()
    # A search multiplies a matrix with one vector. More threads make that no faster: they wait for memory and for each
    # other, and take the cores from everything else. NumPy's library looks at this as it is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A transport that needs the streams refuses closed ones itself.
    with contextlib.suppress(ConfigurationError):
        standard_streams.claim()
    specs = [one if http is None or ":" in one else f"{one}:http://{http}" for one in dict.fromkeys(transports)]
    asyncio.run(serve(options.settings(flags), specs, ending))
    return INTERRUPTED if ending.signal == signal.SIGINT else 0


async def serve(settings: Settings, transports: Sequence[str], ending: Ending) -> None:
    """Open what the configuration names, serve until a client that has it alone leaves or a signal comes, and close."""
    from muniment.engine import Engine
    from muniment.serving.site import Site
    from muniment.telemetry.wiring import wired

    plugins = options.plugins(settings)
    schemes = [one.partition(":")[0] for one in transports]
    local = caller(settings, schemes[0])
    seats = [plugins.transport(one, settings) for one in transports]
    network = any(isinstance(seat, Site) for seat in seats) or any("http:" in one for one in transports)
    storage = plugins.storage(settings.storage, settings)
    embedder = plugins.embedder(settings.embedder, settings)
    watch, exposition = wired(measured=network)
    engine = Engine(
        storage,
        embedder,
        observers=[plugins.committed],
        embed_timeout=settings.embed_timeout,
        memory_cue=settings.memory_cue,
        watch=watch,
        exposition=exposition,
    )
    verifier = verifier_of(settings, storage)
    who = callers(settings, local, verifier, watch)
    given = [as_of(plugins.find("transport", scheme).contract, who, scheme) for scheme in schemes]

    def started() -> None:
        if who.anybody:
            log.warning("nobody is asked for credentials: whatever reaches the address acts as %s", settings.user)
        if settings.auth is not None:
            warn_of_audiences(settings.auth, seats)

    if not await ending.completes(engine.open()):
        return
    try:
        serving = served(engine, list(zip(seats, given, strict=True)), started if network else lambda: None)
        await ending.completes(unless_refused(engine, serving))
    finally:
        if verifier is not None:
            await verifier.close()
        await engine.close()


async def unless_refused(engine: Engine, serving: Coroutine[Any, Any, None]) -> None:
    """Serve, until the embedder turns out not to be the one that made the stored vectors. Raises EmbedderMismatch."""
    import asyncio

    refused = asyncio.create_task(engine.embeddings.refused(), name="muniment-embedder-refused")
    begun = asyncio.create_task(serving, name="muniment-serving")
    try:
        await asyncio.wait({refused, begun}, return_when=asyncio.FIRST_COMPLETED)
        if not begun.done():
            raise refused.result()
        begun.result()
    finally:
        for task in (refused, begun):
            task.cancel()
        await asyncio.wait({refused, begun})


async def served(engine: Engine, seats: Sequence[tuple[Transport, Any]], started: Callable[[], None]) -> None:
    """Serve each transport to its callers until the first one ends; those over HTTP share an address if it is one.

    ``started`` is called once these listen, so that whoever is refused a start is told of nothing else.
    """
    from muniment.serving.site import Site

    at_addresses = [(seat, given) for seat, given in seats if isinstance(seat, Site)]
    works = [seat.serve(engine, given) for seat, given in seats if not isinstance(seat, Site)]
    if at_addresses:
        # Needs the library that serves HTTP.
        from muniment.serving import sites

        works.append(sites.serve([seat for seat, _ in at_addresses], engine, at_addresses[0][1], started=started))
    else:
        started()
    if len(works) == 1:
        await works[0]
    else:
        from muniment.serving.sites import together

        await together(*works)


def warn_of_audiences(auth: AuthSettings, seats: Sequence[Transport]) -> None:
    """Say which transport's metadata sends clients to an issuer for tokens that are then refused."""
    from muniment.serving.site import Site

    for seat in seats:
        if isinstance(seat, Site):
            resource = (auth.url or seat.address.url) + "".join(seat.paths[:1])
            for name in auth.refusing(resource):
                log.warning(
                    "clients of %s ask for a token for %s, which audience in [auth.issuers.%s] does not accept; add it "
                    "there, unless the issuer calls it by another name",
                    seat.title,
                    resource,
                    name,
                )


def as_of(contract: str, who: Callers, scheme: str) -> Callers | CallContext:
    """Who may call, as a transport of this contract takes it. Raises PluginError where it could not ask them."""
    if contract != BEFORE_CALLERS:
        return who
    if who.authenticator is not None:
        raise PluginError(
            f"The plugin of transport {scheme!r} was written for contract {BEFORE_CALLERS} and asks nobody for "
            "credentials, which [auth] demands; upgrade it."
        )
    return who.local


def verifier_of(settings: Settings, storage: Storage) -> Verifier | None:
    """What proves who calls over a network, if the configuration has it. Raises ConfigurationError."""
    from muniment.authentication.settings import NOBODY_IS_ASKED
    from muniment.authentication.verifier import Verifier

    if settings.auth is None or settings.auth is NOBODY_IS_ASKED:
        return None
    return Verifier(settings.auth, storage)


def callers(settings: Settings, local: CallContext, verifier: Verifier | None, watch: Watch) -> Callers:
    """Who may call, and how much, as a transport gets it; ``watch`` sees whom it does not let in."""
    from muniment.engine.watching import Part, watched
    from muniment.ports import Callers

    return Callers(
        local,
        watched(verifier, Part.ENTRY, watch) if verifier else None,
        anybody=settings.auth is not None and verifier is None,
        url=settings.auth.url if settings.auth else None,
        admit=admitting(settings.limits, watch),
        body_max=settings.limits.body_bytes,
    )


def admitting(limits: LimitSettings, watch: Watch) -> Callable[[Principal], None]:
    """What lets each principal through as often as the limits say."""
    from muniment.engine.watching import Part
    from muniment.ports.authentication import as_often_as_they_like
    from muniment.serving.rates import Rates

    if limits.rate is None:
        return as_often_as_they_like
    rates = Rates(*limits.rate)

    def admit(principal: Principal) -> None:
        with watch(Part.ENTRY, "admit"):
            rates.admit(principal)

    return admit


def caller(settings: Settings, surface: str) -> CallContext:
    """Who a local client is, by the configuration alone. Raises ConfigurationError."""
    from muniment.cli.project_file import project_of
    from muniment.models import CallContext, Principal

    return CallContext(
        principal=Principal(
            user=settings.user, groups=settings.groups, agent=settings.agent, platform=settings.platform
        ),
        surface=surface,
        default_project=settings.project or project_of(local_paths.working_directory()),
    )
