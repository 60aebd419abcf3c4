// The files in a package, which is a zip file whose entries are stored as they are.
#pragma once

#include <map>
#include <string>

namespace flambeau {

// By name; the checksum of each is looked at. Throws Error.
std::map<std::string, std::string> unpacked(const std::string& path);

}  // namespace flambeau
