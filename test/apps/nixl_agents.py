# Halyard: NIXL's UCX backend: agents of one process and of several move data by READ and WRITE,
# whole and as lists, with notifications; one dies, another of its name comes; every byte checked.
# Arguments: who makes progress: polling (the program), thread (one of NIXL's) or pool (several);
# whose memory it is: DRAM (of the host, the default), VRAM (of the first GPU) or mixed (every other
# agent's is a GPU's).
# SPDX-License-Identifier: BSD-3-Clause
import ctypes
import multiprocessing
import os
import signal
import sys
import time

import numpy as np

SIZES = (1, 100, 4096, 65536, 3000001)
LISTS = ((3, 8), (300, 1000), (20, 100000))  # descriptors, bytes of each
ROOM = 4 << 20
LIMIT = 60


def pattern(size, seed):
    return np.random.default_rng(seed).integers(0, 256, size, dtype="u1")


def foreign():
    """Libraries of ours that this process has not mapped, and others that it has."""
    maps = open("/proc/self/maps").read()
    wrong = [name for name in ("ucp", "uct", "ucs") if
             f"{os.environ['HALYARD_LIB']}/lib{name}.so" not in maps]
    return wrong + [line for line in maps.splitlines() if "nixl_cu12.libs/libuc" in line]


class HostMemory:
    kind = "DRAM"

    def __init__(self):
        self.bytes = np.zeros(ROOM, dtype="u1")
        self.address = self.bytes.ctypes.data

    def write(self, data):
        self.bytes[:data.size] = data

    def read(self, size):
        return self.bytes[:size].copy()


class DeviceMemory:
    kind = "VRAM"

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(ROOM))
        self.address = address.value

    def call(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        if result:
            raise RuntimeError(f"{name}: CUDA error {result}")

    def write(self, data):
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(self.address),
                  ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.size))
        self.call("cuCtxSynchronize")

    def read(self, size):
        data = np.zeros(size, dtype="u1")
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(data.ctypes.data),
                  ctypes.c_uint64(self.address), ctypes.c_size_t(size))
        return data


def memory_kind(kinds, index):
    """That of the agent of this number."""
    return ("VRAM", "DRAM")[index % 2] if kinds == "mixed" else kinds


class Agent:
    others = ()  # of this process, whose progress is this agent's to make

    def __init__(self, name, mode, kind):
        from nixl_cu12 import nixl_agent, nixl_agent_config

        self.name = name
        self.memory = DeviceMemory() if kind == "VRAM" else HostMemory()
        self.address = self.memory.address
        self.kinds = {}  # by peer
        self.nixl = nixl_agent(name, nixl_agent_config(enable_prog_thread=mode != "polling",
                                                       num_threads=2 if mode == "pool" else 0))
        self.nixl.register_memory(self.nixl.get_reg_descs([(self.address, ROOM, 0, "")], kind))

    def know(self, name, metadata, kind):
        self.nixl.add_remote_agent(metadata)
        self.kinds[name] = kind

    def metadata(self):
        return self.nixl.get_agent_metadata()

    def descriptors(self, places, kind):
        return self.nixl.get_xfer_descs([(address, size, 0) for address, size in places], kind)

    def prepare(self, op, peer, local, remote, note=b""):
        return self.nixl.initialize_xfer(op, self.descriptors(local, self.memory.kind),
                                         self.descriptors(remote, self.kinds[peer]), peer, note)

    def post(self, handle):
        """Returns how the transfer ended."""
        try:
            state, end = self.nixl.transfer(handle), time.time() + LIMIT
            while state == "PROC" and time.time() < end:
                for agent in (self, *self.others):
                    agent.nixl.update_notifs()
                state = self.nixl.check_xfer_state(handle)
        except Exception as error:  # NIXL has a class for each of its errors
            state = type(error).__name__
        return state

    def move(self, *what):
        handle = self.prepare(*what)
        state = self.post(handle)
        self.nixl.release_xfer_handle(handle)
        return state

    def notes(self, peer, count):
        """Waits for so many notifications of a peer and takes them."""
        end = time.time() + LIMIT
        while len(self.nixl.update_notifs().get(peer, [])) < count and time.time() < end:
            for agent in self.others:
                agent.nixl.update_notifs()
        return self.nixl.notifs.pop(peer, [])


