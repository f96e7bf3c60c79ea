"""Binds claims to the volumes that they name. Kubernetes' own controller does that too, after up to 15 seconds."""

from components.nebius.rehearsal.operator.kube import Kube


def bind(kube: Kube) -> None:
    """Every claim that names a volume is bound."""
    for claim in kube.list("v1", "PersistentVolumeClaim"):
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
