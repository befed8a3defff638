# Halyard: what Spack would make of packaging/spack/package.py, without Spack: runs the recipe on
# stand-ins for what it uses of Spack's interface, and prints a line for each version, each range of
# UCX it says to take the place of, and each option that it can give to configure.
#
#   python3 spack_says.py FILE
# SPDX-License-Identifier: BSD-3-Clause
import contextlib
import sys
import types

variants = {}
used = set()


class AutotoolsPackage:
    """Gives the options of a variant that is on and those of one that is off."""

    def enable_or_disable(self, name):
        return self._options(name, ("enable", "disable"))

    def with_or_without(self, name):
        return self._options(name, ("with", "without"))

    def _options(self, name, words):
        names = variants[name].get("values", (name,))
        used.add(name)
        return [f"--{word}-{value}" for value in names for word in words]


def define(name, **items):
    module = sys.modules[name] = types.ModuleType(name)
    module.__dict__.update(items)


define("spack")
define(
    "spack.package",
    variant=lambda name, **items: variants.update({name: items}),
    version=lambda number: print("version", number),
    can_splice=lambda spec, when: print("splice", spec),
    default_args=lambda **_: contextlib.nullcontext(),
    depends_on=lambda _, **__: None,
    license=lambda _: None,
    requires=lambda _: None,
)
define("spack_repo")
define("spack_repo.builtin")
define("spack_repo.builtin.build_systems")
define("spack_repo.builtin.build_systems.autotools", AutotoolsPackage=AutotoolsPackage)

recipe = {"__name__": "recipe"}
with open(sys.argv[1], encoding="utf-8") as file:
    exec(compile(file.read(), sys.argv[1], "exec"), recipe)
for option in recipe["Halyard"]().configure_args():
    print("option", option)
for name in sorted(set(variants) - used):
    print("unused", name)
