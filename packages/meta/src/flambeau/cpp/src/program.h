// The steps of a program, run one after the other.
#pragma once

#include <ATen/core/ivalue.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "python.h"
#include "text.h"

namespace flambeau {

using Values = std::map<std::string, c10::IValue>;

// An expression, prepared: operators are found and names are places.
class Expression;

class Program {
 public:
  // `constants` are known by their names in every call. Throws Error for an operator that this torch
  // has not, and for what this version has no meaning for.
  Program(const std::vector<Text>& steps, Kernels kernels, const Values& constants);
  ~Program();
  // What the steps return. Empties `inputs`.
  std::vector<c10::IValue> run(std::vector<c10::IValue>& inputs) const;

 private:
  struct Step;
  std::vector<Step> steps_;
  std::vector<size_t> inputs_;
  std::vector<std::pair<size_t, c10::IValue>> constants_;
  size_t places_ = 0;
  Kernels kernels_;
};

// A number, of names that have a value. Throws Error.
c10::IValue evaluated(const Text& text, const Values& values);

}  // namespace flambeau
