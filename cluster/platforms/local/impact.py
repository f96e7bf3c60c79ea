"""The impact of edits on machines of this host, where it differs from other platforms."""

from collections.abc import Mapping

from cluster import roster
from cluster.config.impact_annotations import Effect, Impact, NoEffect, Refuse
from cluster.edits import Edit, ImpactRule, rule
from cluster.impact import rules
from cluster.impact.rules import ALL_RECREATED, release
from cluster.platforms.local.address_plan import blocks

_STATE_STAYS = "Slurm's state, with the jobs that wait, and job records are in a folder of their own and stay"
_SAME_SHAPE = "on this platform a machine type says what Slurm schedules by; {} no jobs"


@rules.unless_moved
@rule(Effect.NOTHING, Effect.DRAIN, Effect.REPLACE)
def _node(edit: Edit) -> Impact:
    """Machine type or GPUs of a nodeset's machines."""
    sections = [(config, config.nodesets[edit.name]) for config in (edit.before, edit.after)]
    gpus, sizes = ([find(*section) for section in sections] for find in (roster.nodeset_gpu, roster.sizes))
    if gpus[0] != gpus[1]:
        return rules.recreate_nodes(edit)
    if sizes[0] != sizes[1]:
        return rules.reshape_nodes(roster.node_names(edit.after, edit.name))
    return NoEffect("the machines are of the same size")


@rule(Effect.NOTHING, Effect.DRAIN, Effect.REPLACE)
def _controller(edit: Edit) -> Impact:
    hosted = [name for name, row in edit.after.nodesets.items() if row.on and edit.before.nodesets.get(name) == row]
    kinds = [roster.machines(config)[0] for config in (edit.before, edit.after)]
    if kinds[0].gpu != kinds[1].gpu:
        return rules.recreate_controller(edit, f"{_STATE_STAYS}; jobs on other machines run on")
    if hosted:
        return rules.reshape_nodes(roster.node_names(edit.after, hosted[0]))
    return NoEffect(_SAME_SHAPE.format("the controller runs"))


@rule(Effect.NOTHING, Effect.REPLACE)
def _login(edit: Edit) -> Impact:
    old, new = (
        {machine.name: machine.gpu for machine in roster.machines(config) if machine.roles == ("login",)}
        for config in (edit.before, edit.after)
    )
    recreated = [name for name in old if name in new and old[name] != new[name]]
    if not recreated:
        return NoEffect(_SAME_SHAPE.format("login machines run"))
    return rules.end_sessions(recreated, "is recreated")


@rule(Effect.NOTHING, Effect.REFUSED)
def _addresses(edit: Edit) -> Impact | None:
    """The block of a nodeset's addresses: written, or the default; it follows from the network's, which is refused."""
    if edit.before.network.cidr != edit.after.network.cidr:
        return None
    if blocks(edit.before).get(edit.name) == blocks(edit.after).get(edit.name):
        return NoEffect("these are the addresses that the nodes have")
    return Refuse(
        "nodes are known by their addresses",
        command=f"write `addresses: {blocks(edit.before)[edit.name]}` under nodesets.{edit.name}",
    )


@rule(Effect.NOTHING, Effect.REFUSED)
def _shared(edit: Edit) -> Impact:
    """Directories that machines share."""
    gone = [path for path in edit.old if path not in edit.new]
    come = [path for path in edit.new if path not in edit.old]
    if gone:
        return Refuse(
            f"{', '.join(gone)} would be deleted with every file in it, while jobs may use it: put it back "
            "(destroying the cluster deletes it too)"
        )
    if come:
        return NoEffect(
            f"nodes mount {', '.join(come)} at their next boot, or when their set-up runs again",
            "./hpc ssh {stack} NODE -- systemctl restart hpc-node",
        )
    return NoEffect("the same directories in another order")


def _recreate_all(edit: Edit, how: str = ALL_RECREATED) -> Impact:
    return rules.recreate_all(edit, f"{_STATE_STAYS}; jobs on other machines run on", how)


@rule(Effect.REPLACE)
def _packages(edit: Edit) -> Impact:
    return _recreate_all(edit, f"the machines' base image gets other packages: {ALL_RECREATED}")


@rule(Effect.REPLACE)
def _monitoring(edit: Edit) -> Impact:
    return _recreate_all(edit, f"the machines' base image has the packages of `monitoring`: {ALL_RECREATED}")


@rule(Effect.REPLACE)
def _presents_as(edit: Edit) -> Impact:
    return _recreate_all(edit, f"{ALL_RECREATED} as the other system")


TABLE: Mapping[str, Impact | ImpactRule] = {
    "image.base": release(_recreate_all),
    "image.packages": _packages,
    "monitoring": _monitoring,
    "image.presents_as": _presents_as,
    "controller.machine_type": _controller,
    "login.machine_type": _login,
    "monitoring.machine.machine_type": NoEffect(_SAME_SHAPE.format("that of Prometheus runs")),
    "nodesets.*.machine_type": _node,
    "nodesets.*.gpus": _node,
    "nodesets.*.addresses": _addresses,
    "storage.shared": _shared,
}
