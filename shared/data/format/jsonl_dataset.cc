// Format `jsonl`: files of JSON objects, one per line. The index stores the location of each line,
// its label and, for text, the length of the text.
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "shared/data/dataset_files.h"
#include "shared/data/format/format.h"
#include "shared/data/format/json_values.h"
#include "shared/data/format/text_records.h"
#include "shared/data/record/record_dataset.h"
#include "shared/data/record/record_index.h"

namespace stoker::data::format {
namespace {

// Numbers per line in the index: its location and, for text, the length of the text in bytes.
uint64_t width_of(const record::SampleSpec& spec) {
  return LineLocation::kWidth + (spec.is_text() ? 1 : 0);
}

// Required length of nested lists; 0: any. Without the check, data of another shape would be
// accepted.
uint64_t row_index(const record::SampleSpec& spec) {
  return spec.is_sequence() ? spec.values_per_step() : 0;
}

// Index of the messages among the values.
std::optional<size_t> messages_index(const record::SampleSpec& spec) {
  return spec.has_messages() ? std::optional<size_t>(0) : std::nullopt;
}

Status no_text(const std::string& name, const record::FieldValue& value) {
  return Status(StatusCode::kCorrupt,
                "text '" + name + "' must be text, got " + record::describe(value));
}

class JsonRecords final : public TextRecords, public record::TextSource {
 public:
  JsonRecords(files::FileTable files, record::RecordTable table, const record::SampleSpec& spec)
      : TextRecords(std::move(files), std::move(table)),
        names_(spec.names),
        row_(row_index(spec)),
        maybe_messages_(messages_index(spec)) {}

  Status read(uint64_t record, record::RecordValues& values) const override {
    return read_values(record, values.fields);
  }
  const record::TextSource* maybe_texts() const override { return this; }
  uint64_t text_bytes(uint64_t record) const override {
    return table().row(record)[LineLocation::kWidth];
  }
  Status read_text(uint64_t record, uint64_t from, std::span<std::byte> out) const override {
    record::FieldValue value;
    STOKER_RETURN_IF_ERROR(read_values(record, {&value, 1}));
    const auto* const text = std::get_if<record::FieldBytes>(&value);
    if (text == nullptr) return at(record, no_text(names_[0], value));
    if (text->size() != text_bytes(record)) {
      return at(record, Status(StatusCode::kCorrupt, "text '" + names_[0] +
                                                         "' has a different length than "
                                                         "when the file was indexed"));
    }
    std::memcpy(out.data(), text->data() + from, out.size());
    return {};
  }
  void prefetch_text(uint64_t record, uint64_t /*from*/, uint64_t /*count*/,
                     files::PrefetchedBytes& bytes) const override {
    prefetch(record, bytes);
  }

 private:
  Status read_values(uint64_t record, std::span<record::FieldValue> values) const {
    STOKER_ASSIGN_OR_RETURN(const std::string_view line, read_line(record));
    return at(record, values_of_thread().read(line, values));
  }

  // A parser keeps its buffers, so there is one per thread. It is replaced when the thread reads
  // another dataset.
  JsonValues& values_of_thread() const {
    struct Mine {
      std::vector<std::string> names;
      uint64_t row = 0;
      std::optional<size_t> maybe_messages;
      std::unique_ptr<JsonValues> values;
    };
    thread_local Mine mine;
    if (!mine.values || mine.names != names_ || mine.row != row_ ||
        mine.maybe_messages != maybe_messages_)
      mine = {.names = names_,
              .row = row_,
              .maybe_messages = maybe_messages_,
              .values = std::make_unique<JsonValues>(names_, row_, std::nullopt, maybe_messages_)};
    return *mine.values;
  }

