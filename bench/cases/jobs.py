"""Jobs through the cluster, against the same Slurm set up by hand: a thousand through each, in turns of 250."""

from collections.abc import Callable

from bench.case import Answer, Case
from bench.cluster import DEV
from bench.environment import Environment
from bench.manual_cluster import ManualCluster
from bench.result import Claim, Series, ratio

# As alice on the login machine: the seconds from the first job's submission until none is left.
_SCRIPT = """
cat > /home/alice/empty.sh <<'EOF'
#!/bin/sh
EOF
runuser -l alice -c '
    began=$(date +%s%N)
    for _ in $(seq {count}); do
        sbatch --quiet --output=/dev/null empty.sh || exit 1
    done
    while [ -n "$(squeue --noheader --me)" ]; do sleep 0.1; done
    echo $(( $(date +%s%N) - began ))'
"""


def _run(environment: Environment) -> Answer:
    (count,) = environment.pick((250,), (20,))
    cluster, hand = environment.cluster("work", DEV), ManualCluster(environment)
    cluster.hpc("up")
    hand.up()
    rates: dict[str, list[float]] = {"./hpc up": [], "by hand": []}
    shells: dict[str, Callable[[str, str], str]] = {"./hpc up": cluster.shell, "by hand": hand.shell}
    for number in environment.rounds(4):
        for name in rates if number % 2 else reversed(rates):
            seconds = int(shells[name]("login-0", _SCRIPT.replace("{count}", str(count)))) / 1e9
            rates[name].append(count / seconds)
            environment.say(f"round {number + 1}: {name} {rates[name][-1]:.1f} jobs/s")
    hand.down()
    environment.sweep(cluster.name)
    ours, theirs = (Series(name=name, values=tuple(values), unit="jobs/s") for name, values in rates.items())
    return [ours, theirs], [
        Claim(what="time for a job, ours to by hand", value=ratio(theirs, ours), limit=1.1, unit="x")
    ]


CASE = Case(name="jobs", title="1,000 empty jobs in four turns, from `sbatch` until all are done", run=_run)
