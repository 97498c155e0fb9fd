"""Every CTA of a cluster gets the same block of memory, and each reads only its share of it from global memory.

CTA r copies part r of the block into all CTAs of the cluster at once (multicast): four CTAs, a quarter of the traffic.
"""
from __future__ import annotations

import numpy as np

from ptxkit import Ptr, cluster_ctarank, clusterid, ctaid, device_array, if_, kernel, smem, tid
from ptxkit.idioms import cluster_sync, multicast_mask, wait
from ptxkit.ptx import cp, fence, ld, mbarrier, mov, st
from ptxkit.runtime import driver
from ptxkit.types import u32

CLUSTER = 4
PART = 256                                           # elements that one CTA reads for all
BLOCK = CLUSTER * PART

copy = cp.async_.bulk.shared__cluster.global_.mbarrier__complete_tx__bytes.multicast__cluster


@kernel(block=PART, cluster=CLUSTER)
def broadcast(source: Ptr[u32], target: Ptr[u32]) -> None:
    """full: 1 arrival, this CTA's arrive.expect_tx of the whole block; the parts come from all CTAs of the cluster."""
    block = smem.array(u32, BLOCK, align=128, name="block")
    full = smem.mbarrier(1, name="full")
    thread, rank = mov.u32(tid.x), mov.u32(cluster_ctarank)
    with if_(thread == 0):
        mbarrier.init.shared__cta.b64(full[0], 1)
        mbarrier.arrive.expect_tx.shared__cta.b64(full[0], BLOCK * 4)
        fence.mbarrier_init.release.cluster()
    cluster_sync()                                   # no copy may arrive at a barrier that is not initialised
    with if_(thread == 0):
        part = rank * PART
        first = clusterid.x * BLOCK
        copy(block.at(part), source.at(first + part), PART * 4, full[0], multicast_mask(CLUSTER))
    wait(full[0], 0)
    out = target.at(ctaid.x * BLOCK + thread)
    for i in range(CLUSTER):                         # Python: unrolled
        st.global_.u32(out + i * PART, ld.shared__cta.u32(block.at(thread) + i * PART))
    cluster_sync()                                   # no CTA leaves while another may still copy into it


def check() -> str:
    """Run it on the GPU: each block of the source appears once for every CTA of its cluster."""
    clusters = 100
    source = np.random.default_rng(0).integers(0, 2**32, (clusters, BLOCK), dtype=np.uint32)
    target = device_array(np.zeros((clusters * CLUSTER, BLOCK), np.uint32))
    broadcast.launch(clusters * CLUSTER, device_array(source), target)
    assert np.array_equal(target.numpy(), np.repeat(source, CLUSTER, axis=0))
    return f"{clusters} blocks of {BLOCK * 4} bytes, each in {CLUSTER} CTAs, equal"


if __name__ == "__main__":
    print("cluster_multicast:", check() if driver.available("sm_90a") else f"{broadcast.summary()}; not executed, there is no Hopper GPU")
