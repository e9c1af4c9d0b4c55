#include "tests/support/numpy_files.h"

#include "tests/support/packed_bytes.h"

namespace stoker::test {
namespace {

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
    const std::string method = little_endian(deflated ? 8 : 0, 2);
    const uint64_t offset = archive.bytes.size();
    const std::string middle = little_endian(0, 4) + little_endian(crc32_of(content), 4);
    archive.bytes += little_endian(0x04034b50, 4) + little_endian(45, 2) + little_endian(0, 2) +
                     method + middle + little_endian(packed.size(), 4) +
                     little_endian(content.size(), 4) + little_endian(name.size(), 2) +
                     little_endian(0, 2) + name + packed;
    const std::string extra = little_endian(1, 2) + little_endian(24, 2) +
                              little_endian(content.size(), 8) + little_endian(packed.size(), 8) +
                              little_endian(offset, 8);
    archive.directory +=
        little_endian(0x02014b50, 4) + little_endian(45, 2) + little_endian(45, 2) +
        little_endian(0, 2) + method + middle + little_endian(is_zip64 ? ~0ull : packed.size(), 4) +
        little_endian(is_zip64 ? ~0ull : content.size(), 4) + little_endian(name.size(), 2) +
        little_endian(is_zip64 ? extra.size() : 0, 2) + little_endian(0, 2) + little_endian(0, 8) +
        little_endian(is_zip64 ? ~0ull : offset, 4) + name + (is_zip64 ? extra : "");
  }
  return archive;
}

}  // namespace

std::string npy_with_header(const std::string& dict, const std::string& data, char version) {
  const size_t digits = version == 1 ? 2 : 4;
  std::string header = dict;
  while ((8 + digits + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  return std::string("\x93NUMPY") + version + '\0' + little_endian(header.size(), digits) + header +
         data;
}

std::string npy(const std::string& descr, const std::string& shape, const std::string& data,
                char version) {
  return npy_with_header(
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }", data,
      version);
}

std::string zip(const std::vector<std::pair<std::string, std::string>>& members, bool deflated) {
  const Archive archive = build_archive(members, deflated, false);
  return archive.bytes + archive.directory + little_endian(0x06054b50, 4) + little_endian(0, 4) +
         little_endian(archive.members, 2) + little_endian(archive.members, 2) +
         little_endian(archive.directory.size(), 4) + little_endian(archive.bytes.size(), 4) +
         little_endian(0, 2);
}

std::string zip64(const std::vector<std::pair<std::string, std::string>>& members) {
  const Archive archive = build_archive(members, false, true);
  const uint64_t end = archive.bytes.size() + archive.directory.size();
  return archive.bytes + archive.directory + little_endian(0x06064b50, 4) + little_endian(44, 8) +
         little_endian(45, 2) + little_endian(45, 2) + little_endian(0, 8) +
         little_endian(archive.members, 8) + little_endian(archive.members, 8) +
         little_endian(archive.directory.size(), 8) + little_endian(archive.bytes.size(), 8) +
         little_endian(0x07064b50, 4) + little_endian(0, 4) + little_endian(end, 8) +
         little_endian(1, 4) + little_endian(0x06054b50, 4) + little_endian(0, 4) +
         little_endian(0xffff, 2) + little_endian(0xffff, 2) + little_endian(~0ull, 4) +
         little_endian(~0ull, 4) + little_endian(0, 2);
}

}  // namespace stoker::test
