"""Checks of users and accounting: unique names, uids and gids, names that exist, and accounts that form a tree."""

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from cluster import people, platform_interface, roster
from cluster.catalog import IMAGES
from cluster.catalog.base_system import LOGIN_SHELLS
from cluster.config.cluster import ClusterConfig
from cluster.config.image import Image
from cluster.config.section import Section, slurm_settings
from cluster.config.users import User
from cluster.findings import Finding, Level, Location, dotted, listing, suggest, unknown
from cluster.placed_scripts import programs_may_differ


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    yield from _groups(config)
    known, qos = [account.name for account in people.accounts(config)], people.qos_names(config)
    names: set[str] = set()
    names_by_uid: dict[int, str] = {}
    for position, user in enumerate(config.users):
        at = ("users", position)
        if user.name in names:
            yield Finding(
                id="user-name-twice",
                at=(*at, "name"),
                given=user.name,
                allowed="a name that no other user has",
                todo="remove one of the two, or rename it",
            )
        elif user.uid in names_by_uid:
            yield Finding(
                id="user-uid-taken",
                at=(*at, "uid"),
                given=str(user.uid),
                allowed=f"a number that no other user has; {user.uid} is {names_by_uid[user.uid]}'s",
                todo=f"choose another number, e.g. {max(other.uid for other in config.users) + 1}",
            )
        names.add(user.name)
        names_by_uid.setdefault(user.uid, user.name)
        yield from _shell(config, position, user)
        yield from unknown((*at, "groups"), user.groups, config.groups, "a group", "groups")
        yield from _accounting(config, position, user, known, qos)
    yield from _gids(config)
    yield from _former_users(config)
    yield from _database(config)


def find_warnings(config: ClusterConfig) -> Iterator[Finding]:
    """Warn where `sudo` has no effect, and where it lifts limits of jobs."""
    missing = not (IMAGES[config.image.base].sudo or programs_may_differ(config) or "sudo" in config.image.packages)
    for position, user in enumerate(config.users):
        at = ("users", position, "sudo")
        if user.sudo and missing:
            yield Finding(
                id="user-sudo-missing",
                level=Level.WARNING,
                at=at,
                what=f"machines of {config.image.base} do not have sudo: {user.name} can't use it",
                todo="write `image: {packages: [sudo]}`, which recreates the machines, or remove `sudo`",
            )
        elif user.sudo and config.slurm.pam_slurm_adopt:
            yield Finding(
                id="user-sudo-adopt",
                level=Level.WARNING,
                at=at,
                what=f"{user.name} becomes root on nodes, and root is not held to the limits of its jobs, which "
                "slurm.pam_slurm_adopt is for",
                todo="remove `sudo` unless the user administers the cluster",
            )


def _former_users(config: ClusterConfig) -> Iterator[Finding]:
    """Check that no new user has the uid of a former one, whose files belong to the number."""
    owners = {former.uid: former.name for former in config.former_users}
    numbers = {former.name: former.uid for former in config.former_users}
    for position, user in enumerate(config.users):
        owner, own = owners.get(user.uid, user.name), numbers.get(user.name, user.uid)
        if owner != user.name:
            yield Finding(
                id="user-uid-former",
                at=("users", position, "uid"),
                given=str(user.uid),
                allowed=f"a number that no former user had; {user.uid} was {owner}'s, whose files are still there",
                todo=f"write {own}"
                if own != user.uid
                else "choose another number, e.g. " + str(max([*owners, *(other.uid for other in config.users)]) + 1),
            )
        elif own != user.uid:
            yield Finding(
                id="user-uid-before",
                at=("users", position, "uid"),
                given=str(user.uid),
                allowed=f"{own}, the number that {user.name} had before, to whom the files in /home belong",
                todo=f"write {own}; or, for somebody else of that name, remove {user.name} from `former_users` once "
                "the files are gone",
            )


def _groups(config: ClusterConfig) -> Iterator[Finding]:
    owners: dict[int, str] = {}
    for name, gid in config.groups.items():
        if gid in owners:
            yield Finding(
                id="group-gid-taken",
                at=("groups", name),
                given=str(gid),
                allowed=f"a number that no other group has; {gid} is {owners[gid]}'s",
                todo=f"choose another number, e.g. {max(config.groups.values()) + 1}",
            )
        owners.setdefault(gid, name)


