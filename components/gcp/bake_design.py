"""The design of a bake, and the errors of calls to Google: all that is needed of them without Google's client."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

DIGEST_LABEL = "hpc-digest"
"""Label of image and builder: the digest of all inputs of the bake, by which a bake identifies its own."""
CLUSTER_LABEL = "hpc-cluster"
"""Label of everything that a cluster has (cluster.platforms.gcp.names.labels)."""
BOOTED_LABEL = "hpc-booted"
"""Label of an image that a machine has booted and tested: machines use no other."""
OWNER_LABEL = "hpc-owner"
"""Label of an image: which resource of the state has it. A forced replacement takes over the existing image,
which the old resource must not delete then."""
TEMPLATE_KEY = "hpc-template"
"""Metadata key of an instance with the template that it was created from: one of another template is recreated."""
BUILDER_ENDING, TRIAL_ENDING = "-builder", "-trial"
TRIAL_TYPE = "e2-standard-2"
"""Machine type of a trial: the smallest that boots as fast as those of a cluster, and takes the same network driver."""
TRIAL_MINUTES = 15.0
"""Minutes that a trial may take; a boot takes two."""
GRACE_MINUTES = 20
"""Minutes that the builder may live beyond the bake itself, for its start and its stop."""
SHOWN_LINES = 40
"""Lines of the builder's console that an error shows."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Intervals and time limits of requests to Google, in seconds."""

    poll: float = 5.0
    operation: float = 900.0
    """Time for an operation on the builder. Most end within one minute."""
    image: float = 3600.0
    """Time for writing the image: minutes for a disk of 200 GB, more where a region is busy."""
    retry_seconds: float = 300.0
    """Time for a request that is answered with "later" or not at all."""


@dataclass(frozen=True, kw_only=True)
class Bake:
    """The inputs of a bake. `project`, `zone` and `image` suffice to delete image and builder."""

    project: str
    zone: str
    image: str
    """Name of the image; the builder's name is derived from it."""
    digest: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the image."""
    builder_labels: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    source_image: str = ""
    """projects/PROJECT/global/images/NAME."""
    machine_type: str = ""
    size_gb: int = 0
    minutes: float = 0
    """Minutes that the installation may take."""
    subnetwork: str = ""
    """Self link."""
    tag: str = ""
    """Network tag."""
    service_account: str = ""
    """The service account's email, or nothing for none."""
    trial: str = ""
    """Start-up script of the first machine that boots the image: it tests, and reports its progress as a builder does.
    Empty: no such machine is created."""
    ending: str = BUILDER_ENDING
    """The ending of the builder's name."""
    script: str = ""
    """Start-up script: installs, tests, and reports its progress by the guest attribute hpc/bake."""
    storage_location: str = ""
    """Region that keeps the image, or nothing for Google's choice."""
    endpoint: str = ""
    """The endpoint of the Compute Engine API, where it isn't Google's."""
    pace: Pace = field(default_factory=Pace)

    @property
    def builder(self) -> str:
        return f"{self.image}{self.ending}"

    @property
    def link(self) -> str:
        """The image, as every other resource takes it."""
        return image_link(self.project, self.image)

    def trial_bake(self) -> "Bake":
        """Return the inputs of the machine that boots the image, which is created, watched and deleted like a
        builder."""
        return replace(
            self,
            ending=TRIAL_ENDING,
            script=self.trial,
            source_image=self.link,
            machine_type=TRIAL_TYPE,
            minutes=min(self.minutes, TRIAL_MINUTES),
            service_account="",
        )

    @property
    def fingerprint(self) -> str:
        """A hash of the builder's inputs: an interrupted bake continues with a builder of the same."""
        names = "project zone digest source_image machine_type size_gb minutes subnetwork tag service_account script"
        inputs = [getattr(self, name) for name in names.split()]
        return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()


def image_link(project: str, image: str) -> str:
    """Return the path of a project's image, as every resource of Google's takes it."""
    return f"projects/{project}/global/images/{image}"


def image_labels(bake: Bake) -> dict[str, str]:
    return {**bake.labels, DIGEST_LABEL: bake.digest}


def template_mark(template: str) -> str:
    """Return the value of TEMPLATE_KEY: a hash of the template's name, which is unique to each template."""
    return hashlib.sha256(template.rpartition("/")[2].encode()).hexdigest()[:16]


def bake_of(props: Mapping[str, Any]) -> Bake:
    """Return the bake that a resource's inputs describe. Numbers come as Pulumi's floats."""
    return Bake(
        **{name: props[name] for name in TEXTS},
        labels=dict(props["labels"]),
        builder_labels=dict(props["builder_labels"]),
        size_gb=int(props["size_gb"]),
        minutes=float(props["minutes"]),
        # A state that came back from a read or an update is without it.
        script=props.get("script") or "",
        trial=props.get("trial") or "",
        pace=pace_of(props),
    )


