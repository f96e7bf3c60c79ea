"""URNs: `urn:pulumi:STACK::PROJECT::PARENTTYPE$TYPE::NAME`, where PARENTTYPE is the parent's own qualified type."""

STACK_TYPE = "pulumi:pulumi:Stack"


def make(stack: str, project: str, parent: str, type_: str, name: str) -> str:
    """The URN of a resource. The stack itself does not show in the types of its children."""
    qualified = qualified_type(parent) if parent else ""
    if qualified and qualified != STACK_TYPE:
        type_ = f"{qualified}${type_}"
    return f"urn:pulumi:{stack}::{project}::{type_}::{name}"


def root(stack: str, project: str) -> str:
    """The URN of the stack resource, which is the parent of all that have no other."""
    return make(stack, project, "", STACK_TYPE, f"{project}-{stack}")


def qualified_type(urn: str) -> str:
    """Return all types on the way from the stack to the resource, joined with `$`."""
    return urn.split("::", 3)[2]


def type_of(urn: str) -> str:
    return qualified_type(urn).rsplit("$", 1)[-1]


def name_of(urn: str) -> str:
    """The resource's name; it may itself hold `::`."""
    return urn.split("::", 3)[3]


def is_provider(type_: str) -> bool:
    return type_.startswith("pulumi:providers:")
