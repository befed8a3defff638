# Halyard: UCXX (RAPIDS) between two processes: tags, active messages, objects, several buffers, many
# endpoints, ends; every byte checked. Argument: UCXX's way to make progress.
# SPDX-License-Identifier: BSD-3-Clause
import asyncio
import multiprocessing
import os
import sys

import numpy as np

SIZES = (1, 8, 100, 5000, 70000, 3000001)
ENDPOINTS = 8


def pattern(size, seed):
    return np.random.default_rng(seed).integers(0, 256, size, dtype="u1")


async def echo(ep):
    """The server's side of each endpoint: all comes back, by the way it came."""
    import ucxx

    for size in SIZES:
        data = np.empty(size, dtype="u1")
        await ep.recv(data)
        await ep.send(data)
    for size in SIZES:
        await ep.am_send(np.array(await ep.am_recv()))
    await ep.send_obj(bytes(await ep.recv_obj()))
    await ep.send_multi([np.array(b) for b in await ep.recv_multi()])
    try:
        await ep.recv(np.empty(10, dtype="u1"))  # never sent: the other side closes
    except (ucxx.exceptions.UCXCanceledError, ucxx.exceptions.UCXError):
        await ep.close()
        return []
    return ["a receive from who has closed ended well"]


def foreign():
    """Libraries of ours that this process has not mapped."""
    maps = open("/proc/self/maps").read()
    return [name for name in ("ucp", "uct", "ucs", "ucs_signal") if
            f"{os.environ['HALYARD_LIB']}/lib{name}.so" not in maps]


async def talk(ep, seed):
    """The client's side. Returns what was wrong."""
    wrong = []
    for size in SIZES:
        data, back = pattern(size, seed + size), np.zeros(size, dtype="u1")
        await ep.send(data)
        await ep.recv(back)
        if not np.array_equal(data, back):
            wrong.append(f"tag {size}")
    for size in SIZES:
        data = pattern(size, seed - size + 10**7)
        await ep.am_send(data)
        if not np.array_equal(data, np.array(await ep.am_recv())):
            wrong.append(f"am {size}")
    await ep.send_obj(b"x" * 12345)
    if bytes(await ep.recv_obj()) != b"x" * 12345:
        wrong.append("object")
    several = [pattern(size, size) for size in SIZES]
    await ep.send_multi(several)
    if any(not np.array_equal(a, np.array(b)) for a, b in zip(several, await ep.recv_multi())):
        wrong.append("several")
    await ep.close()
    return wrong


def serve(mode, pipe):
    import ucxx

    async def main():
        ended = []

        async def handler(ep):
            ended.append(await echo(ep))

        ucxx.init(progress_mode=mode)
        listener = ucxx.create_listener(handler)
        pipe.send(listener.port)
        while len(ended) < ENDPOINTS:
            await asyncio.sleep(0.01)
        listener.close()
        pipe.send(foreign() + sum(ended, []))

    asyncio.run(main())


def main():
    import ucxx

    mode = sys.argv[1]
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    server = spawn.Process(target=serve, args=(mode, there))
    server.start()

    async def client(port):
        ucxx.init(progress_mode=mode)
        eps = [await ucxx.create_endpoint("127.0.0.1", port) for _ in range(ENDPOINTS)]
        return sum(await asyncio.gather(*[talk(ep, i) for i, ep in enumerate(eps)]), [])

    wrong = asyncio.run(client(here.recv()))
    wrong += foreign() + here.recv()
    server.join()
    if wrong or server.exitcode:
        print(f"FAILED: wrong, or not ours: {wrong}; the server ended with {server.exitcode}")
        return 1
    print("all pairs agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
