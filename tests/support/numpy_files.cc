#include "tests/support/numpy_files.h"

#include "tests/support/packed_bytes.h"

namespace stoker::test {
namespace {

std::string little(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

struct Archive {
  std::string bytes;
  std::string directory;
  uint64_t members = 0;
};

// `is_zip64`: store lengths and offsets of members in the ZIP64 extra field.
Archive build_archive(const std::vector<std::pair<std::string, std::string>>& members,
                      bool deflated, bool is_zip64) {
  Archive archive{.members = members.size()};
  for (const auto& [name, content] : members) {
    const std::string packed = deflated ? deflate(content) : content;
    const std::string method = little(deflated ? 8 : 0, 2);
    const uint64_t offset = archive.bytes.size();
    const std::string middle = little(0, 4) + little(crc32_of(content), 4);
    archive.bytes += little(0x04034b50, 4) + little(45, 2) + little(0, 2) + method + middle +
                     little(packed.size(), 4) + little(content.size(), 4) + little(name.size(), 2) +
                     little(0, 2) + name + packed;
    const std::string extra = little(1, 2) + little(24, 2) + little(content.size(), 8) +
                              little(packed.size(), 8) + little(offset, 8);
    archive.directory += little(0x02014b50, 4) + little(45, 2) + little(45, 2) + little(0, 2) +
                         method + middle + little(is_zip64 ? ~0ull : packed.size(), 4) +
                         little(is_zip64 ? ~0ull : content.size(), 4) + little(name.size(), 2) +
                         little(is_zip64 ? extra.size() : 0, 2) + little(0, 2) + little(0, 8) +
                         little(is_zip64 ? ~0ull : offset, 4) + name + (is_zip64 ? extra : "");
  }
  return archive;
}

}  // namespace

std::string npy_with_header(const std::string& dict, const std::string& data, char version) {
  const size_t digits = version == 1 ? 2 : 4;
  std::string header = dict;
  while ((8 + digits + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  return std::string("\x93NUMPY") + version + '\0' + little(header.size(), digits) + header + data;
}

std::string npy(const std::string& descr, const std::string& shape, const std::string& data,
                char version) {
  return npy_with_header(
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }", data,
      version);
}

std::string zip(const std::vector<std::pair<std::string, std::string>>& members, bool deflated) {
  const Archive archive = build_archive(members, deflated, false);
  return archive.bytes + archive.directory + little(0x06054b50, 4) + little(0, 4) +
         little(archive.members, 2) + little(archive.members, 2) +
         little(archive.directory.size(), 4) + little(archive.bytes.size(), 4) + little(0, 2);
}

std::string zip64(const std::vector<std::pair<std::string, std::string>>& members) {
  const Archive archive = build_archive(members, false, true);
  const uint64_t end = archive.bytes.size() + archive.directory.size();
  return archive.bytes + archive.directory + little(0x06064b50, 4) + little(44, 8) + little(45, 2) +
         little(45, 2) + little(0, 8) + little(archive.members, 8) + little(archive.members, 8) +
         little(archive.directory.size(), 8) + little(archive.bytes.size(), 8) +
         little(0x07064b50, 4) + little(0, 4) + little(end, 8) + little(1, 4) +
         little(0x06054b50, 4) + little(0, 4) + little(0xffff, 2) + little(0xffff, 2) +
         little(~0ull, 4) + little(~0ull, 4) + little(0, 2);
}

}  // namespace stoker::test
