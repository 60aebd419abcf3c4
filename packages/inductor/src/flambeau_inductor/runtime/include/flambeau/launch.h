// Queues a kernel on a CUDA stream: one call from Python, one call of the driver.
// A kernel here was compiled for addresses that are multiples of 16.
#pragma once

#include "flambeau/python.h"

namespace fl {

// cuLaunchKernel(function, grid x y z, block x y z, shared bytes, stream, parameters, extra)
typedef int (*Driver)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      void*, void**, void**);

// The driver's CUlaunchAttribute and CUlaunchConfig.
struct Attribute {
  int id;
  char padding[4];
  int value;
  char rest[60];
};
struct Config {
  unsigned grid[3], block[3], shared;
  void* stream;
  const Attribute* attributes;
  unsigned count;
};

// cuLaunchKernelEx(config, function, parameters, extra)
typedef int (*DriverEx)(const Config*, void*, void**, void**);

// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: programs start as those of the kernel before end
static const Attribute dependent = {6, {0}, 1, {0}};

// cuTensorMapEncodeTiled(map, type, rank, address, sizes, strides in bytes, box, steps, interleave,
//                        swizzle, promotion in the level 2 cache, what is outside)
typedef int (*Encode)(void*, int, unsigned, void*, const unsigned long long*,
                      const unsigned long long*, const unsigned*, const unsigned*, int, int, int,
                      int);

enum { most_parameters = 256, most_rank = 5, most_descriptors = 8, cache_lines_of_128 = 2 };
enum { invalid_context = 201 };  // the driver's: of a thread that has none

// What a descriptor of the tensor memory accelerator says of the memory at one address:
// sizes and strides in elements, the innermost dimension first. See runtime/gpu/tensor_descriptors.py.
struct Tiled {
  unsigned argument, rank, type, itemsize, swizzle, box[most_rank];
  unsigned long long offset, size[most_rank], stride[most_rank];
};

// 128 bytes that only the driver knows the meaning of
struct alignas(64) Map {
  unsigned char bytes[128];
};

// One kernel on one grid. `unaligned` is called with the same arguments where an address is no
// multiple of 16; `attach`, without any, gives a thread its context. After the addresses come the
// descriptors, each with its sizes and strides as Triton passes them (outermost first), then the open
// `sizes`, then `nulls` null pointers. Where there are open sizes a launch says how many programs run.
// `dependent` launches a kernel that waits for the one before it by itself; null where none does.
struct Site {
  Driver driver;
  void* function;
  PyObject* unaligned;
  PyObject* attach;
  unsigned programs, threads, shared, addresses, nulls, descriptors;
  const Tiled* tiled;
  Encode encode;
  unsigned sizes;
  DriverEx dependent;
};

// What the parameters of descriptors point to during a launch.
struct Described {
  Map map;
  unsigned size[most_rank];
  unsigned long long stride[most_rank];
};

// Encodes a descriptor of the memory at `address`, and points `parameter` to what is passed of it.
// Returns the driver's status; `count` parameters are there before, and more afterwards.
static int describe(const Site* site, const Tiled& tiled, unsigned long long address,
                    Described& made, void** parameter, long& count) {
  unsigned long long bytes[most_rank];
  unsigned step[most_rank];
  const unsigned rank = tiled.rank;
  for (unsigned d = 0; d < rank; d++) {
    step[d] = 1;
    if (d > 0) bytes[d - 1] = tiled.stride[d] * tiled.itemsize;
    made.size[d] = (unsigned)tiled.size[rank - 1 - d];
    made.stride[d] = tiled.stride[rank - 1 - d];
  }
  parameter[count++] = &made.map;
  for (unsigned d = 0; d < rank; d++) parameter[count++] = &made.size[d];
  for (unsigned d = 0; d < rank; d++) parameter[count++] = &made.stride[d];
  return site->encode(&made.map, (int)tiled.type, rank, (void*)(address + tiled.offset), tiled.size,
                      bytes, tiled.box, step, 0, (int)tiled.swizzle, cache_lines_of_128, 0);
}

