"""Reading logs of MLPerf training, and reporting them."""

import gzip
import io
import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.commands.jobs.mlperf_report import report
from cli.errors import CliError
from cluster.catalog.mlperf import TARGETS
from cluster.printable import document
from cluster.report.mlperf_log import NotAnMlperfLogError
from cluster.report.mlperf_report import MlperfReport, UnknownSetupError, report_of
from cluster.report.plot import print_plot
from tests.cluster.report.mlperf_logs import DURATIONS, FIRST_MS, GUIDE, blocks, event, gpt3, preamble, reference, text

START = event(FIRST_MS - 875, "run_start")


def reported(lines: list[str], setup: str = "") -> MlperfReport:
    return report_of(io.BytesIO(text(lines)), setup)


@pytest.mark.parametrize("setup", ["", "2xH100", "2xh100"])
def test_the_table_is_the_guides(setup: str) -> None:
    found = reported(reference(), setup)
    assert "".join(f"{line}\n" for line in found.lines()) == GUIDE
    assert found.result == "pass"
    assert found.notes() == ["the log has no end of this run: it goes on still, or was stopped"]


def test_a_run_above_the_target_fails() -> None:
    found = reported(reference(), "1xH100")
    assert found.lines()[-3] == " AVG: 20.51s > 18.16s (target for 1xH100 GPU)"
    assert found.result == "fail"
    assert found.notes()[1:] == [
        "the log has 16 GPUs, and 1xH100 has 8",
        "the log has a global batch size of 128, and 1xH100 has 64",
    ]


@pytest.mark.parametrize("target", TARGETS, ids=lambda one: one.setup)
def test_exactly_the_target_passes(target) -> None:
    whole = round(target.seconds * 1000)
    at_most = reported([*preamble(ranks=1, batch=None), *blocks([whole] * 3)], target.setup)
    above = reported([*preamble(ranks=1, batch=None), *blocks([whole, whole, whole + 1])], target.setup)
    assert (at_most.result, above.result) == ("pass", "fail")


@pytest.mark.parametrize(
    ("ranks", "batch", "setup"),
    [
        (8, 64, "1xH100"),
        (16, 128, "2xH100"),
        (64, 512, "8xH100"),
        (1, 128, "2xH100"),  # the log of one rank: its batch size is enough
        (16, None, "2xH100"),
    ],
)
def test_the_log_shows_its_target(ranks: int, batch: int | None, setup: str) -> None:
    found = reported([*preamble(ranks=ranks, batch=batch), START, *blocks()])
    assert f"(target for {setup} GPU)" in found.lines()[-3]


@pytest.mark.parametrize(
    ("ranks", "batch", "reason"),
    [
        (1, 512, "the set-up is not clear from the log (unknown GPUs, global batch size 512); name it: -g 1xH100|"),
        (256, 512, "no time is published for this set-up (256 GPUs, global batch size 512)"),
        (4, 32, "no time is published for this set-up (4 GPUs, global batch size 32)"),
        (1, None, "the log does not have the batch size, nor the number of GPUs; name it: -g 1xH100|2xH100|8xH100"),
    ],
)
def test_without_a_clear_target_there_is_none(ranks: int, batch: int | None, reason: str) -> None:
    found = reported([*preamble(ranks=ranks, batch=batch), START, *blocks()])
    assert found.lines()[-3] == " AVG: 20.51s"
    assert found.result == "none"
    assert any(note.startswith(reason) for note in found.notes())


def test_lightning_says_how_many_gpus_there_are() -> None:
    members = [f"Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {rank + 1}/64" for rank in (3, 0)]
    found = reported([*preamble(ranks=1, batch=512), *members, START, *blocks()])
    assert found.log.runs[0].ranks == 64
    assert "(target for 8xH100 GPU)" in found.lines()[-3]


def test_an_unknown_target_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UnknownSetupError, match=r"There are: 1xH100, 2xH100, 8xH100\. To do: write 2xH100"):
        reported(reference(), "2xH10")


