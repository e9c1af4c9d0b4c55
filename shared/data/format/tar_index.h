// tar_fields: maps the configured field names to members of a sample in a tar file.
//
// WebDataset's rule: consecutive members whose names are equal up to the first dot after the last
// slash form a sample, and the rest of the name after that dot is the extension. Fields are
// configured by extension: "jpg;png;webp" is the first of these that the sample has,
// "json:meta.class" a value in the JSON of the member. A member with the extension npy, or one that
// ends in .npy, is an array.
//
// Threads: values; pure functions.
// Errors:  kInvalidArgument with the configuration key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset_request.h"
#include "shared/data/files/byte_source.h"
#include "shared/data/format/json_values.h"
#include "shared/data/format/npy_value.h"
#include "shared/data/format/tar_reader.h"
#include "shared/data/record/field_value.h"
#include "shared/data/record/record_index.h"
#include "shared/data/record/sample_spec.h"

namespace stoker::data::format {

// Maximum size in bytes of a member that is read as a whole; texts are read in parts.
inline constexpr uint64_t kMaxTarMember = uint64_t{256} << 20;
inline constexpr size_t kMaxTarMembers = 1000;  // per sample
inline constexpr size_t kMaxTarKey = 4096;      // bytes of the key of a sample

struct TarField {
  std::vector<std::string> extensions;  // in order of preference
  std::string json_key;                 // empty: the member itself is the value
  bool is_label = false;                // or a group: the index has what is needed of it
  bool is_priority = false;
  bool is_caption = false;  // can be a list of texts
  bool can_be_empty = false;

  bool is_json() const { return !json_key.empty(); }
  // For its json_key.
  std::unique_ptr<JsonValues> make_json(uint64_t values_per_step = 0) const;
  // The value is a NumPy array: each extension is npy or ends in .npy.
  bool is_npy = false;
  // Index of the extension among those of this field.
  std::optional<size_t> extension_rank(std::string_view extension) const;
};

// One field for each of spec.names.
Result<std::vector<TarField>> tar_fields(const DatasetRequest& request,
                                         const record::SampleSpec& spec);

struct TarName {
  std::string_view key;
  std::string_view extension;
};
// nullopt if the name has no extension or starts with a dot; such a member belongs to no sample.
std::optional<TarName> split_tar_name(std::string_view name);

// Extensions are case-insensitive.
std::string lower_case(std::string_view text);

// TarMembers: of one sample, for each field the member with its preferred extension.
//
// Threads: one at a time.
// Errors:  kCorrupt: two members with the same extension, or more than kMaxTarMembers.
class TarMembers {
 public:
  struct Member {
    size_t rank = 0;       // of its extension, among those of the field
    uint64_t content = 0;  // offset
    uint64_t size = 0;
    bool is_link = false;
  };

  explicit TarMembers(std::span<const TarField> fields) : fields_(fields), found_(fields.size()) {}

  void clear();
  Status add(const TarMember& member, std::string_view extension);
  const std::optional<Member>& of(size_t field) const { return found_[field]; }
  // Of all members, in lower case.
  std::span<const std::string> extensions() const { return extensions_; }

 private:
  const std::span<const TarField> fields_;
  std::vector<std::optional<Member>> found_;
  std::vector<std::string> extensions_;
};

// SequenceMember: decodes the value of one field of a sequence from its member in a tar file.
//
// Threads: one at a time. The value refers to the bytes of the member and to memory of this object,
//          and is valid until the next call.
// Errors:  kCorrupt with the extension of the member; the caller adds the sample.
class SequenceMember {
 public:
  // `values_per_step`: number of elements of the field per time step.
  Status read(const TarField& field, uint64_t values_per_step, std::span<const std::byte> member,
              record::FieldValue& value);

 private:
  std::unique_ptr<JsonValues> json_;
};

// tar_index: scans one tar file and adds its samples to the index.
//
// Reads headers, labels and JSON members. The contents of other members are skipped, except those
// of sequences, which are read to determine their length. A row of the table has one TarLocation
// for each field except the label.
//
// Errors: kCorrupt with file, sample and offset; those of RecordIndexBuilder.

// Location of a member's content, packed into one number of the table: block number in the upper 32
// bits, size in bytes in the lower 32.
struct TarLocation {
  uint64_t content = 0;  // offset, a multiple of kTarBlock
  uint64_t size = 0;

  static constexpr uint64_t kMaxCount = uint64_t{1} << 32;  // blocks (2 TiB), and bytes of a member
  uint64_t to_number() const { return (content / kTarBlock) << 32 | size; }
  static TarLocation of_number(uint64_t number) {
    return {.content = (number >> 32) * kTarBlock, .size = number & (kMaxCount - 1)};
  }
};

// What the scan ignored, for the log.
struct TarIgnored {
  uint64_t members = 0;      // files that belong to no sample
  uint64_t without_end = 0;  // shards without an end-of-archive block
  std::string first_without_end;
};

Status index_tar_shard(const record::SampleSpec& spec, std::span<const TarField> tar_fields,
                       files::ByteSource& shard, record::RecordIndexBuilder& index,
                       TarIgnored& ignored);

uint64_t tar_row_width(const record::SampleSpec& spec);

}  // namespace stoker::data::format
