#include "flambeau/package.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/version.h>

#include <fstream>
#include <set>
#include <sstream>

#include "archive.h"
#include "program.h"

namespace flambeau {

using c10::IValue;

namespace {

constexpr int64_t format = 1;
const char* const steps_name = "program.steps";

struct Argument {
  size_t place;
  std::string dtype, device;
  Text shape, stride;
};

struct Input {
  enum From { weight, stored, given, size, stride } from;
  size_t number = 0;  // of the tensor in its file, or the argument's place
  int64_t dim = 0;
  std::string name;
};

std::set<std::string> features() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0) {
      std::istringstream words(line.substr(line.find(':') + 1));
      std::set<std::string> found;
      for (std::string word; words >> word;) found.insert(word);
      return found;
    }
  }
  return {};
}

std::vector<at::Tensor> tensors_in(const std::map<std::string, std::string>& files,
                                   const std::string& name) {
  const auto found = files.find(name);
  if (found == files.end()) return {};
  const std::vector<char> bytes(found->second.begin(), found->second.end());
  std::vector<at::Tensor> made;
  const IValue list = torch::jit::pickle_load(bytes);
  for (const IValue& each : list.toListRef()) made.push_back(each.toTensor());
  return made;
}

std::string shown(at::IntArrayRef sizes) {
  std::ostringstream text;
  text << sizes;
  return text.str();
}

std::vector<int64_t> numbers(const Text& list, const Values& values) {
  std::vector<int64_t> made;
  for (size_t k = 1; k < list.parts.size(); k++) made.push_back(evaluated(list.parts[k], values).toInt());
  return made;
}

}  // namespace

struct Package::Parts {
  std::string path, function, tensors;
  std::vector<Argument> arguments;
  std::vector<Text> open, conditions;
  std::vector<Input> inputs;
  std::vector<size_t> written, results;
  std::vector<at::Tensor> weights, stored;
  std::unique_ptr<Program> program;

  [[noreturn]] void refuse(const std::string& why) const { throw Error(path + ": " + why); }

  explicit Parts(const std::string& from) : path(from) {
    auto files = unpacked(path);
    if (!files.count(steps_name)) refuse("it has no program for C++: make it again with this version");
    std::vector<Text> steps;
    std::vector<std::string> constants;
    std::pair<std::string, int64_t> kernels;
    for (const Text& line : variant(files)) {
      if (!fact(line, constants, kernels)) steps.push_back(line);
    }
    weights = tensors_in(files, "weights.pt");
    std::vector<at::Tensor> others = tensors_in(files, tensors);
    if (others.size() < constants.size()) refuse("tensors are missing");
    stored.assign(others.begin(), others.end() - static_cast<int64_t>(constants.size()));
    Values named;
    for (size_t k = 0; k < constants.size(); k++) named[constants[k]] = others[stored.size() + k];
    Kernels loaded;
    if (!kernels.first.empty()) {
      if (!files.count(kernels.first)) refuse("its kernels are missing");
      loaded = Kernels(files.at(kernels.first), kernels.second);
    }
    program = std::make_unique<Program>(steps, std::move(loaded), named);
  }

  // The program of the first processor that this one can stand in for.
  std::vector<Text> variant(const std::map<std::string, std::string>& files) const {
    std::string least, name = steps_name;
    for (int number = 1; files.count(name); number++) {
      std::vector<Text> program = parsed(files.at(name));
      std::string missing;
      for (const Text& line : program) {
        if (line.head() == "features") missing = lacking(line);
      }
      if (missing.empty()) return program;
      if (least.empty() || missing.size() < least.size()) least = missing;
      name = "variant" + std::to_string(number) + "-" + steps_name;
    }
    refuse("this processor lacks " + least + ", which the code may use: make the file on a machine like "
           "this one, or for several by processors= of flambeau.package");
  }

