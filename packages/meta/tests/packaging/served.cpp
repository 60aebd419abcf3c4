// served FOLDER...: in each, net.flambeau is called with each in-K.pt, a list of tensors; what it gives
// is written to out-K.pt, what it refuses to out-K.txt. With a file first-of-second, the memory of the
// first argument is that in which the second begins.
#include <flambeau/package.h>
#include <ATen/core/ivalue.h>

#include <fstream>
#include <iterator>
#include <thread>

namespace torch::jit {  // serialization/pickle.h, which includes most of torch
std::vector<char> pickle_save(const c10::IValue& value);
c10::IValue pickle_load(const std::vector<char>& data);
}  // namespace torch::jit

static std::vector<char> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

static void call(const flambeau::Package& net, const std::string& folder, int k) {
  const std::string number = std::to_string(k);
  const c10::IValue given = torch::jit::pickle_load(read(folder + "/in-" + number + ".pt"));
  std::vector<at::Tensor> arguments;
  for (const c10::IValue& each : given.toListRef()) arguments.push_back(each.toTensor());
  if (std::ifstream(folder + "/first-of-second")) {
    arguments[0] = arguments[1].flatten().narrow(0, 0, arguments[0].numel()).view_as(arguments[0]);
  }
  try {
    const std::vector<char> made = torch::jit::pickle_save(net(arguments));
    std::ofstream(folder + "/out-" + number + ".pt", std::ios::binary).write(made.data(), made.size());
  } catch (const flambeau::Error& error) {
    std::ofstream(folder + "/out-" + number + ".txt") << error.what();
  }
}

int main(int count, char** folders) {
  for (int k = 1; k < count; k++) {
    const std::string folder = folders[k];
    try {
      const flambeau::Package net(folder + "/net.flambeau");
      std::vector<std::thread> threads;  // all its calls at the same time
      for (int n = 0; !read(folder + "/in-" + std::to_string(n) + ".pt").empty(); n++) {
        threads.emplace_back(call, std::cref(net), folder, n);
      }
      for (std::thread& each : threads) each.join();
    } catch (const flambeau::Error& error) {
      std::ofstream(folder + "/refused.txt") << error.what();
    }
  }
}
