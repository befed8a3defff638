# Halyard: a cluster of Dask whose scheduler, workers and client talk by UCXX: arrays move among
# workers, the results are NumPy's; a worker is killed amid the work, which goes on without it.
# SPDX-License-Identifier: BSD-3-Clause
import os
import signal
import sys
import time

import numpy as np

SIDE = 1200
PARTS = 40
LIMIT = 60


def foreign():
    """Libraries of ours that this process has not mapped."""
    maps = open("/proc/self/maps").read()
    return [name for name in ("ucp", "uct", "ucs") if
            f"{os.environ['HALYARD_LIB']}/lib{name}.so" not in maps]


def slow(i):
    time.sleep(0.05)
    return np.full(100000, i)


def total(parts):
    return int(sum(part.sum() for part in parts))


def work(client):
    """Returns what was wrong."""
    import dask.array as da

    wrong = foreign() + sum(client.run(foreign).values(), [])
    x = np.random.default_rng(1).random((SIDE, SIDE))
    a = client.persist(da.from_array(x, chunks=(SIDE // 3, SIDE // 3)))
    y = (a + a.T).rechunk((SIDE, SIDE // 6)).rechunk((SIDE // 6, SIDE)) @ a
    if not np.allclose(y.compute(), (x + x.T) @ x):
        wrong.append("the product differs")
    data = np.arange(5000000)
    everywhere = client.scatter(data, broadcast=True)
    if client.submit(np.sum, everywhere).result(timeout=LIMIT) != data.sum():
        wrong.append("the sum of what was sent to all differs")

    parts = client.map(slow, range(PARTS))
    sum_of_parts = client.submit(total, parts)
    time.sleep(0.3)  # some are done, some not
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
    if sum_of_parts.result(timeout=LIMIT) != 100000 * sum(range(PARTS)):
        wrong.append("the sum after a worker's death differs")
    return wrong


def main():
    from dask.distributed import Client, LocalCluster

    with LocalCluster(protocol="ucxx", host="127.0.0.1", n_workers=3, threads_per_worker=1,
                      processes=True, dashboard_address=None, memory_limit=None) as cluster:
        with Client(cluster) as client:
            wrong = work(client)
            if not cluster.scheduler_address.startswith("ucxx://"):
                wrong.append(cluster.scheduler_address)
    if wrong:
        print(f"FAILED: wrong, or not ours: {wrong}")
        return 1
    print("the cluster agrees")
    return 0


if __name__ == "__main__":
    sys.exit(main())
