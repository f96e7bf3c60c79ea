"""How long the provider waits for resources of Google Cloud that take long to create, update or delete.

When it has waited that long for a creation, it gives the resource up: Google goes on and bills, and no state has it. So
every limit is longer than the slowest case that is known, and applies to all resources of a type. Resources that this
program creates itself (images, flex start) have limits of their own: bake_design.Pace, instances.WAIT_SECONDS. Groups
and resize requests are made by the controller, and reservations exist before the stack.
"""

from collections.abc import Mapping

import pulumi

# Default limits: hashicorp/terraform-provider-google, google/services/*/resource_*.go, at e03b7622 (7.45.0). That a
# failed wait for a creation takes the resource out of the state (SetId("")): the same files.
TIMEOUTS: Mapping[str, pulumi.CustomTimeouts] = {
    # 20 minutes each before 7.40.0, which is less than a large share takes: GoogleCloudPlatform/cluster-toolkit
    # v1.95.0, modules/file-system/filestore, sets 1h for ZONAL and REGIONAL from 10,240 GiB on. Since then 10 days for
    # a creation, which nobody waits for, and 2 h for the others.
    "gcp:filestore/instance:Instance": pulumi.CustomTimeouts(create="2h", update="2h", delete="2h"),
    # 120 minutes to create and 60 for the others; 20 each at first. One creation of a hundred takes 40 to 80 minutes
    # (GoogleCloudPlatform/magic-modules pull request 14878, 2025-08), those at 125 and 250 MB/s for each TiB more than
    # an hour (cluster-toolkit pull request 5079, 2026-01).
    "gcp:lustre/instance:Instance": pulumi.CustomTimeouts(create="3h", update="2h", delete="2h"),
    # 10 minutes each, for an operation of another service, where all other parts of a network have 20.
    "gcp:servicenetworking/connection:Connection": pulumi.CustomTimeouts(create="30m", update="30m", delete="30m"),
    # 20 minutes each. Google has given a machine its place before it answers, but not its start; an update stops the
    # machine and starts it again. A machine in no state is the most expensive leftover.
    "gcp:compute/instance:Instance": pulumi.CustomTimeouts(create="1h", update="1h", delete="1h"),
    "gcp:compute/instanceFromTemplate:InstanceFromTemplate": pulumi.CustomTimeouts(
        create="1h", update="1h", delete="1h"
    ),
}
"""By type of resource. A limit is no input: another one changes no resource that exists."""


def options() -> pulumi.ResourceOptions:
    """Return options for the component that is the parent of all resources."""
    return pulumi.ResourceOptions(transformations=[_set_timeouts])


def _set_timeouts(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
    timeouts = TIMEOUTS.get(args.type_)
    if timeouts is None:
        return None
    opts = pulumi.ResourceOptions.merge(args.opts, pulumi.ResourceOptions(custom_timeouts=timeouts))
    return pulumi.ResourceTransformationResult(props=args.props, opts=opts)