// Returns the driver's status.
static int launch(const Site* site, unsigned programs, void* stream, void** parameter) {
  void* state = PyEval_SaveThread();
  int status;
  if (site->dependent != nullptr) {
    const Config config = {{programs, 1, 1}, {site->threads, 1, 1}, site->shared,
                           stream,           &dependent,            1};
    status = site->dependent(&config, site->function, parameter, nullptr);
  } else {
    status = site->driver(site->function, programs, 1, 1, site->threads, 1, 1, site->shared, stream,
                          parameter, nullptr);
  }
  PyEval_RestoreThread(state);
  return status;
}

// Arguments from Python: the stream's handle, the addresses, the open sizes and, after some, the number
// of programs.
static PyObject* queue(PyObject* self, PyObject* const* argument, long count) {
  const Site* site = (const Site*)PyLong_AsVoidPtr(self);
  const long addresses = site->addresses, passed = addresses + site->sizes;
  const bool grid = site->sizes > 0;
  if (count != passed + 1 + grid) {
    const char* wanted = grid ? "this kernel takes a stream and %ld addresses, then %ld numbers"
                              : "this kernel takes a stream and %ld addresses";
    return PyErr_Format(PyExc_TypeError, wanted, addresses, passed - addresses + grid);
  }
  unsigned long long value[most_parameters], all = 0;
  void* parameter[most_parameters];
  for (long k = 0; k < passed; k++) {
    value[k] = (unsigned long long)PyLong_AsVoidPtr(argument[k + 1]);
    if (k < addresses) all |= value[k];
    parameter[k] = &value[k];
  }
  unsigned programs = site->programs;
  if (grid) programs = (unsigned)(unsigned long long)PyLong_AsVoidPtr(argument[count - 1]);
  void* stream = PyLong_AsVoidPtr(argument[0]);
  if (PyErr_Occurred()) return nullptr;
  if (programs == 0) return PyLong_FromLong(0);
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
  Described described[most_descriptors];
  long total = addresses;
  for (unsigned k = 0; k < site->descriptors; k++) {
    const Tiled& tiled = site->tiled[k];
    const int wrong = describe(site, tiled, value[tiled.argument], described[k], parameter, total);
    if (wrong) {
      return PyErr_Format(PyExc_RuntimeError,
                          "the CUDA driver refused a tensor descriptor (error %d)", wrong);
    }
  }
  for (long k = addresses; k < passed; k++) parameter[total++] = &value[k];
  unsigned long long null = 0;
  for (unsigned k = 0; k < site->nulls; k++) parameter[total++] = &null;
  int status = launch(site, programs, stream, parameter);
  if (status == invalid_context) {
    PyObject* none = PyTuple_New(0);
    PyObject* done = none == nullptr ? nullptr : PyObject_Call(site->attach, none, nullptr);
    if (none != nullptr) Py_DecRef(none);
    if (done == nullptr) return nullptr;
    Py_DecRef(done);
    status = launch(site, programs, stream, parameter);
  }
  if (status) {
    return PyErr_Format(PyExc_RuntimeError, "the CUDA driver refused a launch (error %d)", status);
  }
  return PyLong_FromLong(0);
}

static PyMethodDef method = {"queue", (PyCFunction)(void*)queue, FL_FASTCALL, nullptr};

}  // namespace fl

// The Python function that queues the kernel of `site`, which must outlive it.
extern "C" PyObject* flambeau_launcher(fl::Site* site) {
  long total = (long)site->addresses + site->sizes + site->nulls;
  bool fits = site->descriptors <= fl::most_descriptors;
  for (unsigned k = 0; fits && k < site->descriptors; k++) {
    fits = site->tiled[k].rank <= fl::most_rank && site->tiled[k].argument < site->addresses;
    total += 1 + 2 * (long)site->tiled[k].rank;
  }
  if (!fits || total > fl::most_parameters) {
    return PyErr_Format(PyExc_TypeError, "a kernel of %ld parameters is more than is launched",
                        total);
  }
  PyObject* self = PyLong_FromVoidPtr(site);
  if (self == nullptr) return nullptr;
  PyObject* made = PyCFunction_NewEx(&fl::method, self, nullptr);
  Py_DecRef(self);
  return made;
}
