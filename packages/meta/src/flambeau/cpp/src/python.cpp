// A kernel calls a dozen functions of CPython's stable ABI: to take its numbers, to give one back, to
// say what is wrong, and to let other threads run meanwhile. Where there is no Python they are these. An
// object is then a number itself: never looked into, only handed from one of these functions to another.
#include "python.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "flambeau/package.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

struct Method {
  const char* name;
  void* call;
  int flags;
  const char* doc;
};

thread_local std::string wrong;
thread_local bool failed = false;
constexpr uintptr_t given_back = 1;  // so that a result of zero is no null pointer

}  // namespace

extern "C" {
__attribute__((visibility("default"))) void* PyExc_RuntimeError = nullptr;
__attribute__((visibility("default"))) void* PyExc_TypeError = nullptr;
}
EXPORTED void* PyCFunction_NewEx(Method* method, void*, void*) { return method->call; }
EXPORTED void* PyLong_FromLong(long value) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(value) << 1 | given_back);
}
EXPORTED void* PyLong_AsVoidPtr(void* object) { return object; }
EXPORTED void* PyErr_Occurred() { return failed ? &failed : nullptr; }
EXPORTED void PyErr_SetString(void*, const char* message) {
  failed = true;
  wrong = message;
}
EXPORTED void* PyEval_SaveThread() { return nullptr; }
EXPORTED void PyEval_RestoreThread(void*) {}

namespace flambeau {

Kernels::Kernels(const std::string& library, int64_t count) {
  if (dlsym(RTLD_DEFAULT, "Py_IsInitialized") != nullptr) {
    throw Error("there is Python in this process: load the package with flambeau.load there");
  }
  const char* folder = getenv("TMPDIR");
  std::string path = std::string(folder && *folder ? folder : "/tmp") + "/flambeau-XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) throw Error("kernels cannot be written to " + path + ": set TMPDIR to a folder");
  size_t at = 0;
  while (at < library.size()) {
    const ssize_t done = write(file, library.data() + at, library.size() - at);
    if (done <= 0) break;
    at += static_cast<size_t>(done);
  }
  close(file);
  void* loaded = at == library.size() ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  const char* reason = loaded ? "" : at == library.size() ? dlerror() : "the disk is full";
  const std::string said = reason ? reason : "";
  unlink(path.c_str());
  if (loaded == nullptr) throw Error("the kernels do not load: " + said);
  auto make = reinterpret_cast<void* (*)(int)>(dlsym(loaded, "flambeau_kernel"));
  if (make == nullptr) throw Error("the kernels do not load: there is no flambeau_kernel");
  for (int64_t number = 0; number < count; number++) calls_.push_back(make(static_cast<int>(number)));
}

int64_t Kernels::call(size_t number, const std::vector<int64_t>& arguments) const {
  using Call = void* (*)(void*, void* const*, long);
  failed = false;
  auto given = reinterpret_cast<void* const*>(arguments.data());
  void* result = reinterpret_cast<Call>(calls_.at(number))(
      nullptr, given, static_cast<long>(arguments.size()));
  if (failed || result == nullptr) {
    failed = false;
    throw Error(wrong);
  }
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(result)) >> 1;
}

}  // namespace flambeau
