"""Production's files of Slurm's, as a rehearsal tells that they are there."""

from cluster.config import ClusterConfig
from cluster.platforms.local.rehearsal import differences, lines
from cluster.slurm.files import render

Files = dict[str, dict[str, dict[str, str]]]
"""Settings by file and line, as `lines` reads them."""


def told(production: ClusterConfig, rehearsal: ClusterConfig) -> Files:
    """Production's files with every difference that is told put into them."""
    files: Files = {name: lines(text) for name, text in render(production).items()}
    for one in differences(production, rehearsal):
        settings = files[one.file].setdefault(one.key, {})
        if one.here is None:
            del settings[one.name]
        else:
            settings[one.name] = one.here
    return {name: {key: value for key, value in found.items() if value} for name, found in files.items()}