def test_intervals_of_other_lengths_are_compared_for_100_steps() -> None:
    found = reported([*preamble(), START, *blocks([10_000, 10_500], steps=50)])
    assert found.lines()[2].endswith("|      0-50     |  10.00s (10000ms)")
    assert found.lines()[-3] == " AVG: 20.50s <= 21.38s (target for 2xH100 GPU)"
    assert "intervals have 50 steps: AVG is for 100 steps, as the target is" in found.notes()


def test_the_end_and_the_quality_of_a_run_are_shown() -> None:
    end = FIRST_MS + 400_000
    lines = [
        *reference(),
        event(end, "eval_accuracy", 89.5, step_num=1000, metric="FID"),
        event(end, "eval_accuracy", 0.1501, step_num=1000, metric="CLIP"),
        event(end, "run_stop"),
        event(end, "status", "success"),
        *["RESULT,stable_diffusion,11512,root,2024-07-05 07:11:17 AM"] * 16,
    ]
    found = reported(lines)
    assert "".join(f"{line}\n" for line in found.lines()[:-3]) == GUIDE
    assert found.lines()[-3:] == [
        " evaluation at step 1000: FID 89.5",
        " evaluation at step 1000: CLIP 0.1501",
        " end of the run: success in 3:11:52",
    ]
    assert found.notes() == []


def test_gpt3_has_intervals_but_no_target() -> None:
    log = gpt3(
        {"batch": 2048, "sequence": 2048, "steps": 12, "ms": 60_000}, evaluations=[2.75, 2.71, 2.69], status="success"
    )
    found = reported(log)
    assert found.lines() == [
        " interval |     steps     |     duration     ",
        "----------+---------------+-------------------",
        "        1 |      0-12     |  60.00s (60000ms)",
        "        2 |     12-24     |  60.00s (60000ms)",
        "        3 |     24-36     |  60.00s (60000ms)",
        "----------+---------------+-------------------",
        " AVG: 60.00s",
        " min: 60.00s",
        " max: 60.00s",
        " evaluation at step 12: log perplexity 2.75",
        " evaluation at step 24: log perplexity 2.71",
        " evaluation at step 36: log perplexity 2.69",
        " throughput: 838861 a second, on average over 3 values of the log",
        " end of the run: success",
    ]
    assert "no time is published for GPT-3" in found.notes()
    assert "line 5 is left out: :::MLLOG has no JSON object" in found.notes()
    assert found.result == "none"


def test_gpt3_of_megatron_has_times_of_iterations() -> None:
    """Its events have one block for all of training, without the steps at its end."""
    batch, sequence = 1536, 2048
    lines = [
        event(FIRST_MS, "init_start"),
        event(FIRST_MS, "submission_platform", "GA100-64"),
        event(FIRST_MS, "submission_benchmark", "gpt3"),
        event(FIRST_MS, "global_batch_size", batch),
        event(FIRST_MS, "max_sequence_length", sequence),
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
        "RESULT,gpt3,1800,alice,2026-11-22 09:00:00 AM",
    ]
    found = reported([f"{63 if 'iteration' in line else 0:2d}: {line}" for line in lines])
    assert found.log.runs[0].ranks == 64
    assert found.lines()[2:4] == [
        f"        1 |   4000-4016   | 800.14s ({16 * 50_000 + sum(range(1, 17))}ms)",
        f"        2 |   4016-4032   | 800.39s ({16 * 50_000 + sum(range(17, 33))}ms)",
    ]
    assert found.lines()[-1] == " end of the run: aborted in 0:30:00"
    assert "intervals are sums of 16 times that Megatron-LM wrote for its iterations" in found.notes()


def newer(benchmark: str, *lines: str, batch: int = 16, ranks: int = 1) -> list[str]:
    """A log as submissions have them: what comes before training, then these lines."""
    starts = [event(FIRST_MS - 9000, "init_start") for _ in range(ranks)]
    before = [event(FIRST_MS - 9000, "submission_benchmark", benchmark), *starts]
    before += [event(FIRST_MS - 8000, "global_batch_size", batch), event(FIRST_MS - 1, "run_start")]
    return [*before, *lines]