def exercise(agent, peer, remote):
    """Moves data to the memory at remote and back. Returns what was wrong and the notes sent."""
    wrong, sent, nothing = [], [], np.zeros(ROOM, dtype="u1")
    for size in SIZES:
        data = pattern(size, size)
        agent.memory.write(data)
        sent += [b"write %d" % size, b"read %d" % size]
        here, there = [(agent.address, size)], [(remote + 5, size)]
        write = agent.move("WRITE", peer, here, there, sent[-2])
        agent.memory.write(nothing)
        read = agent.move("READ", peer, here, there, sent[-1])
        if write != "DONE" or read != "DONE" or not np.array_equal(agent.memory.read(size), data):
            wrong.append(f"{size} bytes: {write}, {read}")
    for count, size in LISTS:
        data = pattern(ROOM, count)
        agent.memory.write(data)
        here = [(agent.address + i * (size + 7), size) for i in range(count)]
        there = [(remote + i * (size + 7), size) for i in reversed(range(count))]
        sent.append(b"list %d" % count)
        write = agent.move("WRITE", peer, here, there, sent[-1])
        agent.memory.write(nothing)
        read = agent.move("READ", peer, here, there)
        found = agent.memory.read(ROOM)
        for place, _ in here:
            start = place - agent.address
            if not np.array_equal(found[start:start + size], data[start:start + size]):
                wrong.append(f"list of {count}: {write}, {read}")
                break
    return wrong, sent


def in_one_process(mode, kinds):
    agents = [Agent(f"agent {i}", mode, memory_kind(kinds, i)) for i in range(3)]
    wrong = []
    for agent in agents:
        for other in agents:
            if other is not agent:
                agent.know(other.name, other.metadata(), other.memory.kind)
    for agent, other in zip(agents, agents[1:] + agents[:1]):
        agent.others = [other]
        bad, sent = exercise(agent, other.name, other.address)
        other.others, agent.others = [agent], []
        notes = other.notes(agent.name, len(sent))
        wrong += bad + ([] if sorted(notes) == sorted(sent) else [f"notifications: {notes}"])
    return wrong


def serve(name, mode, kind, pipe):
    agent = Agent(name, mode, kind)
    pipe.send((agent.metadata(), agent.address))
    agent.know(*pipe.recv())
    while not pipe.poll():
        agent.nixl.update_notifs()
    sent = pipe.recv()
    notes = agent.notes("client", len(sent))
    pipe.send(foreign() + ([] if sorted(notes) == sorted(sent) else [f"notifications: {notes}"]))
    pipe.recv()  # the client may be about to read from here


class Server:
    def __init__(self, name, mode, kind, client):
        spawn = multiprocessing.get_context("spawn")
        self.pipe, there = spawn.Pipe()
        self.name, self.kind = name, kind
        self.process = spawn.Process(target=serve, args=(name, mode, kind, there))
        self.process.start()
        there.close()
        metadata, self.address = self.pipe.recv()
        client.know(name, metadata, kind)
        self.pipe.send((client.name, client.metadata(), client.memory.kind))

    def end(self, sent):
        self.pipe.send(sent)
        wrong = self.pipe.recv()
        self.pipe.send(None)
        self.process.join()
        if self.process.exitcode:
            wrong.append(f"{self.name} ended with {self.process.exitcode}")
        return wrong


def in_several_processes(mode, kinds):
    client = Agent("client", mode, memory_kind(kinds, 0))
    servers = [Server(f"server {i}", mode, memory_kind(kinds, i + 1), client) for i in range(2)]
    wrong, sent = [], []
    for server in servers:
        bad, notes = exercise(client, server.name, server.address)
        wrong += bad
        sent.append(notes)
    handles = [client.prepare(op, server.name, [(client.address + i * 100, 50 * i + 1)],
                              [(server.address + i * 100, 50 * i + 1)], b"both")
               for i in range(100) for server in servers for op in ("WRITE", "READ")]
    for handle in handles:
        client.nixl.transfer(handle)  # all at once
    states, end = [], time.time() + LIMIT
    while set(states) != {"DONE"} and time.time() < end:
        states = [client.nixl.check_xfer_state(handle) for handle in handles]
    if set(states) != {"DONE"}:
        wrong.append(f"many at once: {set(states)}")
    for handle in handles:
        client.nixl.release_xfer_handle(handle)

    victim = servers.pop()
    handle = client.prepare("WRITE", victim.name, [(client.address, ROOM)],
                            [(victim.address, ROOM)])
    os.kill(victim.process.pid, signal.SIGKILL)
    victim.process.join()
    state, end = "DONE", time.time() + LIMIT
    while state == "DONE" and time.time() < end:
        state = client.post(handle)
    if state in ("DONE", "PROC"):
        wrong.append(f"to who has died: {state}")
    client.nixl.release_xfer_handle(handle)
    client.nixl.remove_remote_agent(victim.name)

    again = Server(victim.name, mode, victim.kind, client)
    bad, notes = exercise(client, again.name, again.address)
    return wrong + bad + again.end(notes) + servers[0].end(sent[0] + [b"both"] * 200)


def main():
    mode, kinds = sys.argv[1], (sys.argv + ["DRAM"])[2]
    wrong = in_one_process(mode, kinds) + in_several_processes(mode, kinds) + foreign()
    if wrong:
        print(f"FAILED: wrong, or not ours: {wrong}")
        return 1
    print("all agents agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
