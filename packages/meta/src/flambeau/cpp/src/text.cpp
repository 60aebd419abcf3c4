#include "text.h"

#include <cctype>
#include <cstdlib>
#include <limits>

#include "flambeau/package.h"

namespace flambeau {
namespace {

struct Reader {
  const std::string& text;
  size_t at = 0;

  [[noreturn]] void fail() const {
    throw Error("the program of the package cannot be read at character " + std::to_string(at));
  }
  bool done() {
    while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at]))) at++;
    return at == text.size();
  }
  Text next() {
    if (done()) fail();
    if (text[at] == '(') return in_parentheses();
    if (text[at] == '"') return quoted();
    return word();
  }
  Text in_parentheses() {
    Text made;
    for (at++; !done() && text[at] != ')';) made.parts.push_back(next());
    if (at == text.size()) fail();
    at++;
    return made;
  }
  Text quoted() {  // as JSON spells strings
    Text made;
    made.kind = Text::string;
    for (at++; at < text.size() && text[at] != '"'; at++) {
      if (text[at] != '\\') {
        made.word += text[at];
        continue;
      }
      if (++at == text.size()) fail();
      switch (text[at]) {
        case 'n': made.word += '\n'; break;
        case 't': made.word += '\t'; break;
        case 'u': made.word += '?', at += 4; break;  // only words for people have one
        default: made.word += text[at];
      }
    }
    if (at >= text.size()) fail();
    at++;
    return made;
  }
  Text word() {
    const size_t begin = at;
    while (at < text.size() && !std::isspace(static_cast<unsigned char>(text[at])) &&
           text[at] != '(' && text[at] != ')') {
      at++;
    }
    if (at == begin) fail();
    Text made;
    made.word = text.substr(begin, at - begin);
    const char* start = made.word.c_str();
    const char first = start[0] == '-' ? start[1] : start[0];
    char* end = nullptr;
    if (made.word == "+inf" || made.word == "+nan") {
      made.kind = Text::real;
      made.number = made.word == "+inf" ? std::numeric_limits<double>::infinity()
                                        : std::numeric_limits<double>::quiet_NaN();
    } else if (std::isdigit(static_cast<unsigned char>(first))) {
      const bool real = made.word.find('x') != std::string::npos;
      made.kind = real ? Text::real : Text::integer;
      if (real) {
        made.number = std::strtod(start, &end);
      } else {
        made.whole = std::strtoll(start, &end, 10);
      }
      if (*end != '\0') fail();
    } else {
      made.kind = Text::name;
    }
    return made;
  }
};

}  // namespace

const std::string& Text::head() const { return at(0).word; }

const Text& Text::at(size_t place) const {
  if (place >= parts.size()) throw Error("the program of the package has a list that is too short");
  return parts[place];
}

std::vector<Text> parsed(const std::string& text) {
  Reader reader{text};
  std::vector<Text> found;
  while (!reader.done()) found.push_back(reader.next());
  return found;
}

}  // namespace flambeau
