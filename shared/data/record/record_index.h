// RecordTable: where each record of a set of shards is located, at 8 bytes a number: what is kept in an
// index of the formats whose records have named fields.
//
// A record is a row of `width` numbers, whose meaning the format defines; the label's class
// is a separate column. Rows are in the order of the shards.
//
// Threads: a value; concurrent const calls are fine.
// Errors:  of(): kCorrupt, where the facts of an index are not those of a table.
#pragma once

#include <cstdint>
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
#include "shared/data/record/class_labels.h"
#include "shared/data/record/sample_assembler.h"

namespace stoker::data::record {

struct RecordTable {
  InputForm form = InputForm::kImage;
  uint64_t classes = 0;
  std::vector<std::string> class_names;
  uint64_t width = 0;
  std::vector<uint64_t> shard_ends;  // of each shard: the number of records up to its end
  std::vector<uint64_t> rows;
  std::vector<uint64_t> labels;  // a class a record; empty where there are no classes

  uint64_t size() const { return shard_ends.empty() ? 0 : shard_ends.back(); }
  std::span<const uint64_t> row(uint64_t record) const {
    return std::span(rows).subspan(record * width, width);
  }
  size_t shard_index(uint64_t record) const;

  files::IndexMetadata to_metadata() &&;
  // The table of records of these fields, of a kind that keeps `width` numbers a record; that of
  // sequences has one more, the length.
  static Result<RecordTable> of(files::IndexMetadata metadata, size_t shards, uint64_t width,
                                const SampleSpec& spec);
};

// RecordIndexBuilder: makes the RecordTable of a set while a format goes through its shards.
//
// A record that lacks a named value is incomplete. With data.NAME.on_missing_field: error the set is
// refused once all shards were looked at, with the first such record and how many there are; with
// drop they are left out, and their number is logged. Nothing is left out silently. The same goes for
// sequences that are longer than sequence.max_length, as sequence.on_overflow says; an empty sequence is a
// missing one.
//
// Threads: one at a time.
// Errors:  kCorrupt (a value is not what its setting needs; incomplete or too long records),
//          kInvalidArgument (no record is left; classes), kNotFound (no record at all). Messages name
//          shard, record and offset.
class RecordIndexBuilder {
 public:
  // `width` numbers a record; of sequences the table has one more, the length.
  RecordIndexBuilder(const DatasetRequest& request, const SampleSpec& spec,
                     const files::FileTable& shards, uint64_t width,
                     const files::ScanProgress& progress);

  // A record of the shard that is gone through. Of `values`, one each of the spec, it looks at
  // which are there, at the label, and at the form of the first input. `what` is the record in
  // messages: "sample 'a/1'"; an empty one is "record".
  Status add(uint64_t offset, std::string_view what, std::span<const FieldValue> values,
             std::span<const uint64_t> row);
  void end_shard();
  Result<files::IndexMetadata> finish();

  // `status` with the place: "data.train.path: a.tar: sample 'a/1' at offset 512: …".
  Status at(uint64_t offset, std::string_view what, const Status& status) const;
  // The same with the shard only.
  Status in_shard(const Status& status) const;

 private:
  static constexpr uint64_t kProgressRecords = 1 << 14;  // between two calls of progress

  // Records that are left out for one reason, or that refuse the set.
  struct DroppedRecords {
    uint64_t count = 0;
    std::string first;  // in words
  };
  void add_dropped(DroppedRecords& dropped, uint64_t offset, std::string_view what,
                   const std::string& how);
  const SampleSpec& spec() const { return assembler_.spec(); }
  std::string missing_field_text(size_t name) const;
  std::string counted(const DroppedRecords& dropped, const std::string& are) const;
  Status check_missing_fields() const;
  Status check_overlong() const;
  Status take_form(const FieldValue& input);
  Status take_label(uint64_t offset, std::string_view what, std::span<const FieldValue> values);
  // The length of a sequence that stays; nothing: it does not.
  Result<std::optional<uint64_t>> take_length(uint64_t offset, std::string_view what,
                                              std::span<const FieldValue> values);
  Status take_classes();

  const DatasetRequest& request_;
  const config::RecordConfig& record_;
  const SampleAssembler assembler_;
  const files::FileTable& shards_;
  const files::ScanProgress progress_;
  const bool skips_;
  RecordTable table_;
  ClassLabels labels_;
  size_t shard_ = 0;
  uint64_t seen_ = 0;
  uint64_t kept_ = 0;
  DroppedRecords incomplete_;
  DroppedRecords longer_;
  uint64_t list_classes_ = 0;  // of lists of labels: one more than the largest
};

}  // namespace stoker::data::record
