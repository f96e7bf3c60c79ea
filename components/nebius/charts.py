"""Helm releases of a cluster, with their namespaces and secrets."""

from collections.abc import Iterable, Mapping, Sequence

import pulumi
from pulumi_kubernetes import Provider
from pulumi_kubernetes.core.v1 import Namespace, Secret
from pulumi_kubernetes.helm.v3 import Release as HelmRelease
from pulumi_kubernetes.helm.v3 import RepositoryOptsArgs
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from cluster.platforms.nebius.releases import Release
from components.nebius.resource import NebiusResource

DELETE_TIMEOUT = "20m"
"""Time for the removal of a chart's objects: Teardown has ended what could hold them up."""
_SLACK = 120
"""Seconds that the engine waits longer than Helm, so that Helm's own error is shown."""


class Charts(pulumi.ComponentResource):
    """Helm releases, each installed by `install`."""

    of: dict[str, HelmRelease]
    """Charts that were installed, by the release's name."""

    def __init__(
        self,
        name: str,
        cluster: NebiusResource,
        kubeconfig: pulumi.Input[str],
        *,
        namespaces: Iterable[str],
        secrets: Mapping[tuple[str, str], Mapping[str, pulumi.Input[str]]],
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`secrets`: texts by key, of each Secret by namespace and name. `after`: what everything waits for."""
        super().__init__("hpc:nebius:Charts", name, {}, opts)
        self._name, self.of = name, {}
        provider = Provider(
            f"{name}-provider",
            kubeconfig=kubeconfig,
            # Only another cluster replaces what is in it: not another certificate or address of the same one, nor a
            # kubeconfig that a preview does not know.
            cluster_identifier=cluster.id,
            # A killed `up` may have created a namespace that the state does not have.
            upsert_existing_objects=True,
            opts=pulumi.ResourceOptions(parent=self),
        )
        # What is in a cluster is deleted with it.
        self._child = pulumi.ResourceOptions(parent=self, provider=provider)
        child = pulumi.ResourceOptions.merge(self._child, pulumi.ResourceOptions(deleted_with=cluster))
        self._namespaces = {
            namespace: Namespace(
                f"{name}-{namespace}", metadata=ObjectMetaArgs(name=namespace), opts=_after(child, after)
            )
            for namespace in dict.fromkeys(namespaces)
        }
        self._secrets = [
            Secret(
                f"{name}-{secret}",
                metadata=ObjectMetaArgs(name=secret, namespace=namespace),
                string_data={key: pulumi.Output.secret(text) for key, text in texts.items()},
                opts=_after(child, [self._namespaces[namespace]]),
            )
            for (namespace, secret), texts in secrets.items()
        ]
        self.register_outputs({})

    def install(self, release: Release, after: Sequence[pulumi.Resource] = ()) -> None:
        """Install a release, after those that it needs, which are installed before."""
        remote = release.repo.startswith(("https://", "http://"))
        chart = release.chart if remote else f"{release.repo.rstrip('/')}/{release.chart}"
        needs = [self.of[need] for need in release.needs if need in self.of]
        limit = f"{release.timeout + _SLACK}s"
        timeouts = pulumi.CustomTimeouts(create=limit, update=limit, delete=DELETE_TIMEOUT)
        child = pulumi.ResourceOptions.merge(self._child, pulumi.ResourceOptions(custom_timeouts=timeouts))
        self.of[release.name] = HelmRelease(
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
            opts=_after(child, [*needs, *after, *self._secrets, self._namespaces[release.namespace]]),
        )


def _after(options: pulumi.ResourceOptions, resources: Sequence[pulumi.Resource]) -> pulumi.ResourceOptions:
    return pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(depends_on=[*resources]))
