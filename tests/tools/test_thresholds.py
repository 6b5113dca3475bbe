"""The table of thresholds: every number that decides stands in it, and what was measured is of its value."""

import ast
import re
from pathlib import Path

import pytest

from lumos_df.base.kernel_cache import PACKAGE
from lumos_df.corpus.sql_folder import sql_folder
from tools.thresholds import effects, page, thresholds

NO_DECISION = {
    "advice.hooked_collectives.BUCKET_BYTES",
    "advice.hooked_collectives._SIZES",
    "advice.host_unprofiled._HALVINGS",
    "advice.kernel_calls.HALF_BYTES",
    "advice.kernel_calls.MODEL_ERROR",
    "advice.kernel_calls.SINGLE_BYTES",
    "advice.on_demand._AT_ONCE",
    "advice.ranked_advice._EIGHT_OF_TEN",
    "advice.rules.attention_precision._DIMENSIONS",
    "advice.rules.data_loader._MOST",
    "advice.rules.dense_embedding_gradient._SPARSE_TRAFFIC",
    "advice.rules.double_precision._HALF",
    "advice.rules.extra_work._NAMED",
    "advice.rules.new_sizes._NAMED",
    "advice.rules.fused_elementwise._NAMES",
    "advice.rules.gradient_precision._CAST_TRAFFIC",
    "advice.rules.gpu_silence._MOST",
    "advice.rules.host_elementwise._NAMED",
    "advice.rules.host_operator._MOST",
    "advice.rules.host_silence._MOST",
    "advice.rules.item_loop._LISTED",
    "advice.rules.kernel_precision._BYTES",
    "advice.rules.kernel_shapes._HALF",
    "advice.rules.kernel_shapes._SHAPES",
    "advice.rules.launch_bound._NAMED",
    "advice.rules.parameter_loop._NAMED",
    "advice.rules.slow_kernel._MOST",
    "advice.rules.slow_transfer._MOST",
    "advice.rules.slow_transfer._STEPS",
    "advice.rules.stall._LISTED",
    "advice.rules.stall._MOST",
    "advice.rules.synchronisation._MOST",
    "advice.rules.unfused_attention._PRODUCTS",
    "advice.rules.validation._AGAIN",
    "base.kernel_cache._UNUSED_DAYS",
    "calibrate.levenberg_marquardt._ENOUGH",
    "calibrate.levenberg_marquardt._NEAR",
    "calibrate.levenberg_marquardt._STEP",
    "calibrate.measured_kernels._BISECTIONS",
    "calibrate.measured_kernels._LARGEST_TABLE",
    "calibrate.measured_runs.GIB",
    "calibrate.nearest_shapes._AT_ONCE",
    "calibrate.population._DERIVATIVE",
    "calibrate.population._ROUNDS",
    "calibrate.scoreboard.SEEDS",
    "capture.microbenchmarks._BLOCK_S",
    "capture.microbenchmarks._COLLECTIVE_CALLS",
    "capture.microbenchmarks._FIRST_SHARE",
    "capture.microbenchmarks._LARGE_BYTES",
    "capture.microbenchmarks._LARGE_CALLS",
    "capture.microbenchmarks._MOST_CALLS",
    "capture.microbenchmarks._ROUNDS",
    "capture.publish._HEAD",
    "corpus.report._AGAIN_S",
    "corpus.staging._GROUP_BYTES",
    "corpus.summaries._TICK_S",
    "estimate.block_operators._NS",
    "estimate.search.STRETCH",
    "estimate.store._NS",
    "generate.listed_tensors._AMSGRAD",
    "generate.listed_tensors._ELEMENTS",
    "generate.listed_tensors._LARGEST",
    "generate.listed_tensors._STEPS",
    "generate.typical_gaps._MOST_STEPS",
    "graph.edges.inferred._PARTS",
    "graph.packed_keys._SPAN",
    "graph.packed_keys._TABLE",
    "graph.replay_warnings._NAMED",
    "graph.run._AT_ONCE",
    "graph.simulate.backward.FAR",
    "graph.simulate.contraction.SOURCES",
    "graph.simulate.event_candidates._ROOM",
    "graph.simulate.forward.CAME_LAST",
    "graph.simulate.forward.UNSET",
    "graph.simulate.threads._LONG",
    "graph.simulate.variants.CHANGES",
    "graph.simulate.variants.FACTORS",
    "model.kernels.attention.BACKWARD_OPERATIONS",
    "model.kernels.cost.NETWORK",
    "model.kernels.gemm.LARGEST_SPLIT",
    "model.kernels.layer_operators.ACTIVATION_BACKWARD",
    "model.kernels.ring_attention._MERGED",
    "model.kernels.ring_attention._SEEN",
    "model.kernels.state_space._SCAN_BACKWARD",
    "model.kernels.state_space._STATE_TOUCHES",
    "model.kernels.step._ALIKE",
    "model.pipeline.periods.TOLERANCE",
    "structure.annotations._DIGITS",
    "structure.axes._ROUNDS",
    "structure.axis_labels._MOST_AXES",
    "structure.axis_labels._MOST_ORDERS",
    "structure.experts._MATRICES",
    "structure.parameter_axes._MIXED_AXES",
    "structure.parameter_axes._CHANNELS",
    "structure.compute_stream._PER_HEAD",
    "structure.compute_stream._STATE_AXES",
    "structure.parallelism._SCALAR_BYTES",
    "structure.repetition._CANDIDATES",
    "structure.repetition._REACH",
    "trace.event_args._ROWS",
    "trace.execution_pairing._HEAD",
    "trace.formats._HEAD",
    "trace.formats._SHOWN",
    "trace.hlo_texts._MOST_IDS",
    "trace.intake._ENCODERS",
    "trace.intake._LARGE",
    "trace.json.header._DEEPEST",
    "trace.json.kernels.interning.FULL",
    "trace.json.kernels.interning.KEY_SLOTS",
    "trace.json.kernels.interning._QUOTE",
    "trace.json.kernels.scan.MAX_SPARSE",
    "trace.json.kernels.simd.LANES",
    "trace.json.kernels.simd.PADDING",
    "trace.json.block_scanner._MORE_TEXT",
    "trace.json.block_scanner._ROWS",
    "trace.json.file_columns._FEW",
    "trace.json.file_columns._MANY",
    "trace.json.read_ahead._BLOCKS",
    "trace.json.read_ahead._SEARCHED",
    "trace.json.reader._CHUNK",
    "trace.json.reader._LONGEST",
    "trace.json.scan_ahead._AHEAD",
    "trace.json.scan_ahead._THREADS",
    "trace.json.scanned.ARGS_PLACE",
    "trace.json.scanned.ARGS_PLACES",
    "trace.json.scanned.CLOSED",
    "trace.json.scanned.COMM_NAME",
    "trace.json.scanned.GAP_BYTES",
    "trace.json.scanned.LONGEST_NAME",
    "trace.json.scanned.PLACES",
    "trace.json.scanned.TEXT_ID",
    "trace.json.scanned.TOP_PLACE",
    "trace.json.scanned.WAYS",
    "trace.kernels.nvtx_fields._DIGITS",
    "trace.malformed._MOST_ELEMENTS",
    "trace.malformed._SHOWN",
    "trace.memory_snapshot._FRAMES",
    "trace.nsight._NO_ID",
    "trace.nvtx_payloads._HEADER",
    "trace.ranks.RANKS",
    "trace.recorded_processes.ANY",
    "trace.recorded_tables._ROWS",
    "trace.recorded_tables._SETS",
    "trace.rocprof_json._GPU",
    "trace.row_collector.LANES",
    "trace.row_collector.TID_BITS",
    "trace.sqlite_columns._ROWS",
    "trace.stored_file.MOST_COPIED",
    "trace.stored_file.MOST_IN_MEMORY",
    "trace.stored_file._BLOCK",
    "trace.stored_file._STEP",
    "trace.call_lines._MOST_PAIRS",
    "trace.plain_pickle._MOST_OF_ANY",
    "trace.plain_pickle._MOST_OF_A_BYTE",
    "trace.trace_row._LONGEST_OPTION",
    "trace.trace_row._SHA256_DIGITS",
    "trace.sources._WAITING_S",
    "trace.xplane._LANE",
    "whatif.answer.estimated_traces._COPY_BITS",
    "whatif.durations.host_operations._ELEMENT_BYTES",
    "whatif.durations.new_pages._ELEMENT_BYTES",
    "whatif.durations.interpolation._SAME_SIZE",
    "whatif.durations.kernel_times._BLOCKS",
    "whatif.durations.fused_updates._ELEMENT_BYTES",
    "whatif.durations.kernel_kind._NORM_WIDTH",
    "whatif.durations.kernel_kind._SOFTMAX_WIDTH",
    "whatif.durations.kernel_times._THREADS",
    "whatif.durations.link_laws._HUGE",
    "whatif.durations.link_laws._REFINEMENTS",
    "whatif.durations.link_laws._STEEPEST",
    "whatif.durations.link_laws._TRIES",
    "whatif.durations.modelled_gradients.BUCKET_BYTES",
    "whatif.durations.unknown_work._HEADS",
    "whatif.durations.unknown_work._HEAD_SIZE",
    "whatif.durations.modelled_gradients.FIRST_BUCKET_BYTES",
    "whatif.durations.symbols._FIRST_SIDE",
    "whatif.durations.symbols._STACKED",
    "whatif.job.extent.MOST_GROWTH",
    "whatif.job.extent.MOST_OPERATORS",
    "whatif.pipeline.staged_job._MEASURED_ERROR",
    "whatif.software_profile._BISECTIONS",
    "whatif.software_profile._ROUNDS",
}
"""Numbers that are no thresholds: bounds and sizes, codes, facts of GPUs and of PyTorch, errors that intervals are made
of, how fine something is counted, where a search or a fit stops, how long and how often something is measured, and how
much of it is told."""

