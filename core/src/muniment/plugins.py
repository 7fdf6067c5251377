"""Plugins: found by entry point, kept apart from each other, chosen by scheme.

A plugin that cannot be used is recorded with its cause and left out; it stops the start only where the
configuration names it. What a plugin may do is in ``hookspecs``; what a seat must do is in ``ports``.
"""

from __future__ import annotations

import difflib
import importlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, cast

import pluggy

from muniment import hookspecs, standard_streams
from muniment.config import Settings, nearest, redact
from muniment.errors import MunimentError, PluginError
from muniment.hookspecs import CONTRACT, GROUP, Descriptor, DoctorContext, Finding, Kind
from muniment.models import AuditRecord, Receipt
from muniment.ports import Embedder, PluginContext, Storage, Transport

_log = logging.getLogger(__name__)

_REPAIR = "repair or upgrade it"

USUAL: dict[tuple[Kind, str], str] = {
    ("storage", "embedded"): "muniment-storage-postgres",
    ("storage", "mongodb"): "muniment-storage-mongo",
    ("storage", "mongodb+srv"): "muniment-storage-mongo",
    ("storage", "postgres"): "muniment-storage-postgres",
    ("storage", "postgresql"): "muniment-storage-postgres",
    ("storage", "sqlite"): "muniment-storage-sqlite",
    ("embedder", "local"): "muniment-embed-local",
    ("embedder", "openai"): "muniment-embed-openai",
    ("transport", "http"): "muniment-transport-http",
    ("transport", "mcp"): "muniment-transport-mcp",
}
"""The distribution that usually serves a scheme, for the message where nothing does."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A usable descriptor and the distribution that brought it, such as ``muniment-embed-local 0.1.0``."""

    descriptor: Descriptor
    plugin: str
    distribution: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A plugin that cannot be used. ``descriptors`` are those that it presented before it was refused."""

    plugin: str
    distribution: str
    cause: str
    descriptors: tuple[Descriptor, ...] = ()
    remedy: str = _REPAIR

    def names(self, kind: Kind, scheme: str) -> bool:
        """Whether a configured scheme means this plugin, as far as one that never loaded can say."""
        if self.descriptors:
            return any(one.kind == kind and scheme in one.schemes for one in self.descriptors)
        usual = USUAL.get((kind, scheme))
        words = re.split(r"[-_.]", self.plugin)
        return usual == self.distribution.split(" ")[0] or scheme in words


class _Refused(Exception):
    """A plugin whose descriptors cannot be used."""

    def __init__(self, cause: str, descriptors: tuple[Descriptor, ...] = (), remedy: str = _REPAIR) -> None:
        super().__init__(cause)
        self.descriptors = descriptors
        self.remedy = remedy


class Plugins:
    """What is installed: the usable descriptors, the failures, and the hooks of the usable plugins."""

    def __init__(self) -> None:
        self._manager = pluggy.PluginManager(GROUP)
        self._manager.add_hookspecs(hookspecs)
        self._installed: list[Installed] = []
        self._failures: list[Failure] = []

    @classmethod
    def load(cls) -> Plugins:
        """Every plugin that is installed. Never raises because of one of them; what one prints is no output of ours."""
        plugins = cls()
        with standard_streams.aside():
            for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
                plugins._add(entry)
        return plugins

    @property
    def installed(self) -> tuple[Installed, ...]:
        """The usable descriptors, by plugin name."""
        return tuple(self._installed)

    @property
    def descriptors(self) -> tuple[Descriptor, ...]:
        """The usable descriptors, by plugin name."""
        return tuple(one.descriptor for one in self._installed)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The plugins that cannot be used, with their causes."""
        return tuple(self._failures)

    def _add(self, entry: EntryPoint) -> None:
        distribution = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown"
        # Two distributions may use one entry-point name; each is still a plugin of its own.
        registered = f"{distribution}/{entry.name}"
        try:
            module = entry.load()
            self._manager.register(module, name=registered)
            descriptors = self._present(module)
        except (Exception, SystemExit) as error:
            if self._manager.get_plugin(registered) is not None:
                self._manager.unregister(name=registered)
            refused = error if isinstance(error, _Refused) else _Refused(_cause(error))
            failure = Failure(entry.name, distribution, _cause(refused), refused.descriptors, refused.remedy)
            self._failures.append(failure)
            _log.debug("plugin %s cannot be used", entry.name, exc_info=True)
            return
        self._installed += [Installed(one, entry.name, distribution) for one in descriptors]

    def _present(self, module: object) -> tuple[Descriptor, ...]:
        """The descriptors of one plugin, checked. Raises _Refused, and whatever its hook raises."""
        returned = [
            one for answer in self._call(module, "muniment_plugins") for one in cast("list[object]", list(answer))
        ]
        strangers = [one for one in returned if not isinstance(one, Descriptor)]
        if strangers:
            raise _Refused(f"muniment_plugins() gave a {type(strangers[0]).__name__}, not a Descriptor")
        descriptors = tuple(cast("list[Descriptor]", returned))
        for one in descriptors:
            if problem := contract_problem(one.contract):
                cause, remedy = problem
                raise _Refused(cause, descriptors, remedy)
        return descriptors

    def _call(self, module: object, hook: str, **arguments: object) -> list[Any]:
        """What the implementations of ``hook`` in one plugin answer; another plugin never runs along."""
        others = [other for other in self._manager.get_plugins() if other is not module]
        return self._manager.subset_hook_caller(hook, others)(**arguments)

    # ------------------------------------------------------------ seats

    def check(self, settings: Settings) -> None:
        """Refuse a ``[plugins.NAME]`` table whose plugin is broken or not there. Raises PluginError."""
        known = {name for one in self._installed for name in (one.plugin, one.descriptor.name)}
        for name in settings.plugins:
            for failure in self._failures:
                if name == failure.plugin or any(name == one.name for one in failure.descriptors):
                    raise _unusable(failure, f"[plugins.{name}]")
            if name not in known:
                raise PluginError(
                    f"[plugins.{name}] ({settings.origin('plugins')}) names no plugin that is installed; "
                    f"{nearest(name, known)}"
                )

    def storage(self, spec: str, settings: Settings) -> Storage:
        """The storage that ``spec`` names, not opened yet. Raises PluginError, ConfigurationError."""
        return cast(Storage, self._seat("storage", spec, settings))

    def embedder(self, spec: str, settings: Settings) -> Embedder | None:
        """The embedder that ``spec`` names, not opened yet; None for ``none``. Raises as ``storage``."""
        return None if spec == "none" else cast(Embedder, self._seat("embedder", spec, settings))

    def transport(self, name: str, settings: Settings) -> Transport:
        """The transport that ``name`` names. Raises as ``storage``."""
        return cast(Transport, self._seat("transport", name, settings))

    def find(self, kind: Kind, scheme: str) -> Descriptor:
        """The one usable descriptor for ``scheme``. Raises PluginError, with the cause if it is broken."""
        claims = [one for one in self._installed if one.descriptor.kind == kind and scheme in one.descriptor.schemes]
        if len(claims) > 1:
            both = " and ".join(f"{one.descriptor.name} ({one.distribution})" for one in claims)
            raise PluginError(f"{both} both serve the {kind} scheme {scheme!r}; uninstall one of them.")
        if claims:
            return claims[0].descriptor
        for failure in self._failures:
            if failure.names(kind, scheme):
                raise _unusable(failure, f"{kind} {scheme!r}")
        raise PluginError(self._nobody(kind, scheme))

    def named(self, name: str) -> Installed:
        """The usable plugin called ``name``, by its descriptor's name. Raises PluginError."""
        found = [one for one in self._installed if one.descriptor.name == name]
        if len(found) > 1:
            both = " and ".join(one.distribution for one in found)
            raise PluginError(f"{both} both bring a plugin {name!r}; uninstall one of them.")
        if found:
            return found[0]
        for failure in self._failures:
            if failure.plugin == name or any(one.name == name for one in failure.descriptors):
                raise _unusable(failure, f"{name!r}")
        raise PluginError(f"No plugin {name!r} is installed; {nearest(name, (one.name for one in self.descriptors))}")

    def _seat(self, kind: Kind, spec: str, settings: Settings) -> object:
        descriptor = self.find(kind, spec.partition(":")[0].lower())
        options = settings.plugins.get(descriptor.name, {})
        factory = resolve(descriptor.factory, descriptor.name)
        try:
            return factory(PluginContext(spec=spec, data_dir=settings.data_dir, options=options))
        except MunimentError:
            raise
        except Exception as error:
            raise PluginError(
                f"Plugin {descriptor.name} could not be made for {redact(spec)!r}: {_cause(error)}; "
                f"correct that setting, or repair the plugin."
            ) from error

    def _nobody(self, kind: Kind, scheme: str) -> str:
        there = sorted({one for each in self.descriptors if each.kind == kind for one in each.schemes})
        usual = USUAL.get((kind, scheme))
        if usual:
            remedy = f"pip install {usual}."
        elif there:
            close = difflib.get_close_matches(scheme, there, n=1)
            remedy = f"did you mean {close[0]}?" if close else "configure one that is installed."
        else:
            remedy = f"install a distribution that brings a {kind}."
        never = [f"{one.plugin} ({one.cause})" for one in self._failures if not one.descriptors]
        broken = f" Plugins that could not be loaded, of which one may serve it: {'; '.join(never)}." if never else ""
        installed = f"the installed ones are {', '.join(there)}" if there else "none is installed"
        return f"No installed plugin serves the {kind} scheme {scheme!r} ({installed}); {remedy}{broken}"

    # ------------------------------------------------------------ hooks that are one-to-many

    def committed(self, receipt: Receipt, audit: AuditRecord) -> None:
        """Tell every observer of a committed mutation. What one raises is logged and stops nothing."""
        for name, module in self._implementers("muniment_committed"):
            try:
                self._call(module, "muniment_committed", receipt=receipt, audit=audit)
            except Exception as error:
                # The exception's text may repeat what was written.
                _log.error("the observer of plugin %s raised %s", name, type(error).__name__)

    def doctor(
        self, context: DoctorContext, tables: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    ) -> tuple[Finding, ...]:
        """The findings of every plugin, which sees of the ``tables`` its own; one that raises is a finding itself."""
        findings: list[Finding] = []
        for name, module in self._implementers("muniment_doctor"):
            own = replace(context, options=tables.get(name, {}))
            try:
                for answer in self._call(module, "muniment_doctor", context=own):
                    findings += answer
            except Exception as error:
                findings.append(Finding(name, False, f"its doctor hook raised {_cause(error)}", "report it"))
        return tuple(findings)

    def _implementers(self, hook: str) -> Iterator[tuple[str, object]]:
        for implementation in getattr(self._manager.hook, hook).get_hookimpls():
            yield implementation.plugin_name.rpartition("/")[2], implementation.plugin


