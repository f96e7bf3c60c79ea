"""What the models say of their fields, in the text under each.

Read from the source when it is asked for, which is when something is wrong or the schema is written: pydantic would
do it for every class at every start, which takes a tenth of a second.
"""

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise

from cluster.config.section import Section


@cache
def texts(section: type[Section]) -> dict[str, str]:
    """The text under each field of a section and of those that it is derived from, by the field's name."""
    found: dict[str, str] = {}
    for kind in reversed(section.__mro__):
        if issubclass(kind, Section) and kind is not Section:
            found |= _under_fields(kind)
    return found


def _under_fields(kind: type) -> dict[str, str]:
    try:
        source = inspect.getsource(kind)
    except OSError:
        return {}  # derived by cluster.load.model
    (definition,) = ast.parse(textwrap.dedent(source)).body
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
