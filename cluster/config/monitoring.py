"""Metrics and alerts: what Prometheus on the controller collects and keeps, and who gets its alerts."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from cluster.config.controller import Disk
from cluster.config.impact_annotations import NoEffect
from cluster.config.section import Section
from cluster.config.types import Flag, MachineTypeName, Positive, SourceCidr
from cluster.config.validators import matching

SERVICE = NoEffect("Prometheus restarts; Slurm and jobs are not affected")
ALERTING = NoEffect("Alertmanager restarts; Slurm and jobs are not affected")
SECRETS: Mapping[str, tuple[str, str]] = {
    "hpc:mailPassword": ("[^\\x00-\\x1f]{1,200}", "one line of at most 200 characters"),
    "hpc:prometheusCertificate": (
        "(?s)(?=.*-----BEGIN CERTIFICATE-----)(?=.*-----BEGIN [A-Z ]*PRIVATE KEY-----).{1,60000}",
        "PEM of a certificate, those between it and its authority, and its private key without a passphrase",
    ),
    "hpc:prometheusPassword": ("[!-~]{12,72}", "12 to 72 characters of ASCII without blanks"),
    "hpc:slackUrl": (
        "https://[!-~]{1,500}",
        "the URL of an incoming webhook, e.g. https://hooks.slack.com/services/...",
    ),
    "hpc:watchdogUrl": ("https?://[!-~]{1,500}", "a URL, e.g. https://hc-ping.com/..."),
    "hpc:webhookUrl": ("https?://[!-~]{1,500}", "a URL, e.g. https://alerts.example.org/slurm"),
}
"""Encrypted settings beside hpc:cluster that the section needs: the form of each, and what is allowed, in words."""

_address = matching(
    "[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+[A-Za-z0-9]", "one mail address, e.g. ops@example.org", "write each as one entry"
)
_smarthost = matching(
    "[A-Za-z0-9.-]+:[0-9]{1,5}", "host and port of a mail server, e.g. smtp.example.org:587", "write host:port"
)
_channel = matching("[#@][^\\s\"'{}]{1,80}", "a channel or a person, e.g. '#alerts'", "write it in quotes: '#alerts'")
_web_user = matching("[A-Za-z0-9._-]{1,64}", "letters, digits and . _ -", "take another name, e.g. grafana")
_user = matching("[!-~]{1,200}", "the name of an account of the mail server", "remove blanks")
Address = Annotated[str, AfterValidator(_address)]


class Mail(Section):
    """Mail by a server that accepts it with TLS."""

    to: Annotated[tuple[Address, ...], ALERTING] = Field(min_length=1, max_length=20, examples=[["ops@example.org"]])
    """Who gets it."""
    sender: Annotated[Address, ALERTING] = Field(examples=["slurm@example.org"])
    """Its sender's address."""
    smarthost: Annotated[str, AfterValidator(_smarthost), ALERTING] = Field(examples=["smtp.example.org:587"])
    """The mail server."""
    username: Annotated[str | None, AfterValidator(lambda name: name and _user(name)), ALERTING] = None
    """Account there, whose password is `hpc:mailPassword`. Default: none is needed."""


