// Kernels without Python: a kernel is a function that takes objects of Python and gives one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flambeau {

// The kernels of one shared object, which stays loaded.
class Kernels {
 public:
  Kernels() = default;
  // Writes the library to a file for as long as it takes to load it. Throws Error.
  Kernels(const std::string& library, int64_t count);
  // What the kernel gives for addresses and sizes. Throws Error.
  int64_t call(size_t number, const std::vector<int64_t>& arguments) const;

 private:
  std::vector<void*> calls_;
};

}  // namespace flambeau
