// RecordTable: the location of each record in the shards of a dataset, 8 bytes per number. Stored
// in the index by formats whose records have named fields.
//
// A record is a row of `width` numbers, whose meaning the format defines; the class of the label is
// a separate column. Rows are in the order of the shards.
//
// Threads: a value; concurrent const calls are safe.
// Errors:  of(): kCorrupt if the metadata of the index is not a valid table.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/data/dataset_request.h"
#include "shared/data/files/file_table.h"
#include "shared/data/files/index.h"
#include "shared/data/files/scan.h"
#include "shared/data/record/bad_records.h"
#include "shared/data/record/class_labels.h"
#include "shared/data/record/sample_assembler.h"
#include "shared/data/sandbox.h"

namespace stoker::data::record {

struct RecordTable {
  InputForm form = InputForm::kImage;
  uint64_t classes = 0;
  std::vector<std::string> class_names;
  uint64_t width = 0;
  std::vector<uint64_t> shard_ends;  // for each shard, the number of records up to its end
  std::vector<uint64_t> rows;
  std::vector<uint64_t> labels;  // class of each record; empty if the target is not one class

  uint64_t size() const { return shard_ends.empty() ? 0 : shard_ends.back(); }
  std::span<const uint64_t> row(uint64_t record) const {
    return std::span(rows).subspan(record * width, width);
  }
  size_t shard_index(uint64_t record) const;

  files::IndexMetadata to_metadata() &&;
  // The table of a format that stores `width` numbers per record with these fields; for sequences
  // it has one more column, the length. Sets the form of the input in `spec`.
  static Result<RecordTable> of(files::IndexMetadata metadata, size_t shards, uint64_t width,
                                SampleSpec& spec);
};

// RecordIndexBuilder: builds the RecordTable of a dataset while a format reads its shards.
//
// A record that lacks a named value is incomplete. With data.NAME.on_missing_field: error, finish()
// fails after all shards have been read and reports the first such record and their number. With
// drop, incomplete records are dropped and their number is logged; no record is dropped silently.
// A record that cannot be used, such as a line that is not JSON, is left out (BadRecords).
// In the same way, sequence.on_overflow applies to sequences longer than sequence.max_length. An
// empty sequence is a missing value. The tokens of a text are counted by a process of the sandbox, if
// the request has one.
//
// Threads: one at a time.
// Errors:  those of the sandbox; kCorrupt (a value does not match its setting; incomplete or too long records),
//          kInvalidArgument (all records were dropped; num_classes), kNotFound (no record at all).
//          Messages contain shard, record and offset.
class RecordIndexBuilder {
 public:
  // `width`: numbers per record; for sequences the table has one more, the length.
  RecordIndexBuilder(const DatasetRequest& request, const SampleSpec& spec,
                     const files::FileTable& shards, uint64_t width,
                     const files::ScanProgress& progress);

  // Adds a record of the current shard. `values` has one entry for each value of the spec, and the
  // group if it has one. Only the label, the group, the length, the form of the first input and which
  // values are missing are used. `what`: the record in messages ("sample 'a/1'"); empty = "record".
  Status add(uint64_t offset, std::string_view what, std::span<const FieldValue> values,
             std::span<const uint64_t> row);
  // Leaves out a record that cannot be used, and lists it. Its error, with the location, if most
  // records are like that.
  Status add_bad(uint64_t offset, std::string_view what, const Status& why);
  void end_shard();
  Result<files::IndexMetadata> finish();

  // Adds the location to `status`: "data.train.path: a.tar: sample 'a/1' at offset 512: …".
  Status at(uint64_t offset, std::string_view what, const Status& status) const;
  // Adds only the shard.
  Status in_shard(const Status& status) const;

 private:
  // Between two calls of progress_: a stop takes effect within a fraction of a second, whatever the size of a record is.
  static constexpr std::chrono::milliseconds kProgressInterval{20};
  static constexpr uint64_t kClockRecords = 256,
                            kClockBytes = 1 << 20;  // between two reads of the clock

  // Records that violate one setting. They are dropped or truncated, or make indexing fail.
  struct DroppedRecords {
    uint64_t count = 0;
    std::string first;  // message of the first
  };
  void add_dropped(DroppedRecords& dropped, uint64_t offset, std::string_view what,
                   const std::string& how);
  const SampleSpec& spec() const { return assembler_.spec(); }
  std::string location_text(uint64_t offset, std::string_view what) const;
  std::string counted(const DroppedRecords& dropped, const std::string& are) const;
  // The record at `offset` of the current shard is read.
  void report(uint64_t offset);
  Status add_good(uint64_t offset, std::string_view what, std::span<const FieldValue> values,
                  std::span<const uint64_t> row);
  Status note_bad(uint64_t offset, std::string_view what, const Status& why);
  Status check_missing_fields() const;
  Status check_overlong() const;
  Status check_replies() const;
  Status take_form(const FieldValue& input);
  Status take_label(uint64_t offset, std::string_view what, std::span<const FieldValue> values);
  Result<uint64_t> hash_of_group(const FieldValue& group) const;
  // The length of the sequence; nullopt if the record is not added.
  Result<std::optional<uint64_t>> take_length(uint64_t offset, std::string_view what,
                                              std::span<const FieldValue> values);
  Status take_classes();

  const DatasetRequest& request_;
  const config::RecordConfig& record_;
  const SampleAssembler assembler_;
  const files::FileTable& shards_;
  const files::ScanProgress progress_;
  const std::unique_ptr<TextTokenizer> maybe_tokenizer_;  // of the sandbox; null: in this process
  const bool skips_;
  RecordTable table_;
  std::vector<uint64_t> groups_;  // of each record; empty without them
  ClassLabels labels_;
  size_t shard_ = 0;
  uint64_t bytes_before_ = 0;  // of the shards before the current one
  uint64_t clock_offset_ = 0;  // where the clock was read
  std::chrono::steady_clock::time_point next_report_;
  uint64_t seen_ = 0;
  uint64_t kept_ = 0;
  BadRecords bad_;
  bool is_fatal_ = false;  // the last error, whatever max_bad_record_rate is
  DroppedRecords incomplete_;
  DroppedRecords longer_;
  DroppedRecords without_reply_;
  uint64_t list_classes_ = 0;  // lists of labels: the largest label plus 1
};

}  // namespace stoker::data::record
