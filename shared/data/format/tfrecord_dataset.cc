// Format `tfrecord`: TFRecord files of tf.train.Example, with named features.
//
// Each read reads the whole record and verifies its checksum.
#include <algorithm>
#include <utility>

#include "shared/data/dataset_files.h"
#include "shared/data/format/format.h"
#include "shared/data/format/tfrecord_index.h"
#include "shared/data/record/record_dataset.h"
#include "shared/data/record/record_index.h"
#include "shared/data/record/table_reader.h"

namespace stoker::data::format {
namespace {

// Thread-local buffers of the last record read.
struct ReadRecord {
  std::vector<std::byte> bytes;
  ExampleValues values;
};

ReadRecord& record_of_thread() {
  thread_local ReadRecord record;
  return record;
}

class TfRecords final : public record::TableReader, public record::TextSource {
 public:
  TfRecords(files::FileTable shards, record::RecordTable table, const record::SampleSpec& spec)
      : record::TableReader(std::move(shards), std::move(table)),
        spec_(spec),
        label_(spec.label_value()) {}

  Status read(uint64_t record, record::RecordValues& values) const override {
    ReadRecord& kept = record_of_thread();
    STOKER_RETURN_IF_ERROR(load(record, kept));
    for (size_t name = 0; name < values.fields.size(); ++name) {
      if (name == label_) continue;
      const auto value = kept.values.value(spec_, name);
      if (!value) return at(record, value.status());
      values.fields[name] = *value;
    }
    return {};
  }

  void prefetch(uint64_t record, files::PrefetchedBytes& bytes) const override {
    if (const uint64_t count = max_bytes(record); count > 0)
      reader().prefetch(table().shard_index(record), offset(record), count, bytes);
  }

  const record::TextSource* maybe_texts() const override { return this; }
  uint64_t text_bytes(uint64_t record) const override { return table().row(record)[1]; }

  Status read_text(uint64_t record, uint64_t from, std::span<std::byte> out) const override {
    ReadRecord& kept = record_of_thread();
    STOKER_RETURN_IF_ERROR(load(record, kept));
    const auto value = kept.values.value(spec_, 0);
    if (!value) return at(record, value.status());
    const auto* const text = std::get_if<record::FieldBytes>(&*value);
    if (text == nullptr || text->size() != text_bytes(record))
      return at(record, Status(StatusCode::kCorrupt,
                               "its text has a different length than when the file was indexed"));
    std::ranges::copy(text->subspan(from, out.size()), out.begin());
    return {};
  }
  void prefetch_text(uint64_t record, uint64_t /*from*/, uint64_t /*count*/,
                     files::PrefetchedBytes& bytes) const override {
    prefetch(record, bytes);
  }

 protected:
  uint64_t offset(uint64_t record) const override { return table().row(record)[0]; }

 private:
  // Upper bound of the size of the frame, from the offset of the next record in the table. Usually
  // this is the exact size; the frame itself has the actual length. 0 if the index is invalid.
  uint64_t max_bytes(uint64_t record) const {
    const size_t shard = table().shard_index(record);
    const bool is_last = record + 1 == table().shard_ends[shard];
    const uint64_t begin = offset(record);
    const uint64_t end = is_last ? shards().stamp(shard).size : offset(record + 1);
    if (end <= begin) return 0;
    return std::min(end - begin, kFrameHead + kMaxTfrecordBytes + kFrameTail);
  }

  Status load(uint64_t record, ReadRecord& kept) const {
    kept.bytes.resize(max_bytes(record));
    if (kept.bytes.empty())
      return at(record, Status(StatusCode::kCorrupt, "index does not match the file"));
    STOKER_RETURN_IF_ERROR(reader().read(table().shard_index(record), offset(record), kept.bytes));
    const auto data = framed_data(kept.bytes);
    if (!data) return at(record, data.status());
    return at(record, kept.values.find(*data, spec_));
  }

  // Constant after construction.
  const record::SampleSpec spec_;
  const std::optional<size_t> label_;
};

Result<std::string> tfrecord_fingerprint_text(const DatasetRequest& request) {
  return record::record_fingerprint_text("tfrecord", request);
}

Result<files::IndexMetadata> build_tfrecord_metadata(const DatasetRequest& request,
                                                     const files::FileTable& files,
                                                     const files::ScanProgress& progress) {
  STOKER_ASSIGN_OR_RETURN(const record::SampleSpec spec, record::SampleSpec::for_index(request));
  const files::FileReader reader(files);
  record::RecordIndexBuilder index(request, spec, files, tfrecord_row_width(spec), progress);
  for (size_t file = 0; file < files.size(); ++file) {
    files::FileSource shard(reader, file, files.stamp(file).size);
    STOKER_RETURN_IF_ERROR(index_tfrecord_shard(spec, shard, index));
    index.end_shard();
  }
  return index.finish();
}

Result<std::unique_ptr<Dataset>> open_tfrecord(const DatasetRequest& request, files::Index index) {
  STOKER_ASSIGN_OR_RETURN(record::SampleSpec spec, record::SampleSpec::of(request));
  std::string fingerprint = index.fingerprint();
  auto table = record::RecordTable::of(std::move(index.metadata), index.files.size(),
                                       tfrecord_row_width(spec), spec);
  if (!table) return table.status().with_context("data." + request.name);
  auto records = std::make_unique<TfRecords>(std::move(index.files), *std::move(table), spec);
  return record::make_record_dataset(request, std::move(spec), std::move(fingerprint),
                                     std::move(records));
}

}  // namespace

const DatasetFormatOps& tfrecord_format() {
  static constexpr DatasetFormatOps kFormatOps{.name = "tfrecord",
                                               .fingerprint_text = tfrecord_fingerprint_text,
                                               .scan = scan_shards,
                                               .build_metadata = build_tfrecord_metadata,
                                               .open = open_tfrecord,
                                               .has_rows = true};
  return kFormatOps;
}

}  // namespace stoker::data::format
