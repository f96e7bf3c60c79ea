"""Reading logs of MLPerf training, and reporting them."""

import gzip
import io
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.commands.jobs.mlperf_report import report
from cli.errors import CliError
from cluster.catalog.mlperf import TARGETS
from cluster.printable import document
from cluster.report.mlperf_log import NotAnMlperfLogError
from cluster.report.mlperf_report import MlperfReport, UnknownSetupError, read_report
from cluster.report.plot import drawable
from tests.cluster.report.mlperf_logs import DURATIONS, FIRST_MS, GUIDE, blocks, event, preamble, reference, text

START = event(FIRST_MS - 875, "run_start")


def reported(lines: list[str], setup: str = "") -> MlperfReport:
    return read_report(io.BytesIO(text(lines)), setup)


NEXT_MS = FIRST_MS + 3_600_000
END_MS = FIRST_MS + 400_000
AGAIN = [*preamble(at=NEXT_MS - 176_000), event(NEXT_MS - 875, "run_start"), *blocks([22_000] * 3, at=NEXT_MS)]
LATE = [*blocks(DURATIONS[:2]), *blocks([-5000], at=FIRST_MS + 44_198, first=200), *blocks([20_000], first=300)]
NO_STEPS = [event(FIRST_MS, "block_start", "training_step", step_num=value) for value in (None, "1", True, -1)]


def trained(**more: Any) -> list[str]:
    """A run whose log shows so many ranks and such a batch size."""
    return [*preamble(**more), START, *blocks()]


def _later(line: str, rank: int) -> str:
    """An event of another rank, some milliseconds later."""
    row = json.loads(line.removeprefix(":::MLLOG "))
    return f":::MLLOG {json.dumps({**row, 'time_ms': row['time_ms'] + 7 * rank})}"


def of_ranks(*, labelled: bool) -> list[str]:
    lines = [*preamble(ranks=1), START]
    for line in blocks():
        lines += [f"{rank}: {_later(line, rank)}" if labelled else _later(line, rank) for rank in range(4)]
    return lines


def megatron(batch: int = 1536, sequence: int = 2048) -> list[str]:
    """Its events have one block for all of training, without the steps at its end."""
    lines = [
        *(event(FIRST_MS, key, value) for key, value in (
            ("init_start", None), ("submission_platform", "GA100-64"), ("submission_benchmark", "gpt3"),
            ("global_batch_size", batch), ("max_sequence_length", sequence),
        )),
        event(FIRST_MS + 1, "run_start"),
        event(FIRST_MS + 10, "block_start", first_epoch_num=0, epoch_count=16 * batch * sequence),
        *(
            f" iteration {4000 + step:8d}/   13020 | consumed samples: {step * batch:12d} | elapsed time per iteration "
            f"(ms): {50_000 + step:.1f} | learning rate: 2.000E-05 | global batch size: {batch:5d} |"
            for step in range(1, 33)
        ),
        event(FIRST_MS + 1_700_000, "run_stop", status="aborted"),
        event(FIRST_MS + 1_700_000, "trained_samples", 32 * batch * sequence),
        event(FIRST_MS + 1_700_001, "block_stop", first_epoch_num=0),
    ]  # fmt: skip
    return [f"{63 if 'iteration' in line else 0:2d}: {line}" for line in lines]


def evaluated(fid: float, clip: float, *, at: int = END_MS, step: int = 1000) -> list[str]:
    """The two results of an evaluation of Stable Diffusion (stable_diffusion/mlperf_logging_utils.py)."""
    return [
        event(at, "eval_accuracy", fid, step_num=step, metric="FID"),
        event(at, "eval_accuracy", clip, step_num=step, metric="CLIP"),
    ]


