"""Where a step's time went: every instant once, by the name of what ran. Times in nanoseconds, worked out by hand."""

from __future__ import annotations

import pytest

from harness.trial.breakdown import breakdown, category_of
from harness.trial.profile import Profile, Span

MS = 1_000_000


def kernel(name: str, start: int, end: int, *, stream: int = 7, operator: str = "") -> Span:
    return Span(name, start * MS, end * MS, True, stream, operator)


def note(name: str, start: int, end: int) -> Span:
    return Span(name, start * MS, end * MS, True, 7, "", True)


def host(name: str, start: int, end: int, *, note: bool = False) -> Span:
    return Span(name, start * MS, end * MS, False, 1, "", note)


def of(*spans: Span, step: float = 0.1, wall: float = 0.1) -> dict[str, float]:
    """Milliseconds by category, those that are not zero."""
    ordered = tuple(sorted(spans, key=lambda span: (span.start, -span.end)))
    found = breakdown(Profile(spans=ordered, wall_seconds=wall), step)["seconds"]
    return {name: round(1000 * seconds, 6) for name, seconds in found.items() if seconds}


def test_kernels_by_name_and_the_rest_of_the_step_idle() -> None:
    found = of(
        kernel("nvjet_tst_128x256_64x4", 0, 40),
        kernel("void pytorch_flash::flash_fwd_kernel<...>", 40, 50),
        kernel("void at::native::vectorized_elementwise_kernel<4, GeluCUDA>", 50, 55),
        kernel("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>", 60, 80),
        kernel("Memcpy HtoD (Pinned -> Device)", 80, 85),
        kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 85, 88),
    )
    assert found == {
        "matrix_products": 40, "attention": 10, "elementwise_and_norms": 5, "optimizer": 20, "copies": 5,
        "communication": 3, "idle": 17,
    }  # fmt: skip


def test_an_instant_counts_once_and_for_what_computes() -> None:
    """Communication beside a product costs only what it goes on alone; a copy under both costs nothing."""
    found = of(
        kernel("sm90_xmma_gemm_bf16", 0, 50),
        kernel("ncclDevKernel_AllGather_RING_LL", 30, 70, stream=20),
        kernel("Memcpy HtoD (Pinned -> Device)", 10, 60, stream=21),
    )
    assert found == {"matrix_products": 50, "communication": 20, "idle": 30}


def test_the_same_product_is_attention_where_a_batched_one_launched_it() -> None:
    assert category_of("nvjet_tst_64x64", "aten::bmm") == "attention"
    assert category_of("nvjet_tst_64x64", "aten::addmm") == "matrix_products"
    assert category_of("cunn_SoftMaxForward<LogSoftMaxForward>", "aten::_log_softmax") == "elementwise_and_norms"
    assert category_of("softmax_warp_forward", "aten::_softmax") == "attention"
    fused = "triton_red_fused__scaled_dot_product_flash_attention_backward_mm_native_layer_norm_4"
    assert category_of(fused) == "elementwise_and_norms"
    assert category_of("triton_tem_fused_addmm_0") == "matrix_products"


def test_whatever_runs_in_the_optimizers_step_is_the_optimizers() -> None:
    """AdamW in a loop is made of the same elementwise kernels as the model."""
    found = of(
        note("Optimizer.step#AdamW.step", 50, 90),
        kernel("vectorized_elementwise_kernel", 0, 20),
        kernel("vectorized_elementwise_kernel", 50, 70),
        kernel("vectorized_elementwise_kernel", 75, 90),
    )
    assert found == {"elementwise_and_norms": 20, "optimizer": 35, "idle": 45}


