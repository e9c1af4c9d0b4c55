// TarReader: goes through the members of a tar file by their headers, skipping what is in them.
//
// Format:  blocks of 512 bytes. ustar, and the older form without its magic; GNU's long names and
//          sizes in base 256; pax headers (path and size). Sparse members, parts of archives in
//          several volumes, and pax headers that set a path or a size for all members are refused.
// Threads: one at a time.
// Errors:  kCorrupt, naming the offset; those of the source. Every number in a header is checked
//          against the length of the file before it is used.
#pragma once

#include <cstdint>
#include <string>

#include "shared/base/status.h"
#include "shared/data/files/byte_source.h"

namespace stoker::data::format {

constexpr uint64_t kTarBlock = 512;

struct TarMember {
  std::string name;
  uint64_t header = 0;   // offset of the last block before the content
  uint64_t content = 0;  // offset
  uint64_t size = 0;     // of the content, in bytes
  bool is_file = false;  // no folder, link or device
};

class TarReader {
 public:
  explicit TarReader(files::ByteSource& file) : file_(file) {}

  // The next member; false at the end.
  Result<bool> next(TarMember& member);
  // At the end: whether the file has the zero block that ends an archive. One that was cut between
  // two members has none.
  bool has_end_block() const { return has_end_block_; }

 private:
  struct Header {
    char type = 0;
    uint64_t size = 0;
    std::string name;
  };
  // What headers before a member say about it.
  struct Overrides {
    std::string name;
    uint64_t size = 0;
    bool has_size = false;
    bool any = false;
  };

  Result<bool> read_header(Header& header);
  Status check_rest();
  Status take_long_name(const Header& header, Overrides& overrides);
  Status take_pax(const Header& header, Overrides& overrides);
  Status take_pax_record(std::string_view key, std::string_view value, bool is_global,
                         Overrides& overrides);
  Status skip(uint64_t size);
  Status wrong(const std::string& what) const;

  files::ByteSource& file_;
  uint64_t at_ = 0;      // of the block that is read next
  uint64_t header_ = 0;  // of the block that was read last; in messages
  bool has_end_block_ = false;
};

}  // namespace stoker::data::format