  const std::vector<std::string> names_;
  const uint64_t row_;
  const std::optional<size_t> maybe_messages_;
};

config::DatasetConfig resolved_config(const DatasetRequest& request) {
  config::DatasetConfig config = request.config;
  auto& record = std::get<config::JsonlDataset>(config.source).record;
  record = with_shape(std::move(record));
  return config;
}

Result<std::string> jsonl_fingerprint_text(const DatasetRequest& request) {
  const config::DatasetConfig config = resolved_config(request);
  return record::record_fingerprint_text("jsonl", {.name = request.name, .config = config});
}

Result<files::FileTable> scan_jsonl(const DatasetRequest& request,
                                    const files::ScanProgress& progress) {
  return scan_shards(request, progress);
}

Status index_line(const TextLine& row, const record::SampleSpec& spec, JsonValues& parser,
                  std::vector<record::FieldValue>& values, record::RecordIndexBuilder& index) {
  const std::string what = line_location_text(row.line);
  if (const Status read = parser.read(row.text, values); !read.ok()) {
    const bool is_array = row.line == 1 && record::trimmed(row.text).starts_with('[');
    const Status array(StatusCode::kCorrupt,
                       "begins a JSON array; write one object per line, for example with jq -c "
                       "'.[]'");
    return index.add_bad(row.offset, what, is_array ? array : read);
  }
  const auto location = LineLocation::of(row).to_numbers();
  std::array<uint64_t, LineLocation::kWidth + 1> numbers{location[0], location[1], 0};
  if (spec.is_text() && !record::is_missing(values[0])) {
    const auto* const text = std::get_if<record::FieldBytes>(&values[0]);
    if (text == nullptr) return index.add_bad(row.offset, what, no_text(spec.names[0], values[0]));
    numbers.back() = text->size();
  }
  return index.add(row.offset, what, values, std::span(numbers).first(width_of(spec)));
}

Result<files::IndexMetadata> build_jsonl_metadata(const DatasetRequest& request,
                                                  const files::FileTable& files,
                                                  const files::ScanProgress& progress) {
  const config::DatasetConfig config = resolved_config(request);
  const DatasetRequest resolved{.name = request.name,
                                .config = config,
                                .index_dir = request.index_dir,
                                .maybe_sandbox = request.maybe_sandbox};
  STOKER_ASSIGN_OR_RETURN(const record::SampleSpec spec, record::SampleSpec::for_index(resolved));
  record::RecordIndexBuilder index(resolved, spec, files, width_of(spec), progress);
  JsonValues parser(spec.names, row_index(spec), std::nullopt, messages_index(spec));
  std::vector<record::FieldValue> values(spec.names.size());
  const files::FileReader reader(files);
  for (size_t file = 0; file < files.size(); ++file) {
    STOKER_RETURN_IF_ERROR(scan_lines(reader, files, file, end_of_line, [&](const TextLine& row) {
      return index_line(row, spec, parser, values, index);
    }));
    index.end_shard();
  }
  return index.finish();
}

Result<std::unique_ptr<Dataset>> open_jsonl(const DatasetRequest& request, files::Index index) {
  std::string fingerprint = index.fingerprint();
  const config::DatasetConfig config = resolved_config(request);
  const DatasetRequest resolved{
      .name = request.name, .config = config, .index_dir = request.index_dir};
  STOKER_ASSIGN_OR_RETURN(record::SampleSpec spec, record::SampleSpec::of(resolved));
  auto table =
      record::RecordTable::of(std::move(index.metadata), index.files.size(), width_of(spec), spec);
  if (!table) return table.status().with_context("data." + request.name);
  auto records = std::make_unique<JsonRecords>(std::move(index.files), *std::move(table), spec);
  return record::make_record_dataset(resolved, std::move(spec), std::move(fingerprint),
                                     std::move(records));
}

}  // namespace

const DatasetFormatOps& jsonl_format() {
  static constexpr DatasetFormatOps kFormatOps{.name = "jsonl",
                                               .fingerprint_text = jsonl_fingerprint_text,
                                               .scan = scan_jsonl,
                                               .build_metadata = build_jsonl_metadata,
                                               .open = open_jsonl,
                                               .has_rows = true};
  return kFormatOps;
}

}  // namespace stoker::data::format