PARTS = ("graph", "structure", "whatif", "trace", "calibrate", "capture", "advice", "estimate")

NUMBERS_OF_VIEWS = {*"012345678", "2.0", "4.0", "100", "100.0", "1000", "10000", "999999", "1000000", "4000000", "1e-9"}
"""Places and counts, units, operations of an element, a bound on rows, and what is taken for nothing."""
QUANTILES = {"0.5", "0.9", "0.99"}


def numbers(part: str = "", kind: type = object) -> set[str]:
    """Every constant of a part, or of all, that is one number; those with a number of one kind in them."""
    found = set()
    for file in (PACKAGE / part).rglob("*.py"):
        module = ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and is_number(node.value, kind):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                found.add(f"{module}.{ast.unparse(target)}")
    return found


def is_number(node: ast.expr, kind: type) -> bool:
    """Whether it is a number, or made of numbers alone."""
    parts = [part for part in ast.walk(node) if isinstance(part, ast.expr)]
    constants = [part for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, int | float)]
    return any(isinstance(part.value, kind) for part in constants) and all(
        part in constants or isinstance(part, ast.BinOp | ast.UnaryOp) for part in parts
    )


@pytest.mark.parametrize("part", PARTS)
def test_every_number_that_decides_is_in_the_table(part: str) -> None:
    listed = {threshold.key for threshold in thresholds() if threshold.key.startswith(f"{part}.")}
    assert numbers(part) == listed | {key for key in NO_DECISION if key.startswith(f"{part}.")}
    text = page()
    assert all(f"`{key.rpartition('.')[0].rpartition('.')[2]}.{key.rpartition('.')[2]}`" in text for key in listed)