CASES: dict[str, tuple[list[str], str]] = {
    "the guide's run": (reference(), ""),
    "the guide's run, with its target": (reference(), "2xh100"),
    "the guide's run, with the target of one node": (reference(), "1xH100"),
    **{
        f"{ranks} ranks and a batch of {batch}": (trained(ranks=ranks, batch=batch), "")
        for ranks, batch in (
            *((8, 64), (16, 128), (64, 512), (1, 128), (16, None)),  # of one rank, the batch size is enough
            *((1, 512), (256, 512), (4, 32), (1, None)),
        )
    },
    "intervals of 50 steps": ([*preamble(), START, *blocks([10_000, 10_500], steps=50)], ""),
    "a run with its end and its quality": (
        [
            *reference(),
            *evaluated(89.5, 0.1501),
            event(END_MS, "run_stop"),
            event(END_MS, "status", "success"),
        ],
        "",
    ),
    "a success without the quality": ([*reference(), *evaluated(90.1, 0.16), event(END_MS, "status", "success")], ""),
    "quality at two evaluations": (
        [*reference(), *evaluated(90.1, 0.16), *evaluated(90.0, 0.15, at=END_MS + 3_600_000, step=2000)], ""
    ),
    "metrics that meet their targets at different steps": (
        [*reference(), *evaluated(80, 0.14), *evaluated(91, 0.16, step=2000)], ""
    ),
    "quality in a log without run_start": ([*preamble(), *blocks(), *evaluated(80, 0.2)], ""),
    "GPT-3 that has reached its quality": (
        [*megatron(), event(FIRST_MS + 1_600_001, "eval_accuracy", 2.69, epoch_num=16 * 1536 * 2048)], ""
    ),
    "intervals of 100 and of 20 steps, of no set-up": (
        [
            *preamble(ranks=4, batch=32), START,
            *blocks([20_000, 21_000]), *blocks([4100], at=END_MS, steps=20, first=200),
        ],
        "",
    ),
    "a log cut within a block": (trained()[:-1], ""),
    "a log cut within a line": ([*trained()[:-1], trained()[-1][:-40]], ""),
    "a run that stopped before its training": ([*preamble(), START], ""),
    "two runs in one file": ([*reference(), *AGAIN], ""),
    "steps that begin again": ([*blocks(DURATIONS[:3]), *blocks(DURATIONS[3:6], at=NEXT_MS)], ""),
    "ranks with labels": (of_ranks(labelled=True), ""),
    "ranks without": (of_ranks(labelled=False), ""),
    "a clock that goes back": ([*preamble(), START, *LATE], ""),
    "ends without their other end": ([START, *blocks()[:3], *blocks()[5:9], *blocks()[9:11]], ""),
    "blocks without steps": ([*NO_STEPS, *blocks()], ""),
    "GPT-3 of Megatron-LM, with times of iterations": (megatron(), ""),
}  # fmt: skip


def shown(found: MlperfReport) -> str:
    ranks = [f"ranks: {', '.join(str(report.run.ranks) for report in found.runs)}"]
    return "\n".join([found.result, *ranks, *found.lines(), *(f"note: {note}" for note in found.notes())])


def test_reports_of_logs(reviewed) -> None:
    reviewed("report/mlperf", {case: shown(reported(*given)) for case, given in CASES.items()})


def test_the_table_is_that_of_the_guide() -> None:
    assert "".join(f"{line}\n" for line in reported(reference()).lines()) == GUIDE


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.setup)
def test_an_average_equal_to_the_target_passes(target) -> None:
    whole = round(target.seconds * 1000)
    at_most = reported([*preamble(ranks=1, batch=None), *blocks([whole] * 3)], target.setup)
    above = reported([*preamble(ranks=1, batch=None), *blocks([whole, whole, whole + 1])], target.setup)
    assert (at_most.result, above.result) == ("pass", "fail")


def test_an_unknown_target_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UnknownSetupError, match=r"There are: 1xH100, 2xH100, 8xH100\. To do: write 2xH100"):
        reported(reference(), "2xH10")


