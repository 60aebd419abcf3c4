"""Builds the native module. In: csrc/ and CPython's headers, nothing of torch. Out:
`flambeau_capture._C`. Invariant: all that depends on the Python version is in csrc/compat/."""

from __future__ import annotations

from setuptools import Extension, setup

SOURCES = [
    "csrc/module.c",
    "csrc/hook.c",
    "csrc/dict_watch.c",
    "csrc/cache.c",
    "csrc/entry.c",
    "csrc/entry_choice.c",
    "csrc/foreign_compiler.c",
    "csrc/cached_answer.c",
    "csrc/callables.c",
    "csrc/same.c",
    "csrc/guard_evaluate.c",
    "csrc/guard_tree.c",
    "csrc/guard_build.c",
    "csrc/recorder.c",
    "csrc/region.c",
    "csrc/metaclass.c",
    "csrc/set_table.c",
    "csrc/size_program.c",
    "csrc/witness.c",
    "csrc/tensor_pattern.c",
    "csrc/state_pattern.c",
]
HEADERS = [
    "csrc/flambeau.h",
    "csrc/guard_tree.h",
    "csrc/hook.h",
    "csrc/recorder.h",
    "csrc/region.h",
    "csrc/witness.h",
    "csrc/compat/compat.h",
    "csrc/compat/py311.h",
    "csrc/compat/py312.h",
    "csrc/compat/py312_313.h",
    "csrc/compat/py313.h",
    "csrc/compat/py314.h",
    "csrc/compat/since_312.h",
    "csrc/compat/since_313.h",
    "csrc/compat/until_312.h",
    "csrc/compat/until_313.h",
]

setup(
    ext_modules=[
        Extension(
            "flambeau_capture._C",
            sources=SOURCES,
            depends=HEADERS,
            include_dirs=["csrc"],
            extra_compile_args=["-O2", "-g0", "-std=gnu11", "-fvisibility=hidden", "-Wall"],
            libraries=["dl"],
        )
    ]
)
