// What generated units need of CPython, from its stable ABI, declared by hand: a unit built once
// serves every Python version, and Python.h need not be parsed (docs.python.org/3/c-api/stable.html).
#pragma once

struct PyObject;

extern "C" {
typedef PyObject* (*PyCFunction)(PyObject*, PyObject*);
struct PyMethodDef { const char* name; PyCFunction call; int flags; const char* doc; };
PyObject* PyCFunction_NewEx(PyMethodDef*, PyObject*, PyObject*);
PyObject* PyLong_FromLong(long);
PyObject* PyLong_FromVoidPtr(void*);
void* PyLong_AsVoidPtr(PyObject*);
PyObject* PyErr_Occurred();
PyObject* PyErr_Format(PyObject*, const char*, ...);
void PyErr_SetString(PyObject*, const char*);
extern PyObject* PyExc_RuntimeError;
extern PyObject* PyExc_TypeError;
void* PyEval_SaveThread();
void PyEval_RestoreThread(void*);
PyObject* PyTuple_New(long);
int PyTuple_SetItem(PyObject*, long, PyObject*);
PyObject* PyObject_Call(PyObject*, PyObject*, PyObject*);
void Py_IncRef(PyObject*);
void Py_DecRef(PyObject*);
}

namespace fl {

// Whether an address is of no memory: that of a tensor without storage, or some bytes after it.
// Nothing is mapped below 64 KiB (vm.mmap_min_addr).
static inline bool nowhere(const void* address) { return (unsigned long)address < 0x10000; }

static PyObject* without_memory() {
  PyErr_SetString(PyExc_RuntimeError,
                  "a kernel was given a tensor that has elements, but no memory (a zero tensor of "
                  "forward-mode differentiation, for one): clone it first");
  return nullptr;
}

}  // namespace fl

// flags of a method that takes its arguments as an array
enum { FL_FASTCALL = 0x0080 };
