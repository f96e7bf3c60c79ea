"""What squeue prints of jobs, for stand-ins: values by the letters of its format (squeue(1), --format)."""

import re
from collections.abc import Iterable, Mapping, Sequence


def printed(command: Sequence[str], jobs: Iterable[Mapping[str, str]]) -> str:
    """Return squeue's output in the format that the command asks for. Letters that a job lacks are empty."""
    pattern = next(word.removeprefix("--format=") for word in command if word.startswith("--format="))
    fields = re.findall(r"%([A-Za-z])([^%]*)", pattern)
    return "".join("".join(f"{job.get(letter, '')}{text}" for letter, text in fields) + "\n" for job in jobs)
