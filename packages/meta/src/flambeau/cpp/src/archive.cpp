#include "archive.h"

#include <cstdint>
#include <fstream>
#include <iterator>

#include "flambeau/package.h"

namespace flambeau {
namespace {

// APPNOTE.TXT of the zip format, 4.3: all numbers are little-endian.
constexpr uint32_t end_signature = 0x06054b50, entry_signature = 0x02014b50,
                   local_signature = 0x04034b50;
constexpr size_t end_bytes = 22, entry_bytes = 46, local_bytes = 30, most_comment = 0xffff;

struct Bytes {
  const std::string& data;
  const std::string& path;

  uint64_t number(size_t at, size_t width) const {
    if (at + width > data.size()) fail();
    uint64_t value = 0;
    for (size_t k = width; k-- > 0;) value = value << 8 | static_cast<unsigned char>(data[at + k]);
    return value;
  }
  std::string text(size_t at, size_t length) const {
    if (at + length > data.size() || at + length < at) fail();
    return data.substr(at, length);
  }
  [[noreturn]] void fail() const {
    throw Error(path + ": not a file of Flambeau, or cut off");
  }
};

uint32_t checksum(const std::string& data) {
  static const auto table = [] {
    std::vector<uint32_t> made(256);
    for (uint32_t k = 0; k < 256; k++) {
      uint32_t value = k;
      for (int bit = 0; bit < 8; bit++) value = value & 1 ? 0xedb88320u ^ value >> 1 : value >> 1;
      made[k] = value;
    }
    return made;
  }();
  uint32_t value = 0xffffffffu;
  for (unsigned char each : data) value = table[(value ^ each) & 0xff] ^ value >> 8;
  return value ^ 0xffffffffu;
}

size_t end_of(const Bytes& bytes) {
  const size_t size = bytes.data.size();
  for (size_t back = end_bytes; back <= size && back <= end_bytes + most_comment; back++) {
    if (bytes.number(size - back, 4) == end_signature) return size - back;
  }
  bytes.fail();
}

}  // namespace

std::map<std::string, std::string> unpacked(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(path + ": there is no such file, or it may not be read");
  const std::string data{std::istreambuf_iterator<char>(file), {}};
  const Bytes bytes{data, path};
  const size_t end = end_of(bytes);
  const uint64_t count = bytes.number(end + 10, 2);
  size_t at = bytes.number(end + 16, 4);
  if (at == 0xffffffffu || count == 0xffff) {
    throw Error(path + ": larger than 4 GiB, which flambeau.load reads in Python");
  }
  std::map<std::string, std::string> found;
  for (uint64_t k = 0; k < count; k++) {
    if (bytes.number(at, 4) != entry_signature) bytes.fail();
    const uint64_t method = bytes.number(at + 10, 2), expected = bytes.number(at + 16, 4);
    const uint64_t size = bytes.number(at + 24, 4), name_length = bytes.number(at + 28, 2);
    const std::string name = bytes.text(at + entry_bytes, name_length);
    const size_t local = bytes.number(at + 42, 4);
    if (method != 0 || size == 0xffffffffu || bytes.number(local, 4) != local_signature) bytes.fail();
    const size_t begin =
        local + local_bytes + bytes.number(local + 26, 2) + bytes.number(local + 28, 2);
    std::string content = bytes.text(begin, size);
    if (checksum(content) != expected) {
      throw Error(path + ": " + name + " is not what was written (its checksum differs)");
    }
    found[name] = std::move(content);
    at += entry_bytes + name_length + bytes.number(at + 30, 2) + bytes.number(at + 32, 2);
  }
  return found;
}

}  // namespace flambeau
