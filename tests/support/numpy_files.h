// numpy files: npy and npz files as numpy writes them, for tests of what reads them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace stoker::test {

// A file: `descr` is "<f4", `shape` "(3, 2)", `data` the numbers' bytes.
std::string npy(const std::string& descr, const std::string& shape, const std::string& data,
                char version = 1);
// A file with any header, of version 1, 2 or 3.
std::string npy_with_header(const std::string& dict, const std::string& data, char version = 1);

template <typename Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

// An archive of these members (name, content), as zipfile writes it: stored, or deflated.
std::string zip(const std::vector<std::pair<std::string, std::string>>& members, bool deflated);
// The same with a ZIP64 end, as for more than 65,535 members or 4 GiB.
std::string zip64(const std::vector<std::pair<std::string, std::string>>& members);

}  // namespace stoker::test
