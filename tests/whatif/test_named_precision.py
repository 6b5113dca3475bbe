"""The precision in which a kernel multiplies, by its name, before a change and after it."""

import pytest

from lumos_df.model.hardware import Hardware
from lumos_df.model.kernels.attention import OVERHEAD_KEYS
from lumos_df.schema.dtypes import BF16, FP4, FP8, FP16, FP32, PRECISION_TABLE
from lumos_df.whatif.durations.named_precision import machines
from lumos_df.whatif.job.recorded_gpu import Machine

TF32 = -1


def machine(name: str, precision: int) -> Machine:
    """Return a GPU that multiplies a precision."""
    return Machine.of(Hardware.read(name), PRECISION_TABLE[precision])


def peak(machine: Machine) -> float:
    """Return its operations a second."""
    return float(machine.row["peak_flops"][machine.precision])


def peak_of(name: str, precision: int) -> float:
    """Return the peak of a GPU; TF32 has half of that of 16 bits."""
    return peak(machine(name, BF16)) / 2 if precision == TF32 else peak(machine(name, precision))


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("ampere_sgemm_128x64_nn", FP32),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8", FP32),
        ("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true>", FP32),
        ("cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x4_nn_align1>", TF32),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32", TF32),
        ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", FP16),
        ("volta_h884gemm_64x64_ldg8_nn", FP16),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", BF16),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", BF16),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT", FP16),
        ("nvjet_qqtst_128x128_128x4_1x2_h_bz_coopA_TNT", FP8),
        # From Blackwell on names hold the generation in front.
        ("nvjet_sm100_tst_256x128_64x5_2x2_2cta_h_bz_TNT", BF16),
        ("nvjet_sm103_tss_128x256_64x6_2x1_2cta_v_bz_NNT", BF16),
        ("nvjet_sm100_hsh_128x256_64x6_2x1_2cta_v_bz_TNT", FP16),
        ("nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_v_bz_bias_TNT", FP8),
        ("nvjet_sm100_sss_128x128_32x6_2x1_2cta_v_bz_TNT", TF32),
        ("Cijk_Ailk_Bljk_BBS_BH_MT128x128x32", BF16),
        ("Cijk_Alik_Bljk_BBH_MT64x64x32", BF16),
        ("Cijk_Ailk_Bjlk_HBH_MT128x256x32", FP16),
        ("Cijk_Alik_Bljk_HHS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64", FP16),
        ("Cijk_Ailk_Bljk_SB_MT64x64x16", FP32),
        ("Cijk_Alik_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT16x16x64", FP32),
        ("Cijk_Alik_Bljk_S_MX_B_UserArgs_MT128x160x64_MI16x16x1", TF32),
        ("Custom_Cijk_Alik_Bljk_F8BS_BH_MT64x64x512", FP8),
        ("Cijk_Alik_Bljk_B8F8SS_BH_BiasS_HAS_SAB_SAV_UserArgs", FP8),
        # A name that tells nothing: the job's.
        ("my_product", FP8),
    ],
)
def test_names_of_products_tell_their_precision(name: str, precision: int) -> None:
    was, will = machines(name, machine("h100-sxm", FP8), machine("b200", FP8))
    assert (peak(was), peak(will)) == (peak_of("h100-sxm", precision), peak_of("b200", precision))


@pytest.mark.parametrize(
    "name",
    [
        "nvjet_sm100_ootst_128x128_256x7_4x1_2cta_v_bz_Avec16UE4M3_Bvec16UE4M3_TNT",
        "cutlass3x_sm100_bstensorop_s256x128x64gemm_block_scaled_ue4m3xe2m1_ue4m3xe2m1_f32_bf16_bf16",
    ],
)
def test_products_of_4_bits_are_not_of_the_8_of_their_scales(name: str) -> None:
    was, will = machines(name, machine("b200", BF16), machine("h100-sxm", BF16))
    assert (was.precision, will.precision) == (FP4, FP16)


def test_a_product_of_the_jobs_width_takes_the_new_type_and_others_keep_theirs() -> None:
    old, new = machine("h100-sxm", FP16), machine("h100-sxm", FP8)
    for name in ("hgemm", "bf16_gemm", "my_product"):
        assert machines(name, old, new)[1] is new
    was, will = machines("sgemm", old, new)
    assert was.precision == will.precision == FP32


def test_a_gpu_without_the_precision_multiplies_16_bits() -> None:
    was, will = machines("e4m3_gemm", machine("h100-sxm", BF16), machine("a100-sxm-80", BF16))
    assert (was.precision, will.precision) == (FP8, FP16)


def test_attention_starts_its_tiles_as_the_program_does_that_was_measured() -> None:
    """An A100's kernels start a tile in a tenth of the keys that an H100's best ones take: few keys are as many."""
    old, new = machine("a100-sxm-80", BF16), machine("h100-sxm", BF16)
    was, will = machines("flash_fwd_kernel", old, new)
    rows = [each.row["attention"][0, OVERHEAD_KEYS] for each in (was, will, new)]
    assert rows[0] == rows[1] < 0.2 * rows[2]
    assert (
        machines("flash_fwd_kernel", old, machine("a100-sxm-80", FP16))[1].row["attention"][0, OVERHEAD_KEYS] == rows[0]
    )
