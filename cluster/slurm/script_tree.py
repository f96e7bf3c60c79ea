"""The tree of prologs and epilogs on the shared file system, by which slurmd runs scripts on nodes."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.catalog.prologs import NEWEST, RxdmVersion, fitting
from cluster.catalog.recipes import any_recipe
from cluster.config.cluster import ClusterConfig
from cluster.config.slurm import Rxdm, Script
from cluster.config.validators import GPU_JOBS, HEALTH, HEALTH_LAST, RXDM, is_script
from cluster.findings import ConfigError, Finding, Location
from cluster.placed_scripts import interpreter, placed_scripts
from cluster.regular_file import refuse_special
from cluster.roster import has_gpus
from cluster.slurm import paths

LARGEST = 1024 * 1024
"""Most bytes of a script, which is sent to the controller with the rest of the set-up's input."""

_KINDS = ("prolog", "epilog")
_HEALTH = f"""\
#!/bin/sh
# The quick health checks of this node; without the program, on a node that is still being set up, nothing is checked.
[ -x {paths.HEALTH} ] || exit 0
exec {paths.HEALTH} "${{SLURM_SCRIPT_CONTEXT%%_*}}"
"""
_GPU_JOBS = Path(__file__).parents[2] / "scripts/node/jobs/gpu_jobs.sh"
Source = Mapping[str, Any]
"""The source of a script in the form of scripts/node/jobs/prologs.py: lines, or url and sha256."""


@dataclass(frozen=True, kw_only=True)
class Tree:
    """The tree of one cluster, in the form of scripts/node/jobs/prologs.py."""

    scripts: Mapping[str, Source]
    """Scripts by name."""
    links: Mapping[str, str]
    """Links by path in the tree, each with its relative target; those of rxdm included."""
    rxdm: Source | None
    """Source of rxdm, always with sha256. The script is checked and patched before it runs."""

    @property
    def rxdm_links(self) -> dict[str, str]:
        """The links to rxdm."""
        return {path: target for path, target in self.links.items() if target == f"../scripts/{RXDM}"}


def has_scripts(config: ClusterConfig) -> bool:
    """Return whether any script runs before or after jobs. Otherwise slurm.conf has neither Prolog nor Epilog."""
    return config.slurm.rxdm is not None or any(_all_scripts(config))


def _all_scripts(config: ClusterConfig) -> Iterator[tuple[Location, Script]]:
    """Yield every script of the stack, the health check before and after jobs, and the script that records the jobs of
    GPUs."""
    yield from placed_scripts(config)
    health = config.slurm.health
    kinds = [kind for kind in _KINDS if health and getattr(health, kind)]
    if kinds:
        # Not validated, because no script of a stack file may have this name.
        yield ("slurm", "health"), Script.model_construct(name=HEALTH, on=tuple(kinds), text=_HEALTH)
    if config.monitoring and has_gpus(config):
        # The last prolog, because a job that does not start has no GPU.
        yield ("monitoring", "gpus"), Script.model_construct(name=GPU_JOBS, on=_KINDS, text=_GPU_JOBS.read_text())


def tree(config: ClusterConfig, folder: Path) -> Tree:
    """Return the tree. Files are read from the project's `folder`.

    Raises ConfigError with all files that are missing or not scripts.
    """
    findings: list[Finding] = []
    scripts = {script.name: _source(config, script, at, folder, findings) for at, script in _all_scripts(config)}
    rxdm = _rxdm(config, config.slurm.rxdm, folder, findings) if config.slurm.rxdm else None
    if findings:
        raise ConfigError(findings)
    return Tree(scripts=scripts, links=links(config), rxdm=rxdm)


