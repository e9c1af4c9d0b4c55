// tar_index: goes through one tar file and puts its samples into the index.
//
// Headers are read, and labels and JSON members; other contents are skipped, but those of sequences,
// which are read for their length. A row of the table is a TarLocation for each field but the label.
//
// Errors: kCorrupt, naming file, sample and offset; those of RecordIndexBuilder.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/dataset/byte_source.h"
#include "shared/dataset/record_fields.h"
#include "shared/dataset/record_index.h"
#include "shared/dataset/tar_fields.h"
#include "shared/dataset/tar_reader.h"

namespace stoker::dataset {

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

Status index_tar_shard(const RecordFields& fields, std::span<const TarField> tar_fields,
                       ByteSource& shard, RecordIndexBuilder& index, TarIgnored& ignored);

uint64_t tar_row_width(const RecordFields& fields);

}  // namespace stoker::dataset
