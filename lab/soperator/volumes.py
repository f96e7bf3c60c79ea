"""Binds claims to the volumes that they name, and releases volumes. Kubernetes' own controller takes 15 seconds."""

from lab.soperator.kube import Kube


def bind(kube: Kube) -> None:
    """Every claim that names a volume is bound, and every volume whose claim is gone is released."""
    claims = kube.list("v1", "PersistentVolumeClaim")
    names = {(one["metadata"]["namespace"], one["metadata"]["name"]) for one in claims}
    for volume in kube.list("v1", "PersistentVolume"):
        claim = volume["spec"].get("claimRef", {})
        if volume["status"].get("phase") == "Bound" and (claim.get("namespace"), claim.get("name")) not in names:
            # Volumes in use are not deleted.
            kube.set_status(volume, {"phase": "Released"})
    for claim in claims:
        volume = claim["spec"].get("volumeName")
        if not volume or claim.get("status", {}).get("phase") == "Bound":
            continue
        found = kube.get("v1", "PersistentVolume", volume)
        if found:
            kube.set_status(found, {"phase": "Bound"})
            kube.set_status(
                claim,
                {
                    "phase": "Bound",
                    "accessModes": found["spec"]["accessModes"],
                    "capacity": found["spec"]["capacity"],
                },
            )
    _release(kube)


def _release(kube: Kube) -> None:
    """A volume whose claim is gone is released; until then it can't be deleted."""
    claims = {
        (one["metadata"]["namespace"], one["metadata"]["name"]) for one in kube.list("v1", "PersistentVolumeClaim")
    }
    for volume in kube.list("v1", "PersistentVolume"):
        of = volume["spec"].get("claimRef") or {}
        bound = volume.get("status", {}).get("phase") == "Bound"
        if bound and "deletionTimestamp" in volume["metadata"] and (of.get("namespace"), of.get("name")) not in claims:
            kube.set_status(volume, {"phase": "Released"})
