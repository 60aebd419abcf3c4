// Queues a kernel on a CUDA stream: one call from Python, one call of the driver.
// A kernel here takes addresses only, and was compiled for addresses that are multiples of 16.
#pragma once

#include "flambeau/python.h"

namespace fl {

// cuLaunchKernel(function, grid x y z, block x y z, shared bytes, stream, parameters, extra)
typedef int (*Driver)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      void*, void**, void**);

// One kernel on one grid. `unaligned` is called with the same arguments where an address is no
// multiple of 16. `nulls` parameters behind the addresses are null pointers.
struct Site {
  Driver driver;
  void* function;
  PyObject* unaligned;
  unsigned programs, threads, shared, addresses, nulls;
};

enum { most_parameters = 256 };

// Arguments from Python: the stream's handle, then the addresses.
static PyObject* queue(PyObject* self, PyObject* const* argument, long count) {
  const Site* site = (const Site*)PyLong_AsVoidPtr(self);
  const long addresses = site->addresses;
  if (count != addresses + 1) {
    return PyErr_Format(PyExc_TypeError, "this kernel takes a stream and %ld addresses", addresses);
  }
  unsigned long long value[most_parameters], all = 0;
  void* parameter[most_parameters];
  for (long k = 0; k < addresses; k++) {
    value[k] = (unsigned long long)PyLong_AsVoidPtr(argument[k + 1]);
    all |= value[k];
    parameter[k] = &value[k];
  }
  void* stream = PyLong_AsVoidPtr(argument[0]);
  if (PyErr_Occurred()) return nullptr;
  if (all & 15) {
    PyObject* given = PyTuple_New(count);
    if (given == nullptr) return nullptr;
    for (long k = 0; k < count; k++) {
      Py_IncRef(argument[k]);
      PyTuple_SetItem(given, k, argument[k]);
    }
    PyObject* done = PyObject_Call(site->unaligned, given, nullptr);
    Py_DecRef(given);
    return done;
  }
  const long total = addresses + site->nulls;
  for (long k = addresses; k < total; k++) {
    value[k] = 0;
    parameter[k] = &value[k];
  }
  void* state = PyEval_SaveThread();
  const int status = site->driver(site->function, site->programs, 1, 1, site->threads, 1, 1,
                                  site->shared, stream, parameter, nullptr);
  PyEval_RestoreThread(state);
  if (status) {
    return PyErr_Format(PyExc_RuntimeError, "the CUDA driver refused a launch (error %d)", status);
  }
  return PyLong_FromLong(0);
}

static PyMethodDef method = {"queue", (PyCFunction)(void*)queue, FL_FASTCALL, nullptr};

}  // namespace fl

// The Python function that queues the kernel of `site`, which must outlive it.
extern "C" PyObject* flambeau_launcher(fl::Site* site) {
  if (site->addresses + site->nulls > fl::most_parameters) {
    return PyErr_Format(PyExc_TypeError, "a kernel of %ld parameters is more than is launched",
                        (long)(site->addresses + site->nulls));
  }
  PyObject* self = PyLong_FromVoidPtr(site);
  if (self == nullptr) return nullptr;
  PyObject* made = PyCFunction_NewEx(&fl::method, self, nullptr);
  Py_DecRef(self);
  return made;
}
