"""Attention whose scores go through memory: what if one kernel did it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.kernel_calls import MODEL_ERROR, Call, KernelCalls
from lumos_df.advice.less_work import less_work
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.base.units import format_count, format_ns
from lumos_df.model.hardware import Hardware
from lumos_df.model.kernels.attention import attention_seconds
from lumos_df.schema.codes import GEMM, NONE, SOFTMAX
from lumos_df.schema.dtypes import PRECISIONS

_SOFTMAX: Final = re.compile(r"(?i)softmax")
_BACKWARD: Final = re.compile(r"(?i)backward")
_PRODUCTS: Final = 2
"""Products of the scores on either side of a softmax: a backward pass has two before and two after it, forward one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfusedAttention:
    """Softmaxes of one rank between products of their scores; [s]. Places are those of its `KernelCalls`."""

    softmax: NDArray[np.int64]
    """Place of the softmax."""
    between: NDArray[np.int64]
    """[b] places of the kernels between the products that go through all scores, the softmax among them."""
    of_between: NDArray[np.int64]
    """[b] to which softmax each belongs."""
    products: NDArray[np.int64]
    """[s, 4] places of the products of the scores: two before and two after, or NONE where forward has one."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose one kernel for every attention of several."""
    hardware = advised.hardware
    if hardware is None:
        return
    parts, before, after, count = [], 0.0, 0.0, 0
    for calls, unfused in zip(advised.kernel_calls, unfused_attention(advised), strict=True):
        has = unfused.products >= 0
        products = np.where(has, calls.dur[unfused.products], 0).sum(axis=1)
        whole = products + np.bincount(unfused.of_between, calls.dur[unfused.between], len(products))
        fused = _fused_ns(calls, unfused, hardware)
        gains = fused < whole
        part = np.ones(len(calls.trace))
        part[calls.row[unfused.between[gains[unfused.of_between]]]] = 0
        of_each = np.broadcast_to((fused / np.maximum(products, 1))[:, None], has.shape)
        has &= gains[:, None]
        part[calls.row[unfused.products[has]]] = of_each[has]
        parts.append(part)
        gains &= calls.in_steps[unfused.softmax]
        before, after = before + whole[gains].sum(), after + fused[gains].sum()
        count += int(np.count_nonzero(gains))
    if not count:
        return
    yield Remedy(
        rule="unfused_attention",
        what=f"attention writes its scores to memory and takes {format_ns(round(before / len(advised.steps_ns)))} "
        "a step: use scaled_dot_product_attention",
        known=Known.MODELLED,
        rests_on=f"{format_count(count, 'softmax')[:-1]}es" if count > 1 else "1 softmax",
        apply=less_work(advised, parts).apply,
        uncertainty=MODEL_ERROR * after / (before - after),
    )


def unfused_attention(advised: AdvisedJob) -> list[UnfusedAttention]:
    """Find the attentions of several kernels, rank by rank."""
    named = [rows.named(_SOFTMAX.search) for rows in advised.ranks]
    if not any(
        ((hit | (rows.family == SOFTMAX)) & rows.on_gpu).any() for hit, rows in zip(named, advised.ranks, strict=True)
    ):
        return [_none() for _ in advised.ranks]
    return [_of_rank(calls, hit) for calls, hit in zip(advised.kernel_calls, named, strict=True)]


def _none() -> UnfusedAttention:
    empty = np.empty(0, np.int64)
    return UnfusedAttention(softmax=empty, between=empty, of_between=empty, products=np.empty((0, 4), np.int64))


def _of_rank(calls: KernelCalls, named: NDArray[np.bool_]) -> UnfusedAttention:
    gemm = np.flatnonzero(calls.family == GEMM)
    elements = calls.of_calls([call.elements for call in calls.calls], 0)
    softmax = np.flatnonzero((calls.family != NONE) & (named[calls.row] | (calls.family == SOFTMAX)))
    softmax = softmax[elements[softmax] > 0]
    if not len(gemm) or not len(softmax):
        return _none()
    place = np.searchsorted(gemm, softmax)[:, None] + np.arange(-_PRODUCTS, _PRODUCTS)
    near = gemm[np.clip(place, 0, len(gemm) - 1)]
    sizes = np.array([*(_matrices(call) for call in calls.calls), (NONE,) * 3])[calls.call[near]]
    of_scores = (sizes == elements[softmax][:, None, None]).any(axis=2) & (place >= 0) & (place < len(gemm))
    of_scores &= calls.stream[near] == calls.stream[softmax][:, None]
    # The nearest of either side, and the one next to it.
    last = _PRODUCTS - 1 - np.argmax(of_scores[:, _PRODUCTS - 1 :: -1], axis=1)
    first = _PRODUCTS + np.argmax(of_scores[:, _PRODUCTS:], axis=1)
    column = np.stack((last - 1, last, first, first + 1), axis=1)
    inside = (column >= 0) & (column < 2 * _PRODUCTS)
    column = np.where(inside, column, 0)
    inside &= np.take_along_axis(of_scores, column, axis=1)
    products = np.where(inside, np.take_along_axis(near, column, axis=1), NONE)
    whole = inside[:, 1:3].all(axis=1)
    softmax, products = softmax[whole], products[whole]
    length = products[:, 2] - products[:, 1] - 1
    of_between = np.repeat(np.arange(len(softmax)), length)
    between = products[of_between, 1] + 1 + np.arange(len(of_between)) - (np.cumsum(length) - length)[of_between]
    wide = calls.bound_by_memory[between] & (elements[between] >= elements[softmax][of_between])
    return UnfusedAttention(softmax=softmax, between=between[wide], of_between=of_between[wide], products=products)


def _matrices(call: Call) -> tuple[int, int, int]:
    """Return the elements of each matrix of a batch of products, or `NONE`s."""
    return call.product.matrices if call.product and len(call.tensors[-1]) == 3 else (NONE,) * 3


def _fused_ns(calls: KernelCalls, unfused: UnfusedAttention, hardware: Hardware) -> NDArray[np.float64]:
    """Return what one kernel takes for each attention, ns [s]."""
    first = unfused.products[:, 1]
    backward = np.array([*(bool(_BACKWARD.search(call.name)) for call in calls.calls), False])
    scores = calls.of_calls([call.elements for call in calls.calls], 0)[unfused.softmax]
    key = np.stack((calls.call[first], backward[calls.call[unfused.softmax]], scores))
    distinct, inverse = np.unique(key, axis=1, return_inverse=True)
    row = hardware.row()
    times = [_attention_ns(calls.calls[call], bool(back), size, row) for call, back, size in distinct.T.tolist()]
    return np.array(times, np.float64)[inverse.reshape(-1)]


def _attention_ns(call: Call, backward: bool, scores: int, row: np.void) -> float:  # noqa: FBT001
    product = call.product
    if product is None:
        return 0.0
    precision = PRECISIONS.index(call.dtype.precision or "fp32")
    # One of the three sizes is the head's width: that which the matrix of the scores lacks.
    m, k, n = product.m, product.k, product.n
    queries, keys, width = next(
        sizes for sizes in ((m, n, k), (m, k, n), (k, n, m)) if product.batch * sizes[0] * sizes[1] == scores
    )
    seconds = attention_seconds(
        product.batch,
        queries,
        keys,
        1,
        1,
        width,
        False,  # a mask is not known to be causal
        backward,
        float(call.dtype.bytes),
        row["peak_flops"][precision],
        row["hbm_bandwidth"],
        row["sms"],
        row["attention"][precision],
    )
    return float(seconds) * 1e9