def test_the_document_has_every_number() -> None:
    found = json.loads(document({"file": "x", **reported(reference()).document()}))
    (run,) = found["runs"]
    assert [interval["ms"] for interval in run["intervals"]] == list(DURATIONS)
    assert run["average_seconds"] == 20.512
    assert (run["least_seconds"], run["most_seconds"]) == (19.945, 23.618)
    assert (run["target"]["setup"], run["target"]["seconds"], run["result"]) == ("2xH100", 21.38, "pass")
    assert (run["global_batch_size"], run["gpus"], found["result"]) == (128, 16, "pass")
    assert (run["average_steps"], run["time_to_train_seconds"]) == (100, None)


def test_the_time_to_train_ends_with_the_first_evaluation_that_meets_all_targets() -> None:
    """Not with run_stop: a job of Stable Diffusion ends at its time limit, without one."""
    later = evaluated(80, 0.2, at=END_MS + 7_200_000, step=3000)
    lines = [*reference(), *evaluated(95, 0.2), *evaluated(90, 0.15, at=END_MS + 3_600_000, step=2000), *later]
    (run,) = reported(lines).document()["runs"]
    assert run["time_to_train_seconds"] == (END_MS + 3_600_000 - FIRST_MS + 875) // 1000


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 500)), min_size=1, max_size=20))
def test_an_average_is_over_steps_whatever_the_intervals_are(parts: list[tuple[int, int]]) -> None:
    lines, first, at = [*preamble(ranks=1, batch=None), START], 0, FIRST_MS
    for ms, steps in parts:
        lines += blocks([ms], at=at, steps=steps, first=first)
        first, at = first + steps, at + ms + 22
    (report,) = reported(lines, "1xH100").runs
    assert report.average is not None
    assert report.average == pytest.approx(sum(ms for ms, _ in parts) / first / 10)
    assert min(report.seconds) - 1e-3 <= report.average <= max(report.seconds) + 1e-3


@given(
    durations=st.lists(st.integers(1, 10**7), min_size=1, max_size=30),
    noise=st.lists(st.sampled_from(["", "NCCL INFO x", "\x1b[31m", "0: loss 1", "é" * 40, "RESULT", ":::MLLO"])),
    label=st.sampled_from(["", "0: ", " 0: "]),
)
def test_events_are_read_among_other_lines(durations: list[int], noise: list[str], label: str) -> None:
    lines = [f"{label}{line}" for line in [*preamble(ranks=1), START, *blocks(durations)]]
    mixed = [part for line in lines for part in (*noise, line)]
    assert [interval.ms for interval in reported(mixed).runs[0].run.intervals] == durations


@pytest.mark.parametrize("name", ["nothing.out", "x" * 5000, "."])
def test_a_file_that_can_not_be_opened_is_an_error(name: str):
    with pytest.raises(CliError, match=r"^can't read |is a folder"):
        report(name)


def durations(found: MlperfReport, run: int = 0) -> list[int]:
    return [interval.ms for interval in found.runs[run].run.intervals]


def test_several_events_on_a_line_are_read() -> None:
    lines = [line.replace(":::MLLOG", "Deleting key model.out.0.bias :::MLLOG") + "NCCL INFO" for line in blocks()]
    assert durations(reported([*preamble(), START, *lines])) == list(DURATIONS)
    glued = "".join(blocks())
    assert durations(reported([*preamble(), START, glued])) == list(DURATIONS)


