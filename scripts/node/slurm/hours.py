"""Hours of CPUs and GPUs that accounts and users may use in a period (GrpTRESMins), and how many of them are used, as
slurmctld counts them. Pure functions, which `./hpc` uses too.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

COMMAND = ("scontrol", "--oneliner", "show", "assoc_mgr", "flags=assoc")
"""Prints a line for each association that its user may see (PrivateData). slurmctld adds up running jobs every
PriorityCalcPeriod, five minutes by default, and jobs that have ended at once (src/scontrol/info_assoc_mgr.c and
src/plugins/priority/multifactor at slurm-22-05-8-1 and slurm-26-05-3-1)."""
LIMITED = " GrpTRESMins=[^ ]*=[0-9]| UserName= "
"""Extended regular expression of the lines of COMMAND that `parse` and `of_job` need: with a limit, or of accounts."""
_RESOURCE = re.compile(r"(?P<name>[^,=]+)=(?P<limit>N|[0-9]+)\((?P<minutes>[0-9]+)\)")
"""A limit with what is used of it. N is no limit."""
_NAMES = {"gres/gpu": "GPU", "cpu": "CPU"}


class Hours(NamedTuple):
    """A limit of hours, and its use in this period."""

    account: str
    user: str
    """The user whose limit it is; empty for all of the account's together."""
    resource: str
    """The name of the TRES, such as `gres/gpu`."""
    limit: float
    used: float
    reserved: float
    """Hours that running jobs use at most until their time limits."""

    @property
    def share(self) -> float:
        """The used share of the limit; 0 of a limit of 0, by which an account is closed."""
        return self.used / self.limit if self.limit else 0.0

    @property
    def owner(self) -> str:
        """The association in words."""
        return f"{self.user} in account {self.account}" if self.user else f"account {self.account}"

    @property
    def unit(self) -> str:
        """The unit in words, such as `GPU hours`."""
        return f"{_NAMES.get(self.resource, self.resource)} hours"

    @property
    def left(self) -> str:
        """The sentence that a user needs."""
        text = f"{self.owner} has {figure(max(0.0, self.limit - self.used))} of {figure(self.limit)} {self.unit} left"
        return text + (f", of which running jobs may use {figure(self.reserved)}" if self.reserved else "")


def figure(hours: float) -> str:
    """Return hours as text, with one digit at most."""
    return f"{hours:,.1f}".removesuffix(".0")


def parse(text: str) -> list[Hours]:
    """Return the limits of all associations in the output of COMMAND."""
    return [hours for row in _rows(text) for hours in _limits(row)]


def of_job(text: str, account: str, user: str) -> list[Hours]:
    """Return the limits of a job: its user's, its account's, and those of the accounts above."""
    rows = list(_rows(text))
    parents = {row["Account"]: row.get("ParentAccount", "") for row in rows if not row["UserName"]}
    path: list[str] = []
    above = account
    while above and above not in path:
        path.append(above)
        above = parents.get(above, "")
    found = [hours for row in rows for hours in _limits(row)]
    return [
        row for row in found if (row.account in path and not row.user) or (row.account, row.user) == (account, user)
    ]


def _rows(text: str) -> Iterator[dict[str, str]]:
    """Yield the fields of each association, with names without ids."""
    for line in text.splitlines():
        row: dict[str, str] = {}
        for word in line.split(" "):
            name, equals, value = word.partition("=")
            if equals:
                row.setdefault(name, value)  # a comment, which may contain anything, comes last
        if {"Account", "UserName"} <= row.keys():
            yield row | {name: row.get(name, "").partition("(")[0] for name in ("UserName", "ParentAccount")}


def _limits(row: dict[str, str]) -> Iterator[Hours]:
    reserved = {part["name"]: int(part["minutes"]) for part in _RESOURCE.finditer(row.get("GrpTRESRunMins", ""))}
    for part in _RESOURCE.finditer(row.get("GrpTRESMins", "")):
        if part["limit"] != "N":
            limit, used, running = int(part["limit"]), int(part["minutes"]), reserved.get(part["name"], 0)
            yield Hours(row["Account"], row["UserName"], part["name"], limit / 60, used / 60, running / 60)
