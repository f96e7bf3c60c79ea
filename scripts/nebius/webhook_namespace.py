#!/usr/bin/env python3
"""Helm's post-renderer of OpenKruise: it limits the webhooks to one namespace, the Slurm cluster's.

The chart's own webhooks select all namespaces but kube-system, and refuse every pod while OpenKruise's manager does not
run. The chart has no value for that. The namespace is in an annotation, because a post-renderer gets the objects alone.
"""

import re
import sys

ANNOTATION = "hpc/webhook-namespace"
_NAMESPACE = re.compile(rf"^ *{ANNOTATION}: ['\"]?([a-z0-9-]+)", re.MULTILINE)
_WEBHOOKS = re.compile(r"^kind: \w+WebhookConfiguration$", re.MULTILINE)
_ALL_BUT = re.compile(r"(- key: kubernetes\.io/metadata\.name\n +operator: )NotIn(\n +values:\n +- )kube-system\n")


def limited(objects: str) -> str:
    """Return the objects with webhooks of one namespace. Raises SystemExit if they do not select as the chart's do."""
    return "\n---".join(_of_one(text) if _WEBHOOKS.search(text) else text for text in objects.split("\n---"))


def _of_one(webhooks: str) -> str:
    namespace = _NAMESPACE.search(webhooks)
    if namespace is None:
        sys.exit(f"webhooks without the annotation {ANNOTATION}: a value of the release gives it")
    changed, count = _ALL_BUT.subn(rf"\g<1>In\g<2>{namespace[1]}\n", webhooks)
    if not count or count != webhooks.count("namespaceSelector:"):
        sys.exit("webhooks whose namespaceSelector is not that of OpenKruise 1.8: is it another version's chart?")
    return changed


if __name__ == "__main__":
    sys.stdout.write(limited(sys.stdin.read()))