@pytest.mark.parametrize("named_by_start", [False, True])
def test_a_log_with_samples_alone_has_steps(named_by_start: bool) -> None:
    """A stop has what was trained by then; in some logs of 5.0 it has what its start has."""
    lines: list[str] = []
    for number, samples in enumerate((0, 1920, 2304)):
        at, end = FIRST_MS + 100_000 * number, (1920, 2304, 2688)[number]
        lines += [
            event(at, "block_start", samples_count=samples),
            event(at + 10_000, "block_stop", samples_count=samples if named_by_start else end),
            event(at + 10_000, "eval_start", samples_count=end),
            event(at + 90_000, "eval_accuracy", 0.93, samples_count=end),
        ]
    found = reported(newer("llama2_70b_lora", *lines, event(FIRST_MS + 300_000, "run_stop", status="success")))
    assert [one[:3] for one in found.log.runs[0].intervals] == [
        (0, 120, 10_000),
        (120, 144, 10_000),
        (144, 168, 10_000),
    ]
    assert found.lines()[-2] == " evaluation at step 168: eval loss 0.93"


def test_a_log_without_blocks_has_what_was_trained_between_evaluations() -> None:
    lines = [event(FIRST_MS, "epoch_start", epoch_num=0)]
    for number in range(1, 4):
        at = FIRST_MS + 10_000 * number
        lines += [
            event(at - 3000, "eval_start", epoch_num=0.05 * number),
            event(at, "eval_accuracy", 0.8, epoch_num=0.05 * number),
        ]
    found = reported(newer("dlrm_dcnv2", *lines))
    assert [one.ms for one in found.log.runs[0].intervals] == [7001, 7000, 7000]
    assert found.lines()[0] == " interval |    epochs     |     duration     "
    assert found.lines()[3] == "        2 |   0.05-0.10   |   7.00s (7000ms)"
    assert " evaluation at epoch 0.15: AUC 0.8" in found.lines()
    assert "intervals are the training between evaluations: the log has no blocks of steps" in found.notes()


def test_a_log_of_epochs_leaves_out_the_one_that_the_end_cut_off() -> None:
    lines: list[str] = []
    for number, ms in enumerate((50_000, 49_000, 48_000, 4000)):
        at = FIRST_MS + 50_000 * number
        lines += [
            event(at, "epoch_start", number, epoch_num=number), event(at + ms, "epoch_stop", number, epoch_num=number),
            event(at + ms, "eval_start", number + 1, epoch_num=number + 1),
        ]  # fmt: skip
    lines[-1] = event(FIRST_MS + 154_000, "run_stop", status="success")
    found = reported(newer("retinanet", *lines))
    assert [one[:3] for one in found.log.runs[0].intervals] == [(0, 1, 50_000), (1, 2, 49_000), (2, 3, 48_000)]


def test_init_start_alone_counts_ranks() -> None:
    lines = newer("llama31_405b", *(event(FIRST_MS - 9500, "cache_clear", True) for _ in range(72)), ranks=64)
    assert reported(lines).log.runs[0].ranks == 64
    assert (
        reported(newer("retinanet", *(event(FIRST_MS, "cache_clear", True) for _ in range(18)))).log.runs[0].ranks
        is None
    )


def test_the_document_has_every_number() -> None:
    found = json.loads(document({"file": "x", **reported(reference()).document()}))
    (run,) = found["runs"]
    assert [one["ms"] for one in run["intervals"]] == list(DURATIONS)
    assert run["average_seconds"] == 20.512
    assert (run["least_seconds"], run["most_seconds"]) == (19.945, 23.618)
    assert (run["target"]["setup"], run["target"]["seconds"], run["result"]) == ("2xH100", 21.38, "pass")
    assert (run["global_batch_size"], run["gpus"], found["result"]) == (128, 16, "pass")


@given(
    durations=st.lists(st.integers(1, 10**7), min_size=1, max_size=30),
    noise=st.lists(st.sampled_from(["", "NCCL INFO x", "\x1b[31m", "0: loss 1", "é" * 40, "RESULT", ":::MLLO"])),
    label=st.sampled_from(["", "0: ", " 0: "]),
)
def test_what_was_written_is_read_whatever_stands_between(durations: list[int], noise: list[str], label: str) -> None:
    lines = [f"{label}{line}" for line in [*preamble(ranks=1), START, *blocks(durations)]]
    mixed = [one for line in lines for one in (*noise, line)]
    assert [one.ms for one in reported(mixed).log.runs[0].intervals] == durations


