"""The embedded providers, by resource type."""

from pathlib import Path

from engine import urn as urns
from engine.providers import process
from engine.providers.base import Foreign, Provider, ProviderResource
from engine.providers.command import LocalCommand, RemoteCommand, RemoteCopy
from engine.providers.ssh import Sessions
from engine.values import Value

_PACKAGES = {"command", "random", "tls", "pulumi-python", "pulumi"}


class Providers:
    """The providers of one run. Each is created when first needed, since some are slow to import."""

    def __init__(self, root: Path, config: dict[str, Value], project: str) -> None:
        self._sessions = Sessions()
        self._root, self._config, self._project = root, config, project
        self._providers: dict[str, Provider] = {}

    def of(self, type_: str) -> Provider:
        """Return the provider of a resource type, which is Foreign if it is not embedded."""
        family = type_
        if type_.startswith(("pulumi-python:dynamic", "random:")):
            family = type_.split(":", 1)[0]
        if family not in self._providers:
            self._providers[family] = self._create(family)
        return self._providers[family]

    def close(self) -> None:
        """End processes and connections, and remove private folders."""
        process.kill_all()
        self._sessions.close()

    def _create(self, family: str) -> Provider:
        provider: Provider = Foreign()
        if urns.is_provider(family):
            provider = ProviderResource() if family.split(":")[2] in _PACKAGES else provider
        elif family == "pulumi-python":
            from engine.providers.dynamic import Dynamic  # noqa: PLC0415

            provider = Dynamic(self._config, self._project)
        elif family == "random":
            from engine.providers.random import Random  # noqa: PLC0415

            provider = Random()
        elif family.startswith("tls:"):
            from engine.providers.tls import PROVIDERS  # noqa: PLC0415

            provider = PROVIDERS.get(family, Foreign)()
        elif family == "command:local:Command":
            provider = LocalCommand(self._root)
        elif family == "command:remote:Command":
            provider = RemoteCommand(self._sessions)
        elif family in ("command:remote:CopyToRemote", "command:remote:CopyFile"):
            provider = RemoteCopy(self._sessions)
        return provider
