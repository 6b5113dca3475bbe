"""Names of kernels as one says them."""

import pytest

from lumos_df.base.plain_names import plain


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*, unsigned long)",
            "ncclDevKernel_AllReduce_Sum_f16_RING_LL",
        ),
        (
            (
                "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, "
                "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)"
            ),
            "vectorized_elementwise_kernel<CUDAFunctor_add<BFloat16>>",
        ),
        (
            (
                "void at::native::unrolled<at::native::copy_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()()"
                " const::{lambda()#7}::operator()() const::{lambda(float)#1}, 4>(int, (anonymous namespace)::Thing<1>)"
            ),
            "unrolled<copy_cuda>",
        ),
        ("void (anonymous namespace)::softmax<float, float, float, (Mode)1, true>(float*, int)", "softmax<float>"),
        ("void at::native::cunn_SoftMaxForward", "cunn_SoftMaxForward"),
        ("void cut_off<float>(at::native::Something<int, flo", "cut_off<float>"),
        ("rank 2 is late: longer <built-in function sleep>", "rank 2 is late: longer sleep()"),
    ],
)
def test_a_signature_loses_its_noise(name: str, said: str) -> None:
    assert plain(name) == said


@pytest.mark.parametrize(
    "name",
    [
        "aten::mm",
        "Memset (Device)",
        "Memcpy HtoD (Pageable -> Device)",
        "torch/nn/modules/module.py(1501): _call_impl",
        "train.py(31): <lambda>",
        "host: nothing recorded, before c10d_functional::all_to_all_single",
        "volta_sgemm_128x64_tn  (84 -> 96 calls)",
    ],
)
def test_whatever_is_no_signature_is_whole(name: str) -> None:
    assert plain(name) == name
