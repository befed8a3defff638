# Halyard: distributed transforms of mpi4py-fft against numpy's of the whole array.
# SPDX-License-Identifier: BSD-3-Clause
import numpy as np
from mpi4py import MPI
from mpi4py_fft import PFFT, newDistArray

comm = MPI.COMM_WORLD
worst = 0.0
for shape in ((8, 8, 8), (32, 27, 20), (64, 48, 36)):
    for kind in (np.float64, np.complex128):
        for axes in ((0, 1, 2), (2, 0, 1)):
            whole = np.random.default_rng(7).random(shape).astype(kind)
            if kind is np.complex128:
                whole = whole + 1j * whole[::-1]
            fft = PFFT(comm, shape, axes=axes, dtype=kind)
            data = newDistArray(fft, False)
            data[:] = whole[data.local_slice()]
            result = fft.forward(data.copy(), newDistArray(fft, True))
            back = fft.backward(result.copy(), newDistArray(fft, False))
            wanted = (np.fft.rfftn if kind is np.float64 else np.fft.fftn)(whole, axes=axes)
            wanted = wanted / np.prod(shape)
            worst = max(worst, np.abs(result - wanted[result.local_slice()]).max(initial=0),
                        np.abs(back - data).max(initial=0))
            fft.destroy()
worst = comm.allreduce(worst, op=MPI.MAX)
if comm.rank == 0:
    print(f"differs by at most {worst:g}")
    print("all transforms agree" if worst < 1e-10 else "FAILED")
