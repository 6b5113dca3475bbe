"""Time of a kernel that memory bounds: norms, activations, residuals, optimizer updates, copies."""

from lumos_df.base.jit import lean_kernel


@lean_kernel
def elementwise_seconds(moved_bytes, hbm_bandwidth, params):
    """Return seconds of one kernel that reads and writes `moved_bytes` in all.

    The rate ramps up with size, rate = bandwidth * efficiency * b / (b + half_bytes), so the time is a straight line:
    floor + (b + half_bytes) / (bandwidth * efficiency), less what the floor already covers.

    Args:
        moved_bytes: bytes.
        hbm_bandwidth: bytes a second.
        params: float64 [MemoryParameters], in the order of that class.
    """
    seconds = (moved_bytes + params[2]) / (hbm_bandwidth * params[1])
    return max(params[0], seconds) * params[3]
