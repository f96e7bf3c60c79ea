"""How the stand-in operator behaves, for tests of waits and failures."""

from dataclasses import dataclass


@dataclass
class Behaviour:
    """May be changed while the operator runs; it applies from its next turn on."""

    phase_seconds: float = 0.0
    """How long each step takes: populating the jail, reconciling."""
    never: bool = False
    """Whether the cluster stays in the phase Reconciling for ever."""
    populate_fails: bool = False
    """Whether the Job that populates the jail fails."""
    unavailable: str = ""
    """Why the controller does not come up: the phase is `Not available`, and the reason in its condition."""
    no_address: bool = False
    """Whether the login Service gets no address."""
    missing_pods: int = 0
    """How many pods of each NodeSet stay Pending."""
    failed_checks: tuple[str, ...] = ()
    """Names of ActiveChecks that fail."""