def test_every_fraction_is_in_the_table_or_decides_nothing() -> None:
    assert numbers(kind=float) <= {threshold.key for threshold in thresholds()} | NO_DECISION


def test_no_view_decides_by_a_number_of_its_own() -> None:
    for file in sorted(sql_folder().glob("*/*.sql")):
        text = file.read_text("utf-8")
        if "\n-- Generated from " not in text:
            code = re.sub(r"--.*|'[^']*'", "", text)
            found = set(re.findall(r"(?<![\w.$])[\d.]*\d(?:e-?\d+)?(?!\w)", code))
            assert found - NUMBERS_OF_VIEWS <= (QUANTILES if "quantile_" in code else set()), file.name


def test_what_was_measured_is_of_the_values_that_hold() -> None:
    measured = {key: effect["value"] for key, effect in effects()["thresholds"].items()}
    assert measured.items() <= {threshold.key: threshold.value for threshold in thresholds()}.items()


def package(folder: Path, code: str, other: str = "") -> Path:
    root = folder / "lumos_df" / "graph"
    root.mkdir(parents=True)
    (root / "host.py").write_text(code)
    (root / "job.py").write_text(other)
    return folder / "lumos_df"


def test_a_threshold_is_read_from_its_documentation(tmp_path: Path) -> None:
    text = '"""Threshold, ns. Longer gaps\nare waits. Evidence: 3."""'
    code = f'FIVE: Final = 5\n"""Five."""\n_IDLE_NS: Final = 20_000\n{text}\n'
    (threshold,) = thresholds(package(tmp_path, code))
    assert (threshold.key, threshold.value, threshold.unit) == ("graph.host._IDLE_NS", 20_000, "ns")
    assert (threshold.meaning, threshold.evidence) == ("Longer gaps are waits.", "3.")


@pytest.mark.parametrize(
    ("code", "other", "complaint"),
    [
        ('IDLE = 5\n"""Threshold, ns. Longer gaps are waits."""', "", r"host.py:1: write a threshold as `NAME: Final"),
        ('IDLE: Final = most()\n"""Threshold, ns. Longer."""', "", r"host.py:1: write a threshold as `NAME: Final"),
        ('IDLE: Final = 5\n"""Threshold, ns."""', "", r"host.py:2: write `Threshold, UNIT. What it decides.`"),
        (
            'IDLE: Final = 5\n"""Threshold, ns. Longer."""',
            "from lumos_df.graph.host import IDLE",
            "job.py:1: import the module of the threshold IDLE",
        ),
    ],
)
def test_what_no_table_or_bench_could_use_is_named(tmp_path: Path, code: str, other: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        thresholds(package(tmp_path, code, other))
