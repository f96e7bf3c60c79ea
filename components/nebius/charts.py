"""Helm releases of a cluster, with their namespaces and secrets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
from pulumi_kubernetes import Provider
from pulumi_kubernetes.core.v1 import Namespace, Secret
from pulumi_kubernetes.helm.v3 import Release as HelmRelease
from pulumi_kubernetes.helm.v3 import RepositoryOptsArgs
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from cluster.platforms.nebius.releases import Release

DELETE_TIMEOUT = "20m"
"""For the removal of a chart's objects: Teardown has ended what could hold them up."""
_SLACK = 120
"""Seconds that the engine waits longer than Helm, so that Helm's own error is shown."""


@dataclass(frozen=True, kw_only=True)
class ChartsArgs:
    namespaces: Sequence[str]
    kubeconfig: pulumi.Input[str]
    cluster: pulumi.CustomResource
    """The cluster: what is in it is deleted with it."""
    after: Sequence[pulumi.Resource] = field(default_factory=tuple)
    """What everything in the cluster waits for."""
    secrets: Mapping[tuple[str, str], Mapping[str, pulumi.Input[str]]] = field(default_factory=dict)
    """Texts by key, of each Secret by namespace and name."""


class Charts(pulumi.ComponentResource):
    """Helm releases, each installed by `install`."""

    of: Mapping[str, HelmRelease]
    """Those that were installed, by the release's name."""

    def __init__(self, name: str, args: ChartsArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:Charts", name, {}, opts)
        self._name, self._args = name, args
        provider = Provider(
            f"{name}-provider",
            kubeconfig=args.kubeconfig,
            # Only another cluster replaces what is in it: not another certificate or address of the same one, nor a
            # kubeconfig that a preview does not know.
            cluster_identifier=args.cluster.id,
            # A killed `up` may have created a namespace that the state does not have.
            upsert_existing_objects=True,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self._child = pulumi.ResourceOptions(parent=self, provider=provider)
        self._namespaces = {namespace: self._namespace(namespace) for namespace in dict.fromkeys(args.namespaces)}
        self._secrets = [self._secret(*at, texts) for at, texts in args.secrets.items()]
        self.of = self._made = dict[str, HelmRelease]()
        self.register_outputs({})

    def _namespace(self, name: str) -> Namespace:
        return Namespace(
            f"{self._name}-{name}",
            metadata=ObjectMetaArgs(name=name),
            opts=self._options(self._args.after, deleted_with=self._args.cluster),
        )

    def _secret(self, namespace: str, name: str, texts: Mapping[str, pulumi.Input[str]]) -> Secret:
        return Secret(
            f"{self._name}-{name}",
            metadata=ObjectMetaArgs(name=name, namespace=namespace),
            string_data={key: pulumi.Output.secret(text) for key, text in texts.items()},
            opts=self._options([self._namespaces[namespace]], deleted_with=self._args.cluster),
        )

    def install(self, release: Release, after: Sequence[pulumi.Resource] = ()) -> HelmRelease:
        """Install a release, after those that it needs, which are installed before."""
        remote = release.repo.startswith(("https://", "http://"))
        chart = release.chart if remote else f"{release.repo.rstrip('/')}/{release.chart}"
        needs = [self._made[need] for need in release.needs if need in self._made]
        limit = f"{release.timeout + _SLACK}s"
        made = self._made[release.name] = HelmRelease(
            f"{self._name}-{release.name}",
            name=release.name,
            chart=chart,
            version=release.version,
            repository_opts=RepositoryOptsArgs(repo=release.repo) if remote else None,
            namespace=release.namespace,
            values=dict(release.values),
            # Both engines run Helm in the project's folder.
            postrender=f"./{release.post_renderer}" if release.post_renderer else None,
            timeout=release.timeout,
            # What has come up stays for the next run, and a failed Job fails the release.
            atomic=False,
            cleanup_on_fail=False,
            wait_for_jobs=True,
            disable_webhooks=not release.hooks,
            # The one above is for installations, this one for upgrades (pulumi-kubernetes, helmUpdate).
            disable_crd_hooks=not release.hooks,
            opts=pulumi.ResourceOptions.merge(
                self._options([*needs, *after, *self._secrets, self._namespaces[release.namespace]]),
                pulumi.ResourceOptions(
                    custom_timeouts=pulumi.CustomTimeouts(create=limit, update=limit, delete=DELETE_TIMEOUT)
                ),
            ),
        )
        return made

    def _options(
        self, after: Sequence[pulumi.Resource], deleted_with: pulumi.Resource | None = None
    ) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions.merge(
            self._child, pulumi.ResourceOptions(depends_on=list(after), deleted_with=deleted_with)
        )


def in_order(releases: Sequence[Release]) -> list[Release]:
    """Each release after those that it needs; ValueError where one needs itself."""
    ordered: list[Release] = []
    waiting = list(releases)
    while waiting:
        late = {one.name for one in waiting}
        ready = [one for one in waiting if not late & set(one.needs)]
        if not ready:
            raise ValueError(f"these releases need each other: {', '.join(sorted(late))}")
        ordered += ready
        waiting = [one for one in waiting if one not in ready]
    return ordered