@pytest.mark.parametrize("name", ["nothing.out", "x" * 5000, "."])
def test_what_can_not_be_opened_is_an_error(name: str):
    with pytest.raises(CliError, match=r"^can't read |is a folder"):
        report(name)


NEXT_MS = FIRST_MS + 3_600_000


def durations(found: MlperfReport, run: int = 0) -> list[int]:
    return [one.ms for one in found.log.runs[run].intervals]


def test_a_log_cut_within_a_block_says_where() -> None:
    lines = [*preamble(), START, *blocks()][:-1]
    found = reported(lines)
    assert durations(found) == list(DURATIONS[:-1])
    line = next(number for number, one in enumerate(lines, 1) if '"step_num": 900' in one and "block_start" in one)
    assert f"the log ends within a block: line {line} starts it at 900, and no block_stop follows" in found.notes()


def test_a_log_cut_within_a_line_says_where() -> None:
    whole = text([*preamble(), START, *blocks()])
    found = report_of(io.BytesIO(whole[:-40]))
    assert durations(found) == list(DURATIONS[:-1])
    assert found.notes()[0] == f"line {len(whole.splitlines())} is left out: :::MLLOG is cut short"


def test_a_run_that_stopped_before_its_training_fails() -> None:
    found = reported([*preamble(), START])
    assert found.lines() == [" no training steps"]
    assert found.result == "empty"


def test_two_runs_in_one_file_are_reported_each_and_the_last_one_counts() -> None:
    again = preamble(at=NEXT_MS - 176_000)
    found = reported([*reference(), *again, event(NEXT_MS - 875, "run_start"), *blocks([22_000] * 3, at=NEXT_MS)])
    assert [len(run.intervals) for run in found.log.runs] == [10, 3]
    assert [run.ranks for run in found.log.runs] == [16, 16]
    assert [one.result for one in found.comparisons if one] == ["pass", "fail"]
    assert found.result == "fail"
    lines = found.lines()
    assert lines[0] == "Run 1 of 2: Stable Diffusion, from line 2, 2024-07-05 07:11:23 UTC"
    assert "".join(f"{line}\n" for line in lines[1:17]) == GUIDE
    assert lines[18].startswith("Run 2 of 2: Stable Diffusion, from line ")
    assert found.notes()[-1] == "run 2: the log has no end of this run: it goes on still, or was stopped"
    assert [one.name for one in found.curves()[0]] == ["run 1", "run 2", "target for 2xH100"]


def test_a_run_begins_where_the_steps_begin_again() -> None:
    """Only the training was kept of both."""
    found = reported([*blocks(DURATIONS[:3]), *blocks(DURATIONS[3:6], at=NEXT_MS)])
    assert [durations(found, run) for run in (0, 1)] == [list(DURATIONS[:3]), list(DURATIONS[3:6])]


@pytest.mark.parametrize("labelled", [True, False])
def test_events_of_several_ranks_count_once(labelled: bool) -> None:
    lines = [*preamble(ranks=1), START]
    for line in blocks():
        lines += [f"{rank}: {_later(line, rank)}" if labelled else _later(line, rank) for rank in range(4)]
    found = reported(lines)
    assert durations(found) == list(DURATIONS)
    whose = "of task 0" if labelled else "of the first rank"
    assert f"several ranks wrote blocks: those {whose} count, 60 others are left out" in found.notes()


def _later(line: str, rank: int) -> str:
    """An event of another rank, some milliseconds later."""
    one = json.loads(line.removeprefix(":::MLLOG "))
    return f":::MLLOG {json.dumps({**one, 'time_ms': one['time_ms'] + 7 * rank})}"


def test_ranks_that_write_into_each_others_lines() -> None:
    lines = [line.replace(":::MLLOG", "Deleting key model.out.0.bias :::MLLOG") + "NCCL INFO" for line in blocks()]
    assert durations(reported([*preamble(), START, *lines])) == list(DURATIONS)
    glued = "".join(blocks())
    assert durations(reported([*preamble(), START, glued])) == list(DURATIONS)


