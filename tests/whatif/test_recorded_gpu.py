"""The GPU of a recording, where its trace does not say what it multiplies."""

import pytest

from lumos_df.model.hardware import Hardware
from lumos_df.whatif.job.recorded_gpu import Machine, usual_precision


@pytest.mark.parametrize(("hardware", "dtype"), [("h100-sxm", "float16"), ("tpu-v5p", "bfloat16")])
def test_a_job_that_does_not_tell_multiplies_16_bits_that_its_gpu_has(hardware: str, dtype: str) -> None:
    machine = Hardware.read(hardware)
    assert usual_precision(machine).dtype == dtype
    assert Machine.of(machine, usual_precision(machine)).element_bytes == 2
