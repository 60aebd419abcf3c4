/* CPython 3.11, 3.12 and 3.13: slots hold plain references of the frame's own, and a dict has a
   version tag. */
#ifndef FLAMBEAU_UNTIL_313_H
#define FLAMBEAU_UNTIL_313_H

static inline Py_ssize_t
frame_room(Py_ssize_t Py_UNUSED(count))
{
    return 1;
}

static inline PyObject **
frame_values(struct _PyInterpreterFrame *frame, Py_ssize_t Py_UNUSED(count),
             PyObject **Py_UNUSED(room))
{
    return frame->localsplus;
}

static inline PyObject **
frame_take(struct _PyInterpreterFrame *frame, Py_ssize_t count, PyObject **room)
{
    return frame_values(frame, count, room);
}

static inline int
type_has_tag(const PyTypeObject *type)
{
    return type->tp_version_tag != 0 && PyType_HasFeature((PyTypeObject *)type,
                                                          Py_TPFLAGS_VALID_VERSION_TAG);
}

static inline const uint64_t *
dict_tag(PyObject *dict)
{
    return dict_is_of_object(dict) ? NULL : &((PyDictObject *)dict)->ma_version_tag;
}

#endif