def links(config: ClusterConfig) -> dict[str, str]:
    """Return the links of all scripts by path in the tree, each with its relative target."""
    targets: dict[str, str] = {}
    for at, script in _all_scripts(config):
        for kind in script.on:
            scopes, name = [_scope(at)], script.name
            if name == HEALTH and kind == "epilog":
                # In the folders of rxdm, and after it, because its processes hold the GPUs until then.
                scopes, name = [_scope(("partitions", partition)) for partition in config.partitions], HEALTH_LAST
            for scope in scopes:
                targets[f"{scope}{kind}_slurmd.d/{name}.{kind}_slurmd"] = f"../scripts/{script.name}"
    for partition in config.slurm.rxdm.partitions if config.slurm.rxdm else ():
        for kind in _KINDS:
            targets[f"partition-{partition}-{kind}_slurmd.d/{RXDM}.{kind}_slurmd"] = f"../scripts/{RXDM}"
    return dict(sorted(targets.items()))


def expected(config: ClusterConfig) -> dict[str, str]:
    """Return the expected content of the tree by path: `-> TARGET` of a link, SHA-256 of a script, empty for any."""
    if not has_scripts(config):
        return {}
    mux = "-> slurm_mux"
    content = {"slurm_mux": "", "etc/slurm_mux.conf": "", "slurm_prolog": mux, "slurm_epilog": mux}
    content |= {path: f"-> {target}" for path, target in links(config).items()}
    for _, script in _all_scripts(config):
        # A file of the project may have changed since it was copied, which is no drift: `up` compares it.
        text = "" if script.text is None else hashlib.sha256(script.text.encode()).hexdigest()
        content[f"scripts/{script.name}"] = script.sha256 or text
    return content | ({f"scripts/{RXDM}": ""} if config.slurm.rxdm else {})


def _scope(at: Location) -> str:
    """Return the beginning of the folder's name: `partition-gpu-` for ("partitions", "gpu", "scripts", 0)."""
    return {"partitions": f"partition-{at[1]}-", "nodesets": f"nodeset-{at[1]}-"}.get(str(at[0]), "")


def _source(config: ClusterConfig, script: Script, at: Location, folder: Path, findings: list[Finding]) -> Source:
    if script.url:
        return {"url": script.url, "sha256": script.sha256}
    if script.text is not None:
        text = script.text
    else:
        text = read_script(str(script.file), (*at, "file"), folder, findings)
        if text and (finding := interpreter(config, (*at, "file"), text)):
            findings.append(finding)
    # Joined with line feeds, the lines give exactly the same text, also without one at its end.
    return {"lines": text.split("\n")}


def _rxdm(config: ClusterConfig, rxdm: Rxdm, folder: Path, findings: list[Finding]) -> Source:
    if rxdm.file:
        text = read_script(rxdm.file, ("slurm", "rxdm", "file"), folder, findings)
        return {"lines": text.split("\n"), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    chosen = default_rxdm(config)
    return {"url": rxdm.url or chosen.url, "sha256": rxdm.sha256 or chosen.sha256}


def default_rxdm(config: ClusterConfig) -> RxdmVersion:
    """Return the version that `slurm.rxdm` stages by default: that of the recipe's driver, else the newest."""
    row = any_recipe(config.image.recipe, config.image.base)
    return fitting((row.rxdm_driver or row.driver).version) if row else NEWEST


def read_script(name: str, at: Location, folder: Path, findings: list[Finding]) -> str:
    """Return the text of a script in the project's `folder`, and add findings about it to `findings`."""
    path = folder / name
    try:
        text = _text(path)
    except OSError as error:
        given = f"{name}: {error.strerror or error}"
        todo = f"correct the path, or put the file there; paths begin at {folder} or at the root"
    except UnicodeDecodeError:
        given, todo = f"{name}, which is not text", "name a script; programs are installed on the image"
    else:
        if len(text.encode()) <= LARGEST and is_script(text):
            return text
        if is_script(text):
            given, todo = f"{name}, which is larger", "let the script fetch what it is that is so large"
        else:
            first = text.split("\n", 1)[0].strip()[:60] or "empty"
            given, todo = f"{name}, whose first line is {first!r}", "write #!/bin/bash or the like as the first line"
    allowed = f"a path to a script of at most {LARGEST // 1024} KiB, with #! and its interpreter as first line"
    findings.append(Finding(id="script-file", at=at, given=given, allowed=allowed, todo=todo))
    return ""


def _text(path: Path) -> str:
    refuse_special(path)
    with path.open(encoding="utf-8", newline="") as file:
        return file.read(LARGEST + 1)