#: How FSDP gathers parameters and scatters gradients: into a buffer, over the wire, out of a buffer.
_MULTI_TENSOR = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
_COPY_IN = (
    f"{_MULTI_TENSOR}TensorListMetadata<2>, at::native::(anonymous namespace)::CopyFunctor<float, c10::BFloat16, 2, 1, "
    "1>, at::native::Copy<float, c10::BFloat16> >"
)
_COPY_OUT = "void at::native::(anonymous namespace)::split_with_sizes_copy_out_contiguous_no_cast_kernel(char**)"
_CHUNK_CAT = "void at::native::(anonymous namespace)::chunk_cat_cuda_kernel<float, c10::BFloat16>"
_ADAM = f"{_MULTI_TENSOR}FusedOptimizerTensorListMetadata<4>, at::native::FusedAdamMathFunctor<float, 4> >"


def test_copies_of_many_tensors_are_the_optimizers_in_its_step_alone() -> None:
    """Each rank of FSDP lays its shards into the buffer that is gathered with `torch._foreach_copy_`."""
    found = of(
        note("Optimizer.step#AdamW.step", 60, 90),
        kernel(_COPY_IN, 0, 10, operator="aten::_foreach_copy_"),
        kernel("ncclDevKernel_AllGather_RING_LL", 10, 20, stream=20, operator="c10d::_allgather_base_"),
        kernel(_COPY_OUT, 20, 25, operator="aten::split_with_sizes_copy"),
        kernel(_CHUNK_CAT, 30, 34, operator="aten::_chunk_cat"),
        kernel(_ADAM, 60, 80, operator="aten::_fused_adamw_"),
        kernel(_COPY_IN, 80, 85, operator="aten::_foreach_copy_"),
    )
    assert found == {"copies": 19, "communication": 10, "optimizer": 25, "idle": 46}
    assert category_of(_ADAM) == "optimizer", "where the optimizer's step bears no name"


def test_on_a_host_an_operator_counts_what_it_spends_itself() -> None:
    found = of(
        host("aten::linear", 0, 40), host("aten::t", 0, 4), host("aten::addmm", 5, 38),
        host("aten::scaled_dot_product_attention", 40, 60), host("aten::add", 45, 50),
        host("Optimizer.step#AdamW.step", 60, 80, note=True), host("aten::mul_", 62, 70),
        host("aten::gelu", 80, 90),
    )  # fmt: skip
    # linear 40 less 4 of its transpose; what attention and the optimizer call is theirs
    assert found == {"matrix_products": 36, "attention": 20, "optimizer": 20, "elementwise_and_norms": 14, "idle": 10}


def test_on_a_host_the_slower_profiled_step_is_scaled_to_the_measured_one() -> None:
    found = breakdown(Profile(spans=(host("aten::mm", 0, 150),), wall_seconds=0.2), 0.1)
    assert found["seconds"]["matrix_products"] == pytest.approx(0.075)
    assert found["seconds"]["idle"] == pytest.approx(0.025)
    assert found["profiled_seconds"] == 0.2


def test_a_gpu_is_busy_for_as_long_as_something_runs_on_it_however_slow_the_profiled_host_was() -> None:
    kernels = (kernel("sm90_xmma_gemm_bf16", 0, 40), kernel("Memcpy HtoD (Pinned -> Device)", 30, 50, stream=21))
    found = breakdown(Profile(spans=kernels, wall_seconds=0.2), 0.1)
    assert (found["measured_on"], found["profiled_seconds"]) == ("gpu", pytest.approx(0.05))
    assert found["seconds"]["matrix_products"] == pytest.approx(0.04), "not scaled: kernels take their own time"


def test_the_parts_say_where_they_are_more_than_the_measured_step() -> None:
    spans = (kernel("gemm", 0, 120),)
    assert breakdown(Profile(spans=spans), 0.1)["sum_over_step"] == pytest.approx(1.2)
    assert breakdown(Profile(spans=spans), 0.13)["sum_over_step"] == pytest.approx(1.0)
    assert breakdown(Profile(spans=spans), 0.13)["measured_on"] == "gpu"


def test_a_profile_without_anything() -> None:
    assert of(wall=0.0) == {"idle": 100}
