#include "shared/data/format/framed_records.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "shared/data/file_kind.h"
#include "shared/data/files/byte_source.h"
#include "shared/data/files/file_reader.h"
#include "shared/data/format/text_records.h"
#include "shared/data/record/record_dataset.h"
#include "shared/data/record/table_reader.h"

namespace stoker::data::format {
namespace {

// Numbers of the location of a record.
uint64_t location_width(const Framing& framing) {
  return framing.has_lines ? LineLocation::kWidth : 1;
}
uint64_t row_width(const Framing& framing, const record::SampleSpec& spec) {
  return location_width(framing) + (spec.is_text() ? 1 : 0);
}

std::string record_text(const Frame& frame) {
  return frame.line == 0 ? "" : line_location_text(frame.line);
}

class FramedRecords final : public record::TableReader, public record::TextSource {
 public:
  FramedRecords(files::FileTable files, record::RecordTable table, const Framing& framing,
                const record::SampleSpec& spec, MakeFields make_fields)
      : record::TableReader(std::move(files), std::move(table)),
        framing_(framing),
        spec_(spec),
        make_fields_(std::move(make_fields)),
        maybe_label_(spec.label_value()),
        text_column_(location_width(framing)),
        text_field_(spec.is_text() ? "text '" + spec.names[0] + "'" : "") {}

  Status read(uint64_t record, record::RecordValues& values) const override {
    return read_values(record, values.fields, maybe_label_);
  }
  void prefetch(uint64_t record, files::PrefetchedBytes& bytes) const override {
    if (const uint64_t count = frame_bytes(record); count > 0)
      reader().prefetch(table().shard_index(record), offset(record), count, bytes);
  }

  const record::TextSource* maybe_texts() const override { return this; }
  uint64_t text_bytes(uint64_t record) const override { return table().row(record)[text_column_]; }
  Status read_text(uint64_t record, uint64_t from, std::span<std::byte> out) const override {
    record::FieldValue value;
    STOKER_RETURN_IF_ERROR(read_values(record, {&value, 1}, std::nullopt));
    const auto* const text = std::get_if<record::FieldBytes>(&value);
    if (text == nullptr)
      return at(record, corrupt_record(text_field_ + " must be text, got " + describe(value)));
    if (text->size() != text_bytes(record))
      return at(record, corrupt_record(text_field_ +
                                       " has a different length than when the file was indexed"));
    std::memcpy(out.data(), text->data() + from, out.size());
    return {};
  }
  void prefetch_text(uint64_t record, uint64_t /*from*/, uint64_t /*count*/,
                     files::PrefetchedBytes& bytes) const override {
    prefetch(record, bytes);
  }

 protected:
  uint64_t offset(uint64_t record) const override { return table().row(record)[0]; }
  std::string what(uint64_t record) const override {
    return framing_.has_lines
               ? line_location_text(LineLocation::of_numbers(table().row(record)).line)
               : TableReader::what(record);
  }

 private:
  // The size of a line. For other records an upper bound, from the offset of the next record in the table;
  // usually this is the exact size, and the frame itself has the actual one. 0 if the index is invalid.
  uint64_t frame_bytes(uint64_t record) const {
    if (framing_.has_lines) return LineLocation::of_numbers(table().row(record)).bytes;
    const size_t shard = table().shard_index(record);
    const bool is_last = record + 1 == table().shard_ends[shard];
    const uint64_t begin = offset(record);
    const uint64_t end = is_last ? shards().stamp(shard).size : offset(record + 1);
    return end <= begin ? 0 : std::min(end - begin, framing_.wrapper_bytes + framing_.max_bytes);
  }

  Status read_values(uint64_t record, std::span<record::FieldValue> values,
                     std::optional<size_t> maybe_known) const {
    thread_local std::vector<std::byte> bytes;
    bytes.resize(frame_bytes(record));
    if (bytes.empty()) return at(record, corrupt_record("index does not match the file"));
    STOKER_RETURN_IF_ERROR(reader().read(table().shard_index(record), offset(record), bytes));
    const auto content = framing_.content(bytes);
    if (!content) return at(record, content.status());
    return at(record, fields_of_thread().read(*content, values, maybe_known));
  }

  // Fields keep their buffers, so there is one per thread and dataset.
  RecordFields& fields_of_thread() const {
    constexpr size_t kMaxKept = 64;  // datasets that a thread reads alternately
    struct Kept {
      uint64_t reader = 0;
      uint64_t used = 0;  // value of `turn`
      std::unique_ptr<RecordFields> fields;
    };
    thread_local std::vector<Kept> kept;
    thread_local uint64_t turn = 0;
    auto found = std::ranges::find(kept, number_, &Kept::reader);
    if (found == kept.end()) {
      if (kept.size() == kMaxKept) kept.erase(std::ranges::min_element(kept, {}, &Kept::used));
      found = kept.insert(kept.end(), {.reader = number_, .fields = make_fields_(spec_)});
    }
    found->used = ++turn;
    return *found->fields;
  }

  static uint64_t next_number() {
    static std::atomic<uint64_t> last{0};
    return ++last;
  }

