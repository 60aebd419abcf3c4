/* CPython 3.14: as 3.13, but a frame's slots hold tagged references, of which some are borrowed, and
   a dict has no version tag. */
#ifndef FLAMBEAU_PY314_H
#define FLAMBEAU_PY314_H

#include "since_313.h"
#include "since_312.h"

static inline PyCodeObject *
frame_code(const struct _PyInterpreterFrame *frame)
{
    return (PyCodeObject *)PyStackRef_AsPyObjectBorrow(frame->f_executable);
}

static inline PyFunctionObject *
frame_func(const struct _PyInterpreterFrame *frame)
{
    return (PyFunctionObject *)PyStackRef_AsPyObjectBorrow(frame->f_funcobj);
}

static inline Py_ssize_t
frame_room(Py_ssize_t count)
{
    return count + 1;
}

static inline PyObject **
frame_values(struct _PyInterpreterFrame *frame, Py_ssize_t count, PyObject **room)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        _PyStackRef slot = frame->localsplus[i];
        room[i] = PyStackRef_IsNull(slot) ? NULL : PyStackRef_AsPyObjectBorrow(slot);
    }
    return room;
}

static inline PyObject **
frame_take(struct _PyInterpreterFrame *frame, Py_ssize_t count, PyObject **room)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        _PyStackRef slot = frame->localsplus[i];
        frame->localsplus[i] = PyStackRef_NULL;
        room[i] = PyStackRef_IsNull(slot) ? NULL : PyStackRef_AsPyObjectSteal(slot);
    }
    return room;
}

/* The interpreter looks at the C stack itself: there is nothing to hand back. */
static inline int
recursion_refund(PyThreadState *Py_UNUSED(tstate), int Py_UNUSED(units))
{
    return 0;
}

static inline void
frame_discard(PyThreadState *tstate, struct _PyInterpreterFrame *frame)
{
    for (_PyStackRef *slot = frame->localsplus; slot < frame->stackpointer; slot++) {
        PyStackRef_CLEAR(*slot);
    }
    Py_XDECREF((PyObject *)frame->frame_obj);
    Py_XDECREF(frame->f_locals);
    PyStackRef_CLOSE(frame->f_funcobj);
    PyStackRef_CLOSE(frame->f_executable);
    data_stack_pop(tstate, frame);
}

static inline int
type_has_tag(const PyTypeObject *type)
{
    return type->tp_version_tag != 0;
}

/* Of a dict's watchers, see ../dict_watch.c. */
const uint64_t *dict_tag(PyObject *dict);

#endif
