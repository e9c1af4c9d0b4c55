// Format `webdataset`: tar files in WebDataset's layout, with random access to the samples.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "shared/base/log.h"
#include "shared/data/dataset_files.h"
#include "shared/data/format/format.h"
#include "shared/data/format/tar_index.h"
#include "shared/data/format/tar_values.h"
#include "shared/data/record/record_dataset.h"
#include "shared/data/record/record_index.h"
#include "shared/data/record/table_reader.h"

namespace stoker::data::format {
namespace {

// Thread-local buffers of the last member read for a field.
struct ReadMember {
  std::vector<std::byte> bytes;
  TarValues::Buffer buffer;
};

class TarRecords final : public record::TableReader, public record::TextSource {
 public:
  TarRecords(files::FileTable shards, record::RecordTable table, std::vector<TarField> fields,
             const record::SampleSpec& spec, const config::RecordConfig& record)
      : record::TableReader(std::move(shards), std::move(table)),
        values_(std::move(fields), spec, record, this->table().form) {}

  Status read(uint64_t record, record::RecordValues& values) const override {
    thread_local std::vector<ReadMember> kept;
    const size_t fields = values_.fields().size();
    kept.resize(std::max(kept.size(), fields));
    size_t column = 0;
    for (size_t i = 0; i < fields; ++i) {
      if (values_.fields()[i].is_label) continue;
      const TarLocation location = TarLocation::of_number(table().row(record)[column++]);
      STOKER_RETURN_IF_ERROR(read_member(record, location, kept[i].bytes));
      STOKER_RETURN_IF_ERROR(
          in_sample(record, values_.read(i, kept[i].bytes, kept[i].buffer, values.fields[i])));
    }
    return {};
  }

  void prefetch(uint64_t record, files::PrefetchedBytes& bytes) const override {
    size_t column = 0;
    for (const TarField& field : values_.fields()) {
      if (field.is_label) continue;
      const TarLocation location = TarLocation::of_number(table().row(record)[column++]);
      if (fits(record, location))
        reader().prefetch(table().shard_index(record), location.content, location.size, bytes);
    }
  }

  const record::TextSource* maybe_texts() const override { return this; }
  uint64_t text_bytes(uint64_t record) const override { return locate(record).size; }

  Status read_text(uint64_t record, uint64_t from, std::span<std::byte> out) const override {
    return reader().read(table().shard_index(record), locate(record).content + from, out);
  }

  void prefetch_text(uint64_t record, uint64_t from, uint64_t count,
                     files::PrefetchedBytes& bytes) const override {
    reader().prefetch(table().shard_index(record), locate(record).content + from, count, bytes);
  }

 protected:
  // Offset of the header of the first member that is read.
  uint64_t offset(uint64_t record) const override { return locate(record).content - kTarBlock; }

 private:
  TarLocation locate(uint64_t record) const {
    return TarLocation::of_number(table().row(record)[0]);
  }

  Status in_sample(uint64_t record, const Status& status) const {
    return status.ok() ? status : at(record, "sample", status);
  }

  bool fits(uint64_t record, const TarLocation& location) const {
    const uint64_t size = shards().stamp(table().shard_index(record)).size;
    return location.content >= kTarBlock && location.content <= size &&
           location.size <= size - location.content && location.size <= kMaxTarMember;
  }

  Status read_member(uint64_t record, const TarLocation& location,
                     std::vector<std::byte>& bytes) const {
    if (!fits(record, location))
      return in_sample(record, Status(StatusCode::kCorrupt, "index does not match the file"));
    bytes.resize(location.size);
    return reader().read(table().shard_index(record), location.content, bytes);
  }

  // Constant after construction.
  const TarValues values_;
};

Result<std::string> webdataset_fingerprint_text(const DatasetRequest& request) {
  STOKER_ASSIGN_OR_RETURN(const record::SampleSpec spec, record::SampleSpec::of(request));
  STOKER_ASSIGN_OR_RETURN(const std::vector<TarField> members, tar_fields(request, spec));
  STOKER_ASSIGN_OR_RETURN(const std::string text,
                          record::record_fingerprint_text("webdataset", request));
  return text + (std::ranges::any_of(members, &TarField::is_npy) ? " arrays" : "");
}

void log_ignored(const DatasetRequest& request, const TarIgnored& ignored) {
  if (ignored.members > 0) {
    log_warn("archive members ignored",
             {{"dataset", request.name},
              {"count", ignored.members},
              {"reason", "no extension, or a name that starts with a dot"}});
  }
  if (ignored.without_end > 0) {
    log_warn("tar shards without end marker", {{"dataset", request.name},
                                               {"count", ignored.without_end},
                                               {"first", ignored.first_without_end}});
  }
}

Result<files::IndexMetadata> build_webdataset_metadata(const DatasetRequest& request,
                                                       const files::FileTable& files,
                                                       const files::ScanProgress& progress) {
  STOKER_ASSIGN_OR_RETURN(const record::SampleSpec spec, record::SampleSpec::for_index(request));
  STOKER_ASSIGN_OR_RETURN(const std::vector<TarField> members, tar_fields(request, spec));
  const files::FileReader reader(files);
  record::RecordIndexBuilder index(request, spec, files, tar_row_width(spec), progress);
  TarIgnored ignored;
  for (size_t file = 0; file < files.size(); ++file) {
    files::FileSource shard(reader, file, files.stamp(file).size);
    STOKER_RETURN_IF_ERROR(index_tar_shard(spec, members, shard, index, ignored));
    if (ignored.without_end == 1 && ignored.first_without_end.empty())
      ignored.first_without_end = files.path(file);
    index.end_shard();
  }
  log_ignored(request, ignored);
  return index.finish();
}

Result<std::unique_ptr<Dataset>> open_tar(const DatasetRequest& request, files::Index index) {
  STOKER_ASSIGN_OR_RETURN(record::SampleSpec spec, record::SampleSpec::of(request));
  STOKER_ASSIGN_OR_RETURN(std::vector<TarField> members, tar_fields(request, spec));
  std::string fingerprint = index.fingerprint();
  auto table = record::RecordTable::of(std::move(index.metadata), index.files.size(),
                                       tar_row_width(spec), spec);
  if (!table) return table.status().with_context("data." + request.name);
  auto records = std::make_unique<TarRecords>(std::move(index.files), *std::move(table),
                                              std::move(members), spec, *request.config.record());
  return record::make_record_dataset(request, std::move(spec), std::move(fingerprint),
                                     std::move(records));
}

}  // namespace

const DatasetFormatOps& webdataset_format() {
  static constexpr DatasetFormatOps kFormatOps{.name = "webdataset",
                                               .fingerprint_text = webdataset_fingerprint_text,
                                               .scan = scan_shards,
                                               .build_metadata = build_webdataset_metadata,
                                               .open = open_tar,
                                               .has_rows = true};
  return kFormatOps;
}

}  // namespace stoker::data::format
