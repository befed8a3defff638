# Halyard: a recipe for Spack (1.0 or newer).
#
# It goes into a repository of packages as packages/halyard/package.py. Spack then builds a release
# archive that was unpacked (halyard@0.1.0) or a checkout (halyard@main) where it lies; nothing is
# downloaded. In an environment:
#
#   spack add halyard@main
#   spack develop --path CHECKOUT halyard@main
#   spack concretize --force && spack install
#
# Of the variants of Spack's ucx there are those that change something here. Threads and GPUs need
# none: every build takes several threads, and finds CUDA's driver once a program has loaded it.
# SPDX-License-Identifier: BSD-3-Clause
from spack_repo.builtin.build_systems.autotools import AutotoolsPackage

from spack.package import *


class Halyard(AutotoolsPackage):
    """Messages between processes of a node, between its GPUs and between nodes, with the interface
    and the library names of UCX."""

    license("BSD-3-Clause")

    version("main")
    version("0.1.0")

    variant("assertions", default=False, description="Check assertions")
    variant("cma", default=True, description="Copy between processes by process_vm_readv")
    variant("debug", default=False, description="Build without optimization, with assertions")
    variant("hwloc", default=True, description="Know the topology of the machine, by hwloc")
    variant(
        "libs",
        default="shared",
        values=("shared", "static"),
        multi=True,
        description="Libraries to build",
    )
    variant("ofi", default=True, description="Carry messages between nodes, by libfabric")

    depends_on("c", type="build")
    with default_args(type="build", when="@main"):
        depends_on("autoconf@2.69:")
        depends_on("automake@1.15:")
        depends_on("libtool")

    # Opened with dlopen (libhwloc.so.15, libfabric.so.1) and found by the run path
    # that Spack gives to what it links: dependencies of type link, though nothing is linked.
    depends_on("hwloc@2", when="+hwloc")
    depends_on("libfabric@1.17:", when="+ofi")

    requires("platform=linux")

    # What was built for UCX runs on it: this is the interface whose layouts are tested.
    can_splice("ucx@1.13:1.23", when="libs=shared")

    build_directory = "build-spack"

    def configure_args(self):
        # The headers of CUDA and GoogleTest serve tests and an example only.
        args = ["--disable-gtest", "--disable-werror", "--without-cuda", "--without-valgrind"]
        args += ["--without-sdt"]
        for name in ("assertions", "cma", "debug", "libs"):
            args += self.enable_or_disable(name)
        for name in ("hwloc", "ofi"):
            args += self.with_or_without(name)
        return args

    def test_ucx_info(self):
        """the library loads and says what it is"""
        Executable(self.prefix.bin.ucx_info)("-v")
