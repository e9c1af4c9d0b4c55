// Builds npy and npz files in the format that NumPy writes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace stoker::test {

// An npy file, for example with `descr` "<f4", `shape` "(3, 2)" and `data` the raw bytes of the
// elements.
std::string npy(const std::string& descr, const std::string& shape, const std::string& data,
                char version = 1);
// A file with an arbitrary header, of version 1, 2 or 3.
std::string npy_with_header(const std::string& dict, const std::string& data, char version = 1);

template <typename Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

// An archive of (name, content) members as written by Python's zipfile, stored or deflated.
std::string zip(const std::vector<std::pair<std::string, std::string>>& members, bool deflated);
// The same with a ZIP64 end of central directory, as for more than 65,535 members or 4 GiB.
std::string zip64(const std::vector<std::pair<std::string, std::string>>& members);

}  // namespace stoker::test