  // Whether the line says something about the program, rather than what it does.
  bool fact(const Text& line, std::vector<std::string>& constants,
            std::pair<std::string, int64_t>& kernels) {
    const std::string& head = line.head();
    const auto place = [&](size_t k) { return static_cast<size_t>(line.at(k).whole); };
    if (head == "refused") {
      refuse("it needs Python: " + line.at(1).word);
    } else if (head == "flambeau") {
      if (line.at(1).whole != format) refuse("it is of another version of Flambeau");
    } else if (head == "torch") {
      if (line.at(1).whole != TORCH_VERSION_MAJOR || line.at(2).whole != TORCH_VERSION_MINOR) {
        refuse("it was made with torch " + std::to_string(line.at(1).whole) + "." +
               std::to_string(line.at(2).whole) + ", this is " TORCH_VERSION
               ": link with that one, or make it again with this");
      }
    } else if (head == "machine") {
      machine(line.at(1).word);
    } else if (head == "features") {  // looked at before
    } else if (head == "tensors") {
      tensors = line.at(1).word;
    } else if (head == "function") {
      function = line.at(1).word;
    } else if (head == "open") {
      open.push_back(line);
    } else if (head == "condition") {
      conditions.push_back(line);
    } else if (head == "fixed") {
    } else if (head == "argument") {
      arguments.push_back({place(1), line.at(2).word, line.at(3).word, line.at(4), line.at(5)});
    } else if (head == "weight") {
      inputs.push_back({Input::weight, place(2), 0, line.at(1).word});
    } else if (head == "stored") {
      inputs.push_back({Input::stored, place(1)});
    } else if (head == "given") {
      inputs.push_back({Input::given, given(place(1))});
    } else if (head == "read") {
      const auto from = line.at(1).word == "size" ? Input::size : Input::stride;
      inputs.push_back({from, given(place(2)), line.at(3).whole});
    } else if (head == "kernels") {
      kernels = {line.at(1).word, line.at(2).whole};
    } else if (head == "constant") {
      constants.push_back(line.at(1).word);
    } else if (head == "written") {
      for (size_t k = 1; k < line.parts.size(); k++) written.push_back(place(k));
    } else if (head == "results") {
      for (size_t k = 1; k < line.parts.size(); k++) results.push_back(place(k));
    } else {
      return false;
    }
    return true;
  }

  // The number among the tensors of a call of what is at this place among all arguments.
  size_t given(size_t place) const {
    for (size_t k = 0; k < arguments.size(); k++) {
      if (arguments[k].place == place) return k;
    }
    refuse("an argument is missing in its program");
  }

  void machine(const std::string& made) const {
#if defined(__x86_64__)
    const std::string here = "x86_64";
#elif defined(__aarch64__)
    const std::string here = "aarch64";
#else
    const std::string here = "another processor";
#endif
    if (made != here) refuse("it was made for " + made + ", this is " + here);
  }

  static std::string lacking(const Text& line) {
    const auto here = features();
    std::string missing;
    for (size_t k = 1; k < line.parts.size(); k++) {
      if (!here.count(line.parts[k].word)) missing += (missing.empty() ? "" : ", ") + line.parts[k].word;
    }
    return missing;
  }

  // What is written is written when all is read: no other input may show it.
  void refuse_shared(const std::vector<IValue>& inputs) const {
    for (size_t place : written) {
      const auto [begin, end] = bytes_of(inputs.at(place).toTensor());
      for (size_t other = 0; other < inputs.size(); other++) {
        if (other == place || !inputs[other].isTensor()) continue;
        const auto [from, to] = bytes_of(inputs[other].toTensor());
        if (from < end && begin < to) {
          throw Error(function + " writes to a tensor that shares memory with another one that it is "
                      "given, or with its state: give it a tensor of its own, by .clone()");
        }
      }
    }
  }

  static std::pair<uintptr_t, uintptr_t> bytes_of(const at::Tensor& tensor) {
    int64_t last = tensor.numel() ? 1 : 0;
    for (int64_t d = 0; d < tensor.dim() && last; d++) last += (tensor.size(d) - 1) * tensor.stride(d);
    const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
    return {begin, begin + static_cast<uintptr_t>(last) * tensor.element_size()};
  }

  Values checked(const std::vector<at::Tensor>& given) const {
    if (given.size() != arguments.size()) {
      throw Error(function + " takes " + std::to_string(arguments.size()) + " tensors, given are " +
                  std::to_string(given.size()));
    }
    for (size_t k = 0; k < given.size(); k++) kind(k, given[k]);
    Values sizes;
    for (const Text& line : open) {
      sizes[line.at(1).word] = given[this->given(static_cast<size_t>(line.at(2).whole))].size(line.at(3).whole);
    }
    for (const Text& line : conditions) {
      if (evaluated(line.at(1), sizes).toBool()) continue;
      std::string where;
      for (const auto& [name, value] : sizes) {
        where += (where.empty() ? "" : ", ") + name + " = " + std::to_string(value.toInt());
      }
      throw Error(where + ": made for sizes with " + line.at(2).word);
    }
    for (size_t k = 0; k < given.size(); k++) layout(k, given[k], sizes);
    return sizes;
  }

