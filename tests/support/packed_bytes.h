// packed bytes: what gzip and deflate make of a text, for tests of what unpacks them.
#pragma once

#include <cstdint>
#include <string>

namespace stoker::test {

std::string gzip(const std::string& content);     // a whole file
std::string deflate(const std::string& content);  // the bare stream, as zip archives hold it
uint32_t crc32_of(const std::string& content);

}  // namespace stoker::test