def _gids(config: ClusterConfig) -> Iterator[Finding]:
    """Check primary groups: a user's own group has the user's name and the primary gid, unless that gid is a declared
    group's."""
    declared = {gid: name for name, gid in config.groups.items()}
    owners: dict[int, User] = {}
    for position, user in enumerate(config.users):
        gid, key = user.primary_gid, "uid" if user.gid is None else "gid"
        if user.gid is None and gid in declared:
            yield Finding(
                id="user-gid-of-group",
                at=("users", position, key),
                given=str(gid),
                allowed=f"a number that no group has; {gid} is group {declared[gid]}'s",
                todo=f"choose another uid, or write `gid: {gid}` if {declared[gid]} is the user's primary group",
            )
        elif gid in declared:
            continue
        elif user.name in config.groups:
            yield Finding(
                id="user-name-of-group",
                at=("groups", user.name),
                given=user.name,
                allowed="a name that no user has, since every user has a group of the same name",
                todo=f"rename the group, or give {user.name} `gid: {config.groups[user.name]}`",
            )
        elif gid in owners and owners[gid].name != user.name and owners[gid].uid != user.uid:
            yield Finding(
                id="user-gid-taken",
                at=("users", position, key),
                given=str(gid),
                allowed=f"a gid of the user's own; {gid} is {owners[gid].name}'s",
                todo=f"choose another number, or define a group with gid {gid} under `groups` if it is shared",
            )
        owners.setdefault(gid, user)


def _shell(config: ClusterConfig, position: int, user: User) -> Iterator[Finding]:
    """Check that machines have a user's shell, since sshd refuses users without one."""
    if user.shell in LOGIN_SHELLS or programs_may_differ(config):
        return
    steps = "provision" in platform_interface.get(config.platform).fields.get(Image, ())
    other = ", or install it by a step of `image.provision`" if steps else "; ~/.bashrc can start others"
    yield Finding(
        id="user-shell",
        at=("users", position, "shell"),
        given=user.shell,
        allowed=f"a shell that the machines have: {listing(LOGIN_SHELLS)}",
        todo=f"write /bin/bash{other}",
    )


def _accounting(
    config: ClusterConfig, position: int, user: User, known: list[str], qos: tuple[str, ...]
) -> Iterator[Finding]:
    at = ("users", position)
    default = people.default_account(config, user)
    if default not in known:
        yield Finding(
            id="user-account-unknown",
            at=(*at, "account"),
            given=user.account or "nothing",
            allowed=f"an account that exists: {listing(known)}",
            todo=suggest(default, known, f"define {default} under `accounting.accounts`")
            if user.account
            else f"name the account that {user.name}'s jobs are charged to",
            missing=default,
        )
    yield from unknown((*at, "accounts"), user.accounts, known, "an account", "accounting.accounts")
    yield from unknown((*at, "qos"), user.qos, qos, "a QOS", "accounting.qos")


def _database(config: ClusterConfig) -> Iterator[Finding]:
    accounting = config.accounting
    yield from _duplicate_names("accounts", [account.name for account in accounting.accounts])
    yield from _duplicate_names("qos", [level.name for level in accounting.qos])
    parents = {account.name: account.parent for account in accounting.accounts}
    above = {name: (parent,) if parent else () for name, parent in parents.items()}
    has_circle = _has_circle(above)
    for position, account in enumerate(accounting.accounts):
        at = ("accounting", "accounts", position)
        if account.name == "root":
            yield Finding(
                id="account-root",
                at=(*at, "name"),
                given="root",
                allowed="any name but root, e.g. research",
                todo="rename the account: root is the top of Slurm's own tree",
            )
        if account.parent not in (None, "root", *parents):
            known = [name for name in parents if name != account.name]
            yield Finding(
                id="account-parent-unknown",
                at=(*at, "parent"),
                given=str(account.parent),
                allowed=f"root or an account that exists: {listing(known)}",
                todo=suggest(str(account.parent), known, f"define {account.parent}, or leave `parent` out"),
                missing=account.parent,
            )
        elif has_circle and (circle := _circle(account.name, above)):
            yield Finding(
                id="account-circle",
                at=(*at, "parent"),
                given=str(account.parent),
                allowed="accounts that lead up to root",
                todo=f"break the circle {' -> '.join(circle)}: leave out one `parent`",
            )
    yield from _preemption(config)
    yield from _group_limits(config)
    names = people.qos_names(config)
    preempted = {level.name: level.preempt for level in accounting.qos}
    has_circle = _has_circle(preempted)
    tracked = _tracked_resources(config)
    for position, qos in enumerate(accounting.qos):
        at = ("accounting", "qos", position)
        yield from unknown((*at, "preempt"), qos.preempt, names, "a QOS", "accounting.qos")
        yield from _resources(tracked, at, qos, ("max_tres_per_job", "max_tres_per_user", "grp_tres"))
        if has_circle and (circle := _circle(qos.name, preempted)):
            yield Finding(
                id="qos-circle",
                at=(*at, "preempt"),
                given=listing(qos.preempt),
                allowed="QOS that preempt no QOS which preempts them",
                todo=f"break the circle {' -> '.join(circle)}",
            )