def resolve(path: str, plugin: str) -> Callable[..., Any]:
    """What the dotted path ``package.module:name`` of ``plugin`` names. Raises PluginError with the cause."""
    module, _, name = path.partition(":")
    try:
        found: object = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"Plugin {plugin} cannot be used: loading {path!r} failed with {_cause(error)}; "
            f"install what it needs, or reinstall it."
        ) from error
    if not callable(found):
        raise PluginError(f"Plugin {plugin} cannot be used: {path!r} is not callable; reinstall it.")
    return found


def contract_problem(contract: object) -> tuple[str, str] | None:
    """What is wrong with a declared contract, and what to do."""
    match = re.fullmatch(r"([0-9]+)\.([0-9]+)", contract) if isinstance(contract, str) else None
    ours = "{}.{}".format(*CONTRACT)
    if match is None:
        return f"it declares contract {contract!r}, which is no version such as {ours}", _REPAIR
    major, minor = int(match[1]), int(match[2])
    problem = f"it was written for contract {contract}, and this muniment has {ours}"
    if major < CONTRACT[0]:
        return problem, "upgrade the plugin"
    if (major, minor) > CONTRACT:
        return problem, "upgrade muniment"
    return None


def _unusable(failure: Failure, asked: str) -> PluginError:
    return PluginError(
        f"The configuration asks for {asked}, and plugin {failure.plugin} ({failure.distribution}) "
        f"cannot be used: {failure.cause}; {failure.remedy}, or choose another."
    )


def _cause(error: BaseException) -> str:
    """The exception in one line."""
    text = " ".join(redact(str(error)).split())
    return text if isinstance(error, _Refused) else f"{type(error).__name__}: {text}" if text else type(error).__name__
