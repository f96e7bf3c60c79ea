"""Groups of ten: a component, one resource, and eight that need it."""

import pulumi

from bench.programs.many.made import Made

for group in range(pulumi.Config().require_int("resources") // 10):
    parent = pulumi.ComponentResource("bench:index:Group", f"group-{group}")
    first = Made(f"first-{group}", of="", parent=parent)
    for number in range(8):
        Made(f"more-{group}-{number}", of=first.made, parent=parent)
