// Format `jsonl`: files of JSON objects, one a line. The index keeps where each line lies, its label,
// and, of a text, how long it is.
#include <array>
#include <cstring>
#include <utility>

#include "shared/dataset/json_values.h"
#include "shared/dataset/kind.h"
#include "shared/dataset/record_index.h"
#include "shared/dataset/records.h"
#include "shared/dataset/shard_files.h"
#include "shared/dataset/text_rows.h"

namespace stoker::dataset {
namespace {

// Numbers a line in the index: its place, and the bytes of its text where it is one.
uint64_t width_of(const RecordFields& fields) {
  return RowPlace::kWidth + (fields.is_text() ? 1 : 0);
}

// Of lists of lists, what each of those has: else one would pass for another shape.
uint64_t row_of(const RecordFields& fields) {
  return fields.maybe_sequence() != nullptr ? fields.maybe_sequence()->numbers_a_place() : 0;
}

Status no_text(const std::string& name, const FieldValue& value) {
  return Status(Code::kCorrupt, "text '" + name + "' is " + describe(value) + ", no text");
}

class JsonRecords final : public TextRecords {
 public:
  JsonRecords(FileTable files, RecordTable table, const RecordFields& fields)
      : TextRecords(std::move(files), std::move(table)),
        names_(fields.names()),
        row_(row_of(fields)) {}

  Status read(uint64_t record, std::span<FieldValue> values) const override {
    STOKER_ASSIGN_OR_RETURN(const std::string_view line, read_row(record));
    return at(record, values_of_thread().read(line, values));
  }
  uint64_t text_bytes(uint64_t record) const override {
    return table().row(record)[RowPlace::kWidth];
  }
  Status read_text(uint64_t record, uint64_t from, std::span<std::byte> out) const override {
    FieldValue value;
    STOKER_RETURN_IF_ERROR(read(record, {&value, 1}));
    const auto* const text = std::get_if<FieldBytes>(&value);
    if (text == nullptr) return at(record, no_text(names_[0], value));
    if (text->size() != text_bytes(record)) {
      return at(record, Status(Code::kCorrupt, "text '" + names_[0] +
                                                   "' has another length than "
                                                   "when the file was indexed"));
    }
    std::memcpy(out.data(), text->data() + from, out.size());
    return {};
  }

 private:
  // A parser keeps memory, so each thread has one; that of another set is replaced.
  JsonValues& values_of_thread() const {
    struct Mine {
      std::vector<std::string> names;
      uint64_t row = 0;
      std::unique_ptr<JsonValues> values;
    };
    thread_local Mine mine;
    if (!mine.values || mine.names != names_ || mine.row != row_)
      mine = {.names = names_, .row = row_, .values = std::make_unique<JsonValues>(names_, row_)};
    return *mine.values;
  }

  const std::vector<std::string> names_;
  const uint64_t row_;
};

config::DatasetConfig resolved_config(const SetRequest& set) {
  config::DatasetConfig config = set.config;
  auto& record = std::get<config::JsonlDataset>(config.source).record;
  record = with_shape(std::move(record));
  return config;
}

Result<std::string> jsonl_settings(const SetRequest& set) {
  const config::DatasetConfig config = resolved_config(set);
  return record_settings("jsonl", {.name = set.name, .config = config});
}

Result<FileTable> scan_jsonl(const SetRequest& set, const ScanProgress& progress) {
  return scan_shards(set, progress);
}

Status index_line(const TextRow& row, const RecordFields& fields, JsonValues& parser,
                  std::vector<FieldValue>& values, RecordIndex& index) {
  const std::string what = line_text(row.line);
  STOKER_RETURN_IF_ERROR(index.at(row.offset, what, parser.read(row.text, values)));
  const auto place = RowPlace::of(row).to_numbers();
  std::array<uint64_t, RowPlace::kWidth + 1> numbers{place[0], place[1], 0};
  if (fields.is_text() && !is_missing(values[0])) {
    const auto* const text = std::get_if<FieldBytes>(&values[0]);
    if (text == nullptr) return index.at(row.offset, what, no_text(fields.names()[0], values[0]));
    numbers.back() = text->size();
  }
  return index.add(row.offset, what, values, std::span(numbers).first(width_of(fields)));
}

Result<Facts> inspect_jsonl(const SetRequest& set, const FileTable& files,
                            const ScanProgress& progress) {
  const config::DatasetConfig config = resolved_config(set);
  const SetRequest resolved{.name = set.name, .config = config, .index_dir = set.index_dir};
  STOKER_ASSIGN_OR_RETURN(const RecordFields fields, RecordFields::of(resolved));
  RecordIndex index(resolved, fields, files, width_of(fields), progress);
  JsonValues parser(fields.names(), row_of(fields));
  std::vector<FieldValue> values(fields.names().size());
  const FileReader reader(files);
  for (size_t file = 0; file < files.size(); ++file) {
    STOKER_RETURN_IF_ERROR(scan_rows(reader, files, file, end_of_line, [&](const TextRow& row) {
      return index_line(row, fields, parser, values, index);
    }));
    index.end_shard();
  }
  return index.finish();
}

Result<std::unique_ptr<Dataset>> open_jsonl(const SetRequest& set, Index index) {
  std::string fingerprint = index.fingerprint();
  const config::DatasetConfig config = resolved_config(set);
  const SetRequest resolved{.name = set.name, .config = config, .index_dir = set.index_dir};
  STOKER_ASSIGN_OR_RETURN(RecordFields fields, RecordFields::of(resolved));
  auto table =
      RecordTable::of(std::move(index.facts), index.files.size(), width_of(fields), fields);
  if (!table) return table.status().with_context("data." + set.name);
  auto records = std::make_unique<JsonRecords>(std::move(index.files), *std::move(table), fields);
  return make_record_dataset(resolved, std::move(fields), std::move(fingerprint),
                             std::move(records));
}

}  // namespace

const Kind& jsonl_kind() {
  static constexpr Kind kKind{.name = "jsonl",
                              .settings = jsonl_settings,
                              .scan = scan_jsonl,
                              .inspect = inspect_jsonl,
                              .open = open_jsonl,
                              .has_rows = true};
  return kKind;
}

}  // namespace stoker::dataset
