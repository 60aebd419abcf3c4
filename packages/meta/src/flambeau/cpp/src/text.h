// The text of a program: lists in parentheses of names, numbers, strings and lists.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flambeau {

struct Text {
  enum Kind { list, name, integer, real, string } kind = list;
  std::string word;  // of a name or a string
  int64_t whole = 0;
  double number = 0;
  std::vector<Text> parts;

  const std::string& head() const;       // the name that a list begins with
  const Text& at(size_t place) const;    // throws Error where there is no such part
};

// The lists in a text. Throws Error.
std::vector<Text> parsed(const std::string& text);

}  // namespace flambeau