class Receivers(Section):
    """Who gets alerts; secrets are beside hpc:cluster, encrypted: `./hpc config set STACK hpc:slackUrl --secret`."""

    mail: Annotated[Mail | None, ALERTING] = None
    """By mail."""
    slack: Annotated[str | None, AfterValidator(lambda name: name and _channel(name)), ALERTING] = Field(
        default=None, examples=["#alerts"]
    )
    """Channel of Slack; the incoming webhook's URL is `hpc:slackUrl`."""
    webhook: Annotated[Flag, ALERTING] = False
    """By POST of Alertmanager's JSON to `hpc:webhookUrl`."""
    watchdog: Annotated[Flag, ALERTING] = False
    """A dead man's switch: a service outside the cluster that calls somebody when messages stop. It gets a POST to
    `hpc:watchdogUrl` every five minutes for as long as Prometheus and Alertmanager work, and no other alert."""

    @property
    def names(self) -> tuple[str, ...]:
        """The kinds that are configured, of mail, slack, webhook and watchdog."""
        return tuple(name for name in ("mail", "slack", "webhook", "watchdog") if getattr(self, name))

    @property
    def secrets(self) -> tuple[str, ...]:
        """The settings of SECRETS that the receivers need."""
        needed = {
            "hpc:mailPassword": self.mail is not None and self.mail.username is not None,
            "hpc:slackUrl": self.slack is not None,
            "hpc:webhookUrl": self.webhook,
            "hpc:watchdogUrl": self.watchdog,
        }
        return tuple(name for name, is_needed in needed.items() if is_needed)


class MonitoringMachine(Section):
    """A machine for Prometheus and Alertmanager, with the stack's image; nobody but root logs in there."""

    machine_type: MachineTypeName | None = None
    """Machine type of the catalog. Default: the platform's smallest that suffices."""
    disk: Disk = Field(default_factory=Disk.model_construct)
    """On gcp: its boot disk, where the metrics are."""


class Web(Section):
    """Prometheus for those who do not come by SSH, such as Grafana: on the machine's address, port 9090, with TLS, a
    user and the password `hpc:prometheusPassword` (`./hpc config set STACK hpc:prometheusPassword --secret`)."""

    cidrs: Annotated[
        tuple[SourceCidr, ...], NoEffect("who may reach Prometheus from then on, besides the cluster's machines")
    ] = ()
    """On gcp: networks that may reach it, besides the cluster's own, e.g. [10.0.0.0/8]."""
    user: Annotated[str, AfterValidator(_web_user), SERVICE] = "prometheus"
    """Who has the password."""
    own_certificate: Annotated[Flag, SERVICE] = False
    """Whether `hpc:prometheusCertificate` has a certificate and its private key. Default: the stack makes a certificate
    for two years, signed with its own key, and makes another when less than two months are left."""


class Monitoring(Section):
    """Prometheus and Alertmanager on the controller or on a machine of their own, node_exporter on every machine, all
    from packages of the distribution; `{}` has them with their defaults. Adding or removing the section recreates the
    machines, whose image has the packages."""

    machine: MonitoringMachine | None = None
    """On local and gcp: a machine for Prometheus and Alertmanager; `{}` has one with the defaults. Default: they run on
    the controller."""

    retention_days: Annotated[Positive, SERVICE] = Field(default=15, le=3650)
    """Days for which metrics are kept."""
    disk_gb: Annotated[Positive, SERVICE] = Field(default=10, le=10_000)
    """GB of disk that metrics take at most: of Prometheus' machine, where the oldest are deleted then, or on Nebius a
    disk of their own, with another for logs."""
    interval_seconds: Annotated[Positive, SERVICE] = Field(default=30, ge=10, le=300)
    """Seconds between two collections of all metrics."""
    receivers: Receivers = Field(default_factory=Receivers.model_construct)
    """Who gets alerts. Default: nobody; `./hpc status` lists those that fire."""
    ops_agent: Annotated[
        Flag, NoEffect("the Ops Agent restarts on Prometheus' machine; Slurm and jobs are not affected")
    ] = False
    """On gcp: whether the Ops Agent on Prometheus' machine sends the metrics of all machines to Managed Service for
    Prometheus too, which bills by the sample. Alerts stay with the cluster's own Prometheus."""
    web: Annotated[Web | None, SERVICE] = None
    """Prometheus for those who do not come by SSH. Default: it listens on the loopback address alone."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The settings of SECRETS that the section needs."""
        web = self.web
        own = () if web is None else ("hpc:prometheusPassword", *(("hpc:prometheusCertificate",) * web.own_certificate))
        return (*self.receivers.secrets, *own)
