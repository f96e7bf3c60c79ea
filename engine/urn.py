"""URNs: `urn:pulumi:STACK::PROJECT::PARENTTYPE$TYPE::NAME`, where PARENTTYPE is the parent's own qualified type."""

STACK_TYPE = "pulumi:pulumi:Stack"


def make(stack: str, project: str, parent: str, type_: str, name: str) -> str:
    """Return the URN of a resource. The type of the stack is left out of the types of its children."""
    qualified = qualified_type(parent) if parent else ""
    if qualified and qualified != STACK_TYPE:
        type_ = f"{qualified}${type_}"
    return f"urn:pulumi:{stack}::{project}::{type_}::{name}"


def root(stack: str, project: str) -> str:
    """Return the URN of the stack resource, the parent of all resources that have no other."""
    return make(stack, project, "", STACK_TYPE, f"{project}-{stack}")


def qualified_type(urn: str) -> str:
    """Return the types of the resource's parents below the stack and its own, joined with `$`."""
    return urn.split("::", 3)[2]


def type_of(urn: str) -> str:
    return qualified_type(urn).rsplit("$", 1)[-1]


def name_of(urn: str) -> str:
    """Return the resource's name, which may contain `::` itself."""
    return urn.split("::", 3)[3]


def is_provider(type_: str) -> bool:
    return type_.startswith("pulumi:providers:")