UNREADABLE = {
    "no JSON": ("Weight initialization: dict_keys([])", "has no JSON object"),
    "cut": ('{"namespace": "", "key": "block_start"', "is cut short"),
    "a list": ("[1, 2]", "has no key"),
    "no key": ('{"time_ms": 1}', "has no key"),
    "no time": ('{"key": "block_start", "value": "training_step"}', "has no time_ms"),
    "a text as time": ('{"key": "block_start", "time_ms": "1"}', "has no time_ms"),
    "a time of no year": ('{"key": "block_start", "time_ms": 1e300}', "has no time_ms"),
    "no number": ('{"key": "block_start", "time_ms": NaN}', "has no time_ms"),
    "a number too long": ('{"key": "block_start", "time_ms": ' + "9" * 5000 + "}", "is cut short"),
    "nested too deep": ('{"key": ' + "[" * 60_000, "is cut short"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_invalid_events_are_left_out_with_a_note(name: str) -> None:
    given, reason = UNREADABLE[name]
    bad = f":::MLLOG {given}"
    found = reported([bad, *preamble(), START, bad, *blocks()])
    assert durations(found) == list(DURATIONS)
    assert found.notes()[0] == f"line 1 is left out, and 1 more line: :::MLLOG {reason}"


NO_LOGS = {
    "empty": (b"", "is empty"),
    "binary": (b"\x7fELF\0\0" * 100, "is a binary file, not the text of a log"),
    "compressed": (gzip.compress(b":::MLLOG"), "is compressed: decompress it first"),
    "another log": (b"# nThread 1\n8388608 22.5\n", "has no line with :::MLLOG: it is no log of an MLPerf"),
    "no event": (b"x\n:::MLLOG hello\n", "has 1 line with :::MLLOG, and none can be read: in line 2"),
    "one long line": (b"a" * 20_000_000, "has no line with :::MLLOG"),
}


@pytest.mark.parametrize("name", NO_LOGS)
def test_a_file_that_is_no_mlperf_log_is_described(name: str) -> None:
    given, reason = NO_LOGS[name]
    with pytest.raises(NotAnMlperfLogError) as raised:
        read_report(io.BytesIO(given))
    assert str(raised.value).startswith(reason)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1" + "0" * 400, "true", '"9"', "null", "[1]"])
def test_values_that_are_no_numbers_are_left_out(value: str) -> None:
    odd = event(FIRST_MS + 1, "eval_accuracy", "HERE", step_num=1).replace('"HERE"', value)
    (report,) = reported([*reference(), odd]).runs
    assert report.run.evaluations == []


CUTS = st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 300), st.binary(max_size=20)), max_size=8)
WHOLE = text([*reference(), *preamble(at=NEXT_MS - 9000), event(NEXT_MS - 1, "run_start"), *blocks(at=NEXT_MS)])


@settings(max_examples=80)
@given(cuts=CUTS, twice=st.booleans())
def test_a_damaged_log_is_reported_or_refused(cuts: list[tuple[int, int, bytes]], twice: bool) -> None:
    damaged = WHOLE
    for at, length, new in cuts:
        damaged = damaged[:at] + new + damaged[at + length :]
    try:
        found = read_report(io.BytesIO(damaged * (1 + twice)))
    except NotAnMlperfLogError:
        return
    assert found.result in ("pass", "fail", "none", "empty")
    assert all(
        interval.ms > 0 and interval.last > interval.first for report in found.runs for interval in report.run.intervals
    )
    assert "".join([*found.lines(), *found.notes()]).isprintable()
    json.loads(document(found.document()), parse_constant=pytest.fail)
    curves, _, _ = found.curves()
    if curves:
        assert drawable(curves, x_log=False)


def test_escape_sequences_in_a_log_are_not_printed(tmp_path) -> None:
    file = tmp_path / "log"
    odd = event(FIRST_MS, "eval_accuracy", 1.5, step_num=1, metric="\x1b[2J\u202eFID")
    status = event(FIRST_MS, "status", "\x1b]0;x\x07")
    name = event(FIRST_MS, "submission_benchmark", "\x1b[1mstable\n\rdiffusion")
    file.write_bytes(text([*reference(), odd, status, name]))
    done = subprocess.run([sys.executable, "-m", "cli", "mlperf", "report", file], capture_output=True, check=False)
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"evaluation at step 1: \\x1b[2J\\u202eFID 1.5" in done.stdout
    assert rb"no time is published for \x1b[1mstable\n\x0ddiffusion." in done.stderr
    assert done.returncode == 0