def pace_of(props: Mapping[str, Any]) -> Pace:
    """Return the pace that a resource's inputs ask for, by default the usual one."""
    return Pace(**{name: float(value) for name, value in (props.get("pace") or {}).items()})


TEXTS = (
    *("project", "zone", "image", "digest", "description", "source_image", "machine_type"),
    *("subnetwork", "tag", "service_account", "storage_location", "endpoint"),
)
"""Names of the fields of `Bake` that are texts, and always given."""

# -- errors ----------------------------------------------------------------------------------------------------------

LATER = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "resourceNotReady"})
"""Reasons of a 403 or 400 that is worth a retry: too many requests, or another operation is under way."""
LOG_IN = "run `gcloud auth application-default login`, or name a key file in GOOGLE_APPLICATION_CREDENTIALS"


class GoogleCloudError(RuntimeError):
    """Google refused a request or did not answer, or the result is not usable. The text is for the person who ran the
    command."""


class BuilderError(GoogleCloudError):
    """The builder ran, and its program failed or did not end."""


class ErrorRow(NamedTuple):
    """An error in an answer or in an operation of Google's."""

    code: str
    """QUOTA_EXCEEDED of an operation, quotaExceeded of an answer."""
    message: str
    limit: str = ""
    """A quota's limit, where Google's answer has it."""


def cloud_error(
    what: str, todo: str, *, log: Sequence[str] = (), kind: type[GoogleCloudError] = GoogleCloudError
) -> GoogleCloudError:
    """Return an error with what happened, what to do about it, and the end of the builder's console."""
    lines = [what]
    if log:
        lines += [f"  its console ended with ({len(log)} lines):", *(f"    {line}" for line in log)]
    if todo:
        lines.append(f"  to do: {todo}")
    return kind("\n".join(lines))


def error_rows(error: Exception) -> list[ErrorRow]:
    """Return the errors in the answer to a request, or the exception's own text where there was no answer."""
    rows = [row for row in getattr(error, "errors", ()) if isinstance(row, dict)]
    if rows:
        return [ErrorRow(str(row.get("reason", "")), str(row.get("message", ""))) for row in rows]
    return [ErrorRow("", str(getattr(error, "message", "")) or str(error) or type(error).__name__)]


def bake_refusal(bake: Bake, doing: str, errors: Sequence[ErrorRow]) -> GoogleCloudError:
    """Return the error for a request of a bake that Google refused. `doing` is such as `make the builder x`."""
    other = "c2-standard-8" if bake.machine_type.startswith("e2-") else "e2-standard-8"
    todo = advice(_ADVICE, errors)
    return refusal(
        doing, errors, todo.format(bake=bake, other=other, account=bake.service_account or "its service account")
    )


def advice(table: Mapping[tuple[str, ...], str], errors: Sequence[ErrorRow]) -> str:
    """Return what to do, from the first row with a word of Google's code or message in lower case; else nothing."""
    messages = [f"{row.code} {row.message}".lower() for row in errors]
    fitting = (todo for message in messages for words, todo in table.items() if any(word in message for word in words))
    return next(fitting, "")


def refusal(doing: str, errors: Sequence[ErrorRow], todo: str) -> GoogleCloudError:
    """Return Google's errors as one, with what to do about them."""
    rows = "\n".join(f"    {_sentence(row)}" for row in errors)
    return cloud_error(f"could not {doing}:\n{rows}", todo)


def _sentence(row: ErrorRow) -> str:
    text = " ".join(row.message.split())
    return ": ".join(part for part in (row.code, text) if part) + (f" ({row.limit})" if row.limit else "")


_ADVICE: Mapping[tuple[str, ...], str] = {
    ("quota_exceeded", "quotaexceeded"): (
        "ask for more at https://console.cloud.google.com/iam-admin/quotas?project={bake.project}, or set "
        "image.builder.machine_type to a type with fewer cores than {bake.machine_type}"
    ),
    ("resource_pool_exhausted",): (
        "{bake.zone} has no {bake.machine_type} left: set image.builder.machine_type to one of another family, "
        "e.g. {other}, or run again later"
    ),
    ("has not been used in project", "accessnotconfigured", "service_disabled"): (
        "gcloud services enable compute.googleapis.com --project {bake.project}"
    ),
    ("autherror", "authentication credentials"): LOG_IN,
    ("guest attributes",): (
        "lift the policy compute.disableGuestAttributesAccess for {bake.project}: the builder reports its "
        "progress by them"
    ),
    ("forbidden", "permission"): (
        "who runs this needs roles/compute.instanceAdmin.v1 in {bake.project}, and roles/iam.serviceAccountUser on "
        "{account}"
    ),
    ("/global/images/",): (
        "if this names {bake.source_image}, which the bake starts from, it was withdrawn: set image.base, or "
        "image.name to an image you have"
    ),
}
