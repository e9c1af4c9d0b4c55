// TarReader: iterates over the members of a tar file or stream. Reads their headers and skips their
// contents.
//
// Format:  blocks of 512 bytes. ustar and the older format without a magic number; GNU long names
//          and base-256 sizes; pax headers (path and size). Rejected: sparse members, parts of
//          multi-volume archives, and pax headers that set a path or a size for all members.
// Threads: one at a time.
// Errors:  kCorrupt with the offset; those of the source. Every number in a header is checked
//          against the size of the file before it is used. In a stream, whose size is not known,
//          the caller checks the size of a member; a stream that ends in a member is an error of
//          the following next(). Extended headers have limits, so that next() needs at most 8 MiB
//          from offset().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shared/base/status.h"
#include "shared/data/files/byte_source.h"

namespace stoker::data::format {

constexpr uint64_t kTarBlock = 512;

struct TarMember {
  std::string name;
  uint64_t begin = 0;    // offset of its first header, which can be an extended one
  uint64_t header = 0;   // offset of the last block before the content
  uint64_t content = 0;  // offset
  uint64_t size = 0;     // of the content, in bytes
  bool is_file = false;  // not a folder, link or device
  bool is_link = false;  // hard or symbolic; the content is that of another member or file
};

// The error of a record that needs the content of a link: "member 'cls' is a link …".
Status link_in_tar(std::string_view extension);

class TarReader {
 public:
  // What may follow the zero block that ends an archive, apart from further ones.
  enum class AfterEnd {
    kNothing,  // members would be ignored silently
    kArchives  // cat a.tar b.tar: the first next() after the last member of each returns false
  };

  // `begin`: where the first header is, for reading from the middle.
  explicit TarReader(files::ByteSource& file, uint64_t begin = 0,
                     AfterEnd after_end = AfterEnd::kNothing)
      : file_(file), after_end_(after_end), at_(begin) {}

  // The next member; false at the end.
  Result<bool> next(TarMember& member);
  // Offset of the first header of the next member, after the content of the last one.
  uint64_t offset() const { return at_; }
  // Continues with the header at `offset`.
  void seek(uint64_t offset);
  // After next() has returned false: whether there is the zero block that ends an archive. A file
  // that was truncated between two members has none, and neither has the end of joined archives.
  bool has_end_block() const { return has_end_block_; }

 private:
  struct Header {
    char type = 0;
    uint64_t size = 0;
    std::string name;
  };
  // Values from extended headers that apply to the next member.
  struct Overrides {
    std::string name;
    uint64_t size = 0;
    bool has_size = false;
    bool any = false;
  };

  Result<bool> read_header(Header& header);
  Status check_rest();
  Status skip_zeros();
  Status take_long_name(const Header& header, Overrides& overrides);
  Status take_pax(const Header& header, Overrides& overrides);
  Status take_pax_record(std::string_view key, std::string_view value, bool is_global,
                         Overrides& overrides);
  Status skip(uint64_t size);
  Status long_name(uint64_t size) const;
  Status wrong(const std::string& what) const;

  files::ByteSource& file_;
  const AfterEnd after_end_;
  uint64_t at_;               // offset of the next block to read
  uint64_t header_ = 0;       // offset of the last header read; for messages
  uint64_t content_end_ = 0;  // of the last member, without padding
  bool has_end_block_ = false;
};

}  // namespace stoker::data::format