  // Constant after construction.
  const Framing framing_;
  const record::SampleSpec spec_;
  const MakeFields make_fields_;
  const std::optional<size_t> maybe_label_;
  const uint64_t text_column_;
  const std::string text_field_;           // "text 'NAME'"
  const uint64_t number_ = next_number();  // of no other reader, also of one before
};

// Adds the records of one file to the index.
Status index_file(const FramedFormat& format, const record::SampleSpec& spec,
                  files::ByteSource& file, RecordFields& fields,
                  record::RecordIndexBuilder& index) {
  if (format.framing.has_lines) {
    STOKER_ASSIGN_OR_RETURN(const auto head, file.peek(0, kFileKindBytes));
    STOKER_RETURN_IF_ERROR(index.in_shard(reject_binary(head)));
  }
  const auto framer = format.framing.make_framer(file, format.framing, 0);
  std::vector<record::FieldValue> values(spec.names.size());
  for (Frame frame;;) {
    const auto more = framer->next(frame);
    if (!more) return index.at(framer->offset(), record_text(frame), more.status());
    if (!*more) return {};
    const std::string what = record_text(frame);
    const auto text_bytes = fields.scan(*framer, frame, values);
    if (!text_bytes && !framer->is_incomplete()) {
      STOKER_RETURN_IF_ERROR(index.add_bad(frame.offset, what, text_bytes.status()));
      continue;
    }
    if (!text_bytes) return index.at(frame.offset, what, text_bytes.status());
    std::array<uint64_t, LineLocation::kWidth + 1> row{frame.offset, *text_bytes};
    if (format.framing.has_lines) {
      const auto location =
          LineLocation{.offset = frame.offset, .line = frame.line, .bytes = frame.bytes}
              .to_numbers();
      row = {location[0], location[1], *text_bytes};
    }
    STOKER_RETURN_IF_ERROR(index.add(frame.offset, what, values,
                                     std::span(row).first(row_width(format.framing, spec))));
  }
}

}  // namespace

RecordFields::RecordFields(const record::SampleSpec& spec) : spec_(spec) {
  spec_.tokenizer.reset();
  spec_.vocabulary.reset();
}

Result<uint64_t> RecordFields::scan(Framer& framer, const Frame& frame,
                                    std::span<record::FieldValue> values) {
  STOKER_ASSIGN_OR_RETURN(const auto record, framer.content(frame));
  STOKER_RETURN_IF_ERROR(read(record, values, std::nullopt));
  if (!spec_.is_text() || record::is_missing(values[0])) return uint64_t{0};
  if (const auto* const text = std::get_if<record::FieldBytes>(&values[0])) return text->size();
  return spec_.in_field(0, corrupt_record("must be text, got " + record::describe(values[0])));
}

Result<std::string> framed_fingerprint_text(const FramedFormat& format,
                                            const DatasetRequest& request) {
  const config::DatasetConfig config = format.resolved(request.config);
  return record::record_fingerprint_text(format.name, {.name = request.name, .config = config});
}

Result<files::IndexMetadata> index_records(const FramedFormat& format,
                                           const DatasetRequest& request,
                                           const files::FileTable& files,
                                           const files::ScanProgress& progress) {
  const config::DatasetConfig config = format.resolved(request.config);
  const DatasetRequest resolved{.name = request.name,
                                .config = config,
                                .index_dir = request.index_dir,
                                .maybe_sandbox = request.maybe_sandbox};
  STOKER_ASSIGN_OR_RETURN(const record::SampleSpec spec, record::SampleSpec::for_index(resolved));
  record::RecordIndexBuilder index(resolved, spec, files, row_width(format.framing, spec),
                                   progress);
  const auto fields = format.make_fields(spec);
  const files::FileReader reader(files);
  for (size_t file = 0; file < files.size(); ++file) {
    files::FileSource bytes(reader, file, files.stamp(file).size);
    STOKER_RETURN_IF_ERROR(index_file(format, spec, bytes, *fields, index));
    index.end_shard();
  }
  return index.finish();
}

Result<std::unique_ptr<Dataset>> open_records(const FramedFormat& format,
                                              const DatasetRequest& request, files::Index index) {
  std::string fingerprint = index.fingerprint();
  const config::DatasetConfig config = format.resolved(request.config);
  const DatasetRequest resolved{
      .name = request.name, .config = config, .index_dir = request.index_dir};
  STOKER_ASSIGN_OR_RETURN(record::SampleSpec spec, record::SampleSpec::of(resolved));
  return open_framed(resolved, std::move(index), std::move(fingerprint), format.framing,
                     std::move(spec), format.make_fields);
}

Result<std::unique_ptr<Dataset>> open_framed(const DatasetRequest& request, files::Index index,
                                             std::string fingerprint, const Framing& framing,
                                             record::SampleSpec spec, MakeFields make_fields) {
  auto table = record::RecordTable::of(std::move(index.metadata), index.files.size(),
                                       row_width(framing, spec), spec);
  if (!table) return table.status().with_context("data." + request.name);
  auto records = std::make_unique<FramedRecords>(std::move(index.files), *std::move(table), framing,
                                                 spec, std::move(make_fields));
  return record::make_record_dataset(request, std::move(spec), std::move(fingerprint),
                                     std::move(records));
}

}  // namespace stoker::data::format
