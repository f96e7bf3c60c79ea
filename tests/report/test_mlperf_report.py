"""Reports of MLPerf logs that are as they should be: the guide's table, targets, other benchmarks, plots."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.commands.jobs.mlperf_report import report
from cli.errors import CliError
from cluster.catalog.mlperf import TARGETS
from cluster.printable import document
from cluster.report.mlperf_report import MlperfReport, UnknownSetupError, report_of
from cluster.report.plot import save_png
from tests.report.mlperf_logs import DURATIONS, FIRST_MS, GUIDE, blocks, event, gpt3, preamble, reference, text

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


def test_the_plot_has_the_target_beside_the_run(tmp_path) -> None:
    curves, x_label, y_label = reported(reference()).curves()
    assert [one.name for one in curves] == ["this run", "target for 2xH100"]
    assert curves[0].points[0] == pytest.approx((100, 23.618))
    assert curves[1].points == [(100, 21.38), (1000, 21.38)]
    assert (x_label, y_label) == ("training steps", "seconds for 100 steps")
    save_png(curves, tmp_path / "plot.png", title="t")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


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