def _preemption(config: ClusterConfig) -> Iterator[Finding]:
    """Check parameters of preemption: slurmctld does not start with preempt/qos and PreemptMode=OFF, and another
    PreemptType ignores the `preempt` of QOS."""
    fits = {"preempttype": ("preempt/qos",), "preemptmode": ("CANCEL", "REQUEUE", "SUSPEND,GANG")}
    for name, value in config.slurm.extra.items():
        allowed = fits.get(name.lower())
        if allowed and people.preempts(config) and str(value).lower() not in {choice.lower() for choice in allowed}:
            yield Finding(
                id="preemption-settings",
                at=("slurm", "extra", name),
                given=str(value),
                allowed=f"{' or '.join(allowed)}, since a QOS of this cluster preempts others",
                todo="remove it, or take `preempt` out of accounting.qos",
            )


def _tracked_resources(config: ClusterConfig) -> list[str]:
    kinds = {gpu.type for nodeset in config.nodesets.values() if (gpu := roster.nodeset_gpu(config, nodeset))}
    gpus = ["gres/gpu", *(f"gres/gpu:{kind}" for kind in sorted(kinds))] if kinds else []
    return ["cpu", "mem", "node", "billing", "energy", "fs/disk", *gpus]


def _group_limits(config: ClusterConfig) -> Iterator[Finding]:
    """Check limits of accounts and users: slurmctld tracks the resources, and holds jobs to the limits."""
    tracked = _tracked_resources(config)
    limited: list[Location] = []
    hours: list[Location] = []
    for above, rows in ((("accounting", "accounts"), config.accounting.accounts), (("users",), config.users)):
        for position, row in enumerate(rows):
            at = (*above, position, "limits")
            yield from _resources(tracked, at, row.limits, ("grp_tres_hours", "grp_tres"))
            limited += [at] if any(value is not None for value in slurm_settings(row.limits).values()) else []
            hours += [(*at, "grp_tres_hours")] if row.limits.grp_tres_hours else []
    accounting, extra = config.accounting, {name.lower(): value for name, value in config.slurm.extra.items()}
    if limited and "safe" not in accounting.enforce:
        yield Finding(
            id="limits-not-enforced",
            at=("accounting", "enforce"),
            given=listing(accounting.enforce) or "nothing",
            allowed="a list with safe, since accounts or users have limits: jobs wait for their hours then, and none "
            "is ended when they are used up",
            todo=f"add safe, or remove {dotted(limited[0])}",
        )
    if hours and not accounting.period:
        yield Finding(
            id="limit-hours-period",
            at=hours[0],
            given="hours, without accounting.period",
            allowed="hours in a period: usage that is forgotten by half a week after week is no budget",
            todo="write `accounting: {period: monthly}`",
            missing="period",
        )
    if hours and extra.get("prioritytype", "priority/multifactor") != "priority/multifactor":
        yield Finding(
            id="limit-hours-priority",
            at=("slurm", "extra", "PriorityType"),
            given=str(extra["prioritytype"]),
            allowed="priority/multifactor, which alone counts the hours of `limits`",
            todo="remove it",
        )


def _resources(tracked: list[str], at: Location, section: Section, keys: tuple[str, ...]) -> Iterator[Finding]:
    """Check that slurmctld tracks the resources of limits. On the cluster, sacctmgr would refuse others."""
    for key in keys:
        for name in getattr(section, key):
            if name not in tracked:
                yield Finding(
                    id="limit-untracked",
                    at=(*at, key, name),
                    given=name,
                    allowed=f"what this cluster has: {listing(tracked)}",
                    todo="remove the limit, or add nodes that have such GPUs",
                    missing="nodesets",
                )


def _duplicate_names(key: str, names: list[str]) -> Iterator[Finding]:
    earlier: set[str] = set()
    for position, name in enumerate(names):
        if name in earlier:
            yield Finding(
                id="accounting-name-twice",
                at=("accounting", key, position, "name"),
                given=name,
                allowed="each name once",
                todo="remove or rename one of the two",
            )
        earlier.add(name)


def _circle(name: str, references: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return a circle of references through a name, such as [a, b, a]; empty if there is none."""
    came_from: dict[str, str] = {}
    waiting = [name]
    while waiting:
        current = waiting.pop()
        for target in references.get(current, ()):
            if target == name:
                path = [current]
                while path[-1] != name:
                    path.append(came_from[path[-1]])
                return [*reversed(path), name]
            if target not in came_from:
                came_from[target] = current
                waiting.append(target)
    return []


def _has_circle(references: Mapping[str, tuple[str, ...]]) -> bool:
    try:
        TopologicalSorter(references).prepare()
    except CycleError:
        return True
    return False
