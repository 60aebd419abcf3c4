// A package of `flambeau.package` in a C++ program, without Python.
//
//   flambeau::Package net("net.flambeau");
//   std::vector<at::Tensor> results = net({at::randn({4, 8})});
//
// The package has to be made under torch.no_grad(), for a CPU. Link with libtorch of the release that
// it was made with.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace flambeau {

// A file that is damaged or made for another machine; a call that the file is not made for. what() says
// which, and what to do.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Package {
 public:
  // Throws Error.
  explicit Package(const std::string& path);
  ~Package();
  Package(Package&&) noexcept;
  Package& operator=(Package&&) noexcept;

  // The tensors among the results of the function, in their order (of dicts, by key), for the tensors
  // among its arguments, in theirs; its other arguments are what they were in the example. Several
  // threads may call at once. Throws Error for arguments of another dtype, size or layout.
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& arguments) const;

  const std::string& function() const;
  // Parameters and buffers by their names. They are the package's own: writing to one changes what it
  // computes, while no other thread calls.
  std::map<std::string, at::Tensor> state() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace flambeau
