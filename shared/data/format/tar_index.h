// tar_fields: which members of a sample in a tar file hold the values that the settings name.
//
// Members whose names are equal up to the first dot after the last slash, and that follow one
// another, are a sample; what comes after that dot is the extension: WebDataset's rule. The
// settings name extensions: "jpg;png;webp" is the first of these that the sample has,
// "json:meta.class" a value in the JSON that the member holds. A member npy, or with another word
// before that, is an array.
//
// Threads: values; pure functions.
// Errors:  kInvalidArgument, naming the setting.
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

// Maximum size in bytes of a member that is read at once, which texts are not.
inline constexpr uint64_t kMaxTarMember = uint64_t{256} << 20;

struct TarField {
  std::vector<std::string> extensions;  // the first that is there counts
  std::string json_key;                 // empty: the member is the value
  bool is_label = false;

  bool is_json() const { return !json_key.empty(); }
  // An array of numpy's: all of its extensions are npy, or end in .npy.
  bool is_npy = false;
  // The place of the extension among those of this field.
  std::optional<size_t> extension_rank(std::string_view extension) const;
};

// One each of spec.names.
Result<std::vector<TarField>> tar_fields(const DatasetRequest& request,
                                         const record::SampleSpec& spec);

struct TarName {
  std::string_view key;
  std::string_view extension;
};
// Nothing where the name has no extension, or begins with a dot: it belongs to no sample.
std::optional<TarName> split_tar_name(std::string_view name);

// Extensions do not depend on the case.
std::string lower_case(std::string_view text);

// SequenceMember: the value of one field of a sequence, out of the member of a tar file that holds it.
//
// Threads: one at a time. The value points into the member's bytes and into this object's memory,
//          until the next call.
// Errors:  kCorrupt, naming the member's extension; the caller adds which sample.
class SequenceMember {
 public:
  // `values_per_step`: how many numbers a place of the field has.
  Status read(const TarField& field, uint64_t values_per_step, std::span<const std::byte> member,
              record::FieldValue& value);

 private:
  std::unique_ptr<JsonValues> json_;
};

// tar_index: goes through one tar file and puts its samples into the index.
//
// Headers are read, and labels and JSON members; other contents are skipped, but those of sequences,
// which are read for their length. A row of the table is a TarLocation for each field but the label.
//
// Errors: kCorrupt, naming file, sample and offset; those of RecordIndexBuilder.

// Where the content of a member lies, in one number of the table: the block above, the bytes below.
struct TarLocation {
  uint64_t content = 0;  // offset, a multiple of kTarBlock
  uint64_t size = 0;

  static constexpr uint64_t kMaxCount = uint64_t{1} << 32;  // blocks (2 TiB), and bytes of a member
  uint64_t to_number() const { return (content / kTarBlock) << 32 | size; }
  static TarLocation of_number(uint64_t number) {
    return {.content = (number >> 32) * kTarBlock, .size = number & (kMaxCount - 1)};
  }
};

// What was gone past, for the log.
struct TarIgnored {
  uint64_t members = 0;      // files that belong to no sample
  uint64_t without_end = 0;  // shards that lack their end
  std::string first_without_end;
};

Status index_tar_shard(const record::SampleSpec& spec, std::span<const TarField> tar_fields,
                       files::ByteSource& shard, record::RecordIndexBuilder& index,
                       TarIgnored& ignored);

uint64_t tar_row_width(const record::SampleSpec& spec);

}  // namespace stoker::data::format
