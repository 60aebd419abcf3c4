/* One set of names for what differs between the CPython versions.

   frame_code(f), frame_func(f)   borrowed
   frame_room(n)                  places that the next two want for n of a frame's values
   frame_values(f, n, room)       what the first n slots hold: borrowed, NULL where nothing
   frame_take(f, n, room)         the same, the references being the caller's from then on, which
                                  clears what it has not given away
   frame_is_on_thread(f)          the frame lives on the thread's data stack
   frame_discard(ts, f)           release a frame that was never evaluated, where its evaluator is
                                  the one to do so
   recursion_refund(ts, n)        adds to what is left of nested C calls; returns what it added
   weak_target(r)                 a new reference to what r refers to, NULL when it died
   lookup_attr(o, name, &v)       1 found, 0 absent, -1 error
   class_dict(t)                  a new reference to what a class holds itself
   type_has_tag(t)                the version tag of a class says that nothing of it has changed
   dict_tag(d)                    where a number lies that changes with all that is stored in a dict,
                                  for as long as the dict lives; NULL where none does */
#ifndef FLAMBEAU_COMPAT_H
#define FLAMBEAU_COMPAT_H

#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "internal/pycore_frame.h"
#if PY_VERSION_HEX >= 0x030D0000
#include "internal/pycore_dict.h"
#endif
#if PY_VERSION_HEX >= 0x030E0000
#include "internal/pycore_interpframe.h"
#endif

#ifdef Py_GIL_DISABLED
#error "flambeau-capture needs the interpreter's lock: a free-threaded Python is not supported"
#endif
#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030F0000
#error "flambeau-capture knows the frames of CPython 3.11, 3.12, 3.13 and 3.14"
#elif PY_VERSION_HEX < 0x030C0000
#include "py311.h"
#elif PY_VERSION_HEX < 0x030D0000
#include "py312.h"
#elif PY_VERSION_HEX < 0x030E0000
#include "py313.h"
#else
#include "py314.h"
#endif

static inline int
frame_is_on_thread(const struct _PyInterpreterFrame *frame)
{
    return frame->owner == FRAME_OWNED_BY_THREAD;
}

#endif