def test_a_clock_that_goes_back_leaves_its_block_out() -> None:
    lines = [*blocks(DURATIONS[:2]), *blocks([-5000], at=FIRST_MS + 44_198, first=200), *blocks([20_000], first=300)]
    found = reported([*preamble(), START, *lines])
    assert durations(found) == [*DURATIONS[:2], 20_000]
    assert any("time goes back between line" in note and "block 200-300 is left out" in note for note in found.notes())


def test_ends_without_their_other_end_are_named() -> None:
    lines = blocks()
    found = reported([START, *lines[:3], *lines[5:9], *lines[9:11]])
    notes = "\n".join(found.notes())
    assert durations(found) == [DURATIONS[0], DURATIONS[2]]
    assert "line 5 stops a block at 200 that has no block_start" in notes
    assert "line 9 starts it at 300, and no block_stop follows" in notes


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
def test_events_that_cant_be_read_are_left_out_and_named(name: str) -> None:
    given, reason = UNREADABLE[name]
    bad = f":::MLLOG {given}"
    found = reported([bad, *preamble(), START, bad, *blocks()])
    assert durations(found) == list(DURATIONS)
    assert found.notes()[0] == f"line 1 is left out, and 1 more lines: :::MLLOG {reason}"


def test_blocks_without_steps_are_left_out_and_named() -> None:
    odd = [event(FIRST_MS, "block_start", "training_step", step_num=value) for value in (None, "1", True, -1)]
    found = reported([*odd, *blocks()])
    assert durations(found) == list(DURATIONS)
    assert "line 1 has no step: 4 such events are left out" in found.notes()


NO_LOGS = {
    "empty": (b"", "is empty"),
    "binary": (b"\x7fELF\0\0" * 100, "is a binary file, not the text of a log"),
    "compressed": (gzip.compress(b":::MLLOG"), "is compressed: decompress it first"),
    "another log": (b"# nThread 1\n8388608 22.5\n", "has no line with :::MLLOG: it is no log of an MLPerf"),
    "no event": (b"x\n:::MLLOG hello\n", "has 1 lines with :::MLLOG, and none can be read: in line 2"),
    "one long line": (b"a" * 20_000_000, "has no line with :::MLLOG"),
}


@pytest.mark.parametrize("name", NO_LOGS)
def test_what_is_no_log_is_refused_with_what_it_is(name: str) -> None:
    given, reason = NO_LOGS[name]
    with pytest.raises(NotAnMlperfLogError) as raised:
        report_of(io.BytesIO(given))
    assert str(raised.value).startswith(reason)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1" + "0" * 400, "true", '"9"', "null", "[1]"])
def test_values_that_are_no_numbers_are_left_out(value: str) -> None:
    odd = event(FIRST_MS + 1, "eval_accuracy", "HERE", step_num=1).replace('"HERE"', value)
    stats = event(FIRST_MS + 1, "tracked_stats", {"throughput": "HERE"}).replace('"HERE"', value)
    (run,) = reported([*reference(), odd, stats]).log.runs
    assert (run.evaluations, run.throughput) == ((), ())


CUTS = st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 300), st.binary(max_size=20)), max_size=8)
WHOLE = text([*reference(), *preamble(at=NEXT_MS - 9000), event(NEXT_MS - 1, "run_start"), *blocks(at=NEXT_MS)])


@settings(max_examples=80)
@given(cuts=CUTS, twice=st.booleans())
def test_a_damaged_log_is_reported_or_refused(cuts: list[tuple[int, int, bytes]], twice: bool) -> None:
    damaged = WHOLE
    for at, length, new in cuts:
        damaged = damaged[:at] + new + damaged[at + length :]
    try:
        found = report_of(io.BytesIO(damaged * (1 + twice)))
    except NotAnMlperfLogError:
        return
    assert found.result in ("pass", "fail", "none", "empty")
    assert all(one.ms > 0 and one.last > one.first for run in found.comparisons if run for one in run.intervals)
    assert "".join(found.lines() + found.notes()).isprintable()
    json.loads(document(found.document()), parse_constant=pytest.fail)
    curves, _, _ = found.curves()
    if curves:
        print_plot(curves)


def test_what_others_wrote_cant_act_on_the_terminal(tmp_path) -> None:
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