  void kind(size_t k, const at::Tensor& given) const {
    const Argument& wanted = arguments[k];
    if (!given.defined()) throw Error("tensor " + std::to_string(k) + " is undefined");
    const auto& dtypes = c10::getStringToDtypeMap();
    const bool same = dtypes.at(wanted.dtype) == given.scalar_type() &&
                      given.device().str() == wanted.device && given.layout() == at::kStrided &&
                      static_cast<size_t>(given.dim()) == wanted.shape.parts.size() - 1;
    if (!same) {
      throw Error("tensor " + std::to_string(k) + " is " + std::string(given.toString()) + " " +
                  shown(given.sizes()) + " on " + given.device().str() + ", the file is made for " +
                  wanted.dtype + " of " + std::to_string(wanted.shape.parts.size() - 1) +
                  " dimensions on " + wanted.device);
    }
    if (given.is_conj() || given.is_neg()) {
      throw Error("tensor " + std::to_string(k) + " is a lazy conjugate or negative: resolve it first");
    }
    if (given.requires_grad() && at::GradMode::is_enabled()) {
      throw Error("tensor " + std::to_string(k) + " requires grad, and the file is made under "
                  "torch.no_grad(): detach it, or call under at::NoGradGuard");
    }
  }

  void layout(size_t k, const at::Tensor& given, const Values& sizes) const {
    const auto shape = numbers(arguments[k].shape, sizes), stride = numbers(arguments[k].stride, sizes);
    if (given.sizes() != at::IntArrayRef(shape)) {
      throw Error("tensor " + std::to_string(k) + " has the sizes " + shown(given.sizes()) +
                  ", the file is made for " + shown(shape));
    }
    for (size_t d = 0; d < shape.size() && given.numel(); d++) {
      if (shape[d] > 1 && given.stride(static_cast<int64_t>(d)) != stride[d]) {
        throw Error("tensor " + std::to_string(k) + " has the strides " + shown(given.strides()) +
                    ", the file is made for " + shown(stride) + ": call .contiguous()");
      }
    }
  }
};

Package::Package(const std::string& path) {
  try {
    parts_ = std::make_unique<Parts>(path);
  } catch (const c10::Error& error) {  // of torch, of tensors that it cannot read
    throw Error(path + ": " + error.what_without_backtrace());
  } catch (const Error& error) {
    const std::string said = error.what();
    throw Error(said.rfind(path, 0) == 0 ? said : path + ": " + said);
  }
}
Package::~Package() = default;
Package::Package(Package&&) noexcept = default;
Package& Package::operator=(Package&&) noexcept = default;

std::vector<at::Tensor> Package::operator()(const std::vector<at::Tensor>& arguments) const {
  parts_->checked(arguments);
  const at::NoGradGuard without_grad;
  const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
  std::vector<IValue> inputs;
  for (const Input& each : parts_->inputs) {
    switch (each.from) {
      case Input::weight: inputs.emplace_back(parts_->weights.at(each.number)); break;
      case Input::stored: inputs.emplace_back(parts_->stored.at(each.number)); break;
      case Input::given: inputs.emplace_back(arguments[each.number]); break;
      case Input::size: inputs.emplace_back(arguments[each.number].size(each.dim)); break;
      case Input::stride: inputs.emplace_back(arguments[each.number].stride(each.dim)); break;
    }
  }
  parts_->refuse_shared(inputs);
  const std::vector<IValue> made = parts_->program->run(inputs);
  std::vector<at::Tensor> results;
  for (size_t place : parts_->results) results.push_back(made.at(place).toTensor());
  return results;
}

const std::string& Package::function() const { return parts_->function; }

std::map<std::string, at::Tensor> Package::state() const {
  std::map<std::string, at::Tensor> found;
  for (const Input& each : parts_->inputs) {
    if (each.from == Input::weight && !each.name.empty()) found[each.name] = parts_->weights.at(each.number);
  }
  return found;
}

}  // namespace flambeau
