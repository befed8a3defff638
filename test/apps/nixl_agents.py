# Halyard: NIXL's UCX backend: agents of one process and of several move data by READ and WRITE,
# whole and as lists, with notifications; one dies, another of its name comes; every byte checked.
# Argument: who makes progress: polling (the program), thread (one of NIXL's) or pool (several).
# SPDX-License-Identifier: BSD-3-Clause
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


class Agent:
    others = ()  # of this process, whose progress is this agent's to make

    def __init__(self, name, mode):
        from nixl_cu12 import nixl_agent, nixl_agent_config

        self.name = name
        self.nixl = nixl_agent(name, nixl_agent_config(enable_prog_thread=mode != "polling",
                                                       num_threads=2 if mode == "pool" else 0))
        self.buffer = np.zeros(ROOM, dtype="u1")
        self.address = self.buffer.ctypes.data
        self.nixl.register_memory(self.nixl.get_reg_descs([(self.address, ROOM, 0, "")], "DRAM"))

    def know(self, metadata):
        self.nixl.add_remote_agent(metadata)

    def metadata(self):
        return self.nixl.get_agent_metadata()

    def descriptors(self, places):
        return self.nixl.get_xfer_descs([(address, size, 0) for address, size in places], "DRAM")

    def prepare(self, op, peer, local, remote, note=b""):
        return self.nixl.initialize_xfer(op, self.descriptors(local), self.descriptors(remote),
                                         peer, note)

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
    wrong, sent = [], []
    for size in SIZES:
        data = pattern(size, size)
        agent.buffer[:size] = data
        sent += [b"write %d" % size, b"read %d" % size]
        here, there = [(agent.address, size)], [(remote + 5, size)]
        write = agent.move("WRITE", peer, here, there, sent[-2])
        agent.buffer[:] = 0
        read = agent.move("READ", peer, here, there, sent[-1])
        if write != "DONE" or read != "DONE" or not np.array_equal(agent.buffer[:size], data):
            wrong.append(f"{size} bytes: {write}, {read}")
    for count, size in LISTS:
        data = pattern(ROOM, count)
        agent.buffer[:] = data
        here = [(agent.address + i * (size + 7), size) for i in range(count)]
        there = [(remote + i * (size + 7), size) for i in reversed(range(count))]
        sent.append(b"list %d" % count)
        write = agent.move("WRITE", peer, here, there, sent[-1])
        agent.buffer[:] = 0
        read = agent.move("READ", peer, here, there)
        for place, _ in here:
            start = place - agent.address
            if not np.array_equal(agent.buffer[start:start + size], data[start:start + size]):
                wrong.append(f"list of {count}: {write}, {read}")
                break
    return wrong, sent


def in_one_process(mode):
    agents = [Agent(f"agent {i}", mode) for i in range(3)]
    wrong = []
    for agent in agents:
        for other in agents:
            if other is not agent:
                agent.know(other.metadata())
    for agent, other in zip(agents, agents[1:] + agents[:1]):
        agent.others = [other]
        bad, sent = exercise(agent, other.name, other.address)
        other.others, agent.others = [agent], []
        notes = other.notes(agent.name, len(sent))
        wrong += bad + ([] if sorted(notes) == sorted(sent) else [f"notifications: {notes}"])
    return wrong


def serve(name, mode, pipe):
    agent = Agent(name, mode)
    pipe.send((agent.metadata(), agent.address))
    agent.know(pipe.recv())
    while not pipe.poll():
        agent.nixl.update_notifs()
    sent = pipe.recv()
    notes = agent.notes("client", len(sent))
    pipe.send(foreign() + ([] if sorted(notes) == sorted(sent) else [f"notifications: {notes}"]))
    pipe.recv()  # the client may be about to read from here


class Server:
    def __init__(self, name, mode, client):
        spawn = multiprocessing.get_context("spawn")
        self.pipe, there = spawn.Pipe()
        self.name = name
        self.process = spawn.Process(target=serve, args=(name, mode, there))
        self.process.start()
        there.close()
        metadata, self.address = self.pipe.recv()
        client.know(metadata)
        self.pipe.send(client.metadata())

    def end(self, sent):
        self.pipe.send(sent)
        wrong = self.pipe.recv()
        self.pipe.send(None)
        self.process.join()
        if self.process.exitcode:
            wrong.append(f"{self.name} ended with {self.process.exitcode}")
        return wrong


def in_several_processes(mode):
    client = Agent("client", mode)
    servers = [Server(f"server {i}", mode, client) for i in range(2)]
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

    again = Server(victim.name, mode, client)
    bad, notes = exercise(client, again.name, again.address)
    return wrong + bad + again.end(notes) + servers[0].end(sent[0] + [b"both"] * 200)


def main():
    wrong = in_one_process(sys.argv[1]) + in_several_processes(sys.argv[1]) + foreign()
    if wrong:
        print(f"FAILED: wrong, or not ours: {wrong}")
        return 1
    print("all agents agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
