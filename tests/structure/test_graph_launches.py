"""Steps that a CUDA graph launches whole, of whose kernels nothing but names and order is recorded."""

from pathlib import Path

import pytest

from lumos_df.graph.job import groups
from lumos_df.structure import labelled_rows
from lumos_df.structure.layers import understand
from tests.trace.literal import annotation, corpus_of, kernel, x

BLOCK = ("layer_norm_kernel", "ampere_sgemm_128x64_tn", "flash_fwd_kernel", "ampere_sgemm_64x64_tn", "add_kernel")
NO_BLOCK = (
    "cudnn_convolve_3", "batch_norm_kernel", "relu_kernel", "cudnn_convolve_7", "max_pool_kernel",
    "ampere_sgemm_32x32_tn", "softmax_warp_forward", "nll_loss_kernel", "sum_kernel", "adam_kernel",
)  # fmt: skip


@pytest.mark.parametrize(
    ("net", "kind", "layers"), [(("embed", *BLOCK * 3, "softmax"), "transformer", 3), (NO_BLOCK, "convolutional", 0)]
)
def test_a_step_that_is_launched_again_is_no_layer(
    tmp_path: Path, net: tuple[str, ...], kind: str, layers: int
) -> None:
    """The host launches ahead: at the first mark the GPU still runs the step before, which is in no marked one."""
    events = []
    for step in range(5):
        if step:
            call = x("cudaGraphLaunch", "cuda_runtime", 50 * step + 5, 20, correlation=step + 1)
            events += [annotation(f"ProfilerStep#{step}", 50 * step, 40), call]
        events += [
            kernel(name, 300 + 1000 * step + 10 * place, 9, correlation=step + 1) for place, name in enumerate(net)
        ]
    corpus_of(tmp_path, events)
    ((trace_id,),) = groups(tmp_path / "corpus")
    found = understand(labelled_rows.load(tmp_path / "corpus", trace_id))
    assert (found.kind, found.layers) == (kind, layers)
