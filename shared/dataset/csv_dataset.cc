// Format `csv`: files of comma-separated values, one row a sample. The index keeps where each row lies,
// and its label.
#include <algorithm>
#include <utility>

#include "shared/dataset/csv_row.h"
#include "shared/dataset/csv_table.h"
#include "shared/dataset/kind.h"
#include "shared/dataset/record_index.h"
#include "shared/dataset/records.h"
#include "shared/dataset/shard_files.h"
#include "shared/dataset/text_rows.h"

namespace stoker::dataset {
namespace {

char delimiter_of(const SetRequest& set) { return set.as<config::CsvDataset>().delimiter.front(); }

config::DatasetConfig with_record(const SetRequest& set, config::RecordConfig record) {
  config::DatasetConfig config = set.config;
  std::get<config::CsvDataset>(config.source).record = with_shape(std::move(record));
  return config;
}

FieldBytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

class CsvRecords final : public TextRecords {
 public:
  CsvRecords(FileTable files, RecordTable table, std::vector<size_t> places, char delimiter)
      : TextRecords(std::move(files), std::move(table)),
        places_(std::move(places)),
        delimiter_(delimiter) {}

  Status read(uint64_t record, std::span<FieldValue> values) const override {
    thread_local CsvRow row;
    STOKER_ASSIGN_OR_RETURN(const std::string_view text, read_row(record));
    STOKER_RETURN_IF_ERROR(at(record, row.split(text, delimiter_)));
    for (size_t i = 0; i < places_.size(); ++i)
      if (places_[i] < row.size()) values[i] = bytes_of(row[places_[i]]);
    return {};
  }

 private:
  const std::vector<size_t> places_;
  const char delimiter_;
};

// One pass over the files.
class CsvScan {
 public:
  CsvScan(const SetRequest& set, const FileTable& files, const ScanProgress& progress)
      : set_(set),
        files_(files),
        progress_(progress),
        delimiter_(delimiter_of(set)),
        table_{.columns = set.as<config::CsvDataset>().column_names} {}

  Result<Facts> run() {
    const FileReader reader(files_);
    const RowEnd row_end = [this](std::string_view bytes) {
      return end_of_csv_row(bytes, delimiter_);
    };
    for (size_t file = 0; file < files_.size(); ++file) {
      header_due_ = set_.as<config::CsvDataset>().column_names.empty();
      if (!header_due_ && !index_) STOKER_RETURN_IF_ERROR(begin());
      STOKER_RETURN_IF_ERROR(scan_rows(reader, files_, file, row_end, [&](const TextRow& row) {
                               return header_due_ ? take_header(file, row) : take_row(row);
                             }).with_context(set_.key("path")));
      if (header_due_) return no_header(file);
      index_->end_shard();
    }
    STOKER_ASSIGN_OR_RETURN(Facts facts, index_->finish());
    facts.numbers.push_back(table_.columns.size());
    facts.names.insert(facts.names.end(), table_.columns.begin(), table_.columns.end());
    return facts;
  }

 private:
  Status no_header(size_t file) const {
    return Status(Code::kCorrupt,
                  set_.key("path") + ": " + files_.path(file) + ": empty, without even a header");
  }

  // Once the columns are known.
  Status begin() {
    STOKER_ASSIGN_OR_RETURN(auto record, table_.with_inputs(set_));
    config_ = with_record(set_, std::move(record));
    const SetRequest set{.name = set_.name, .config = config_, .index_dir = set_.index_dir};
    STOKER_ASSIGN_OR_RETURN(fields_, RecordFields::of(set));
    STOKER_ASSIGN_OR_RETURN(places_, table_.places(set_, *fields_));
    // What is a number is found out when a row is read; here only what is there matters.
    values_.assign(places_.size(), FieldValue(FieldFloats(&kSomeNumber, 1)));
    index_.emplace(set_, *fields_, files_, RowPlace::kWidth, progress_);
    return {};
  }

  Status take_header(size_t file, const TextRow& row) {
    header_due_ = false;
    auto names = csv_header(row.text, delimiter_);
    if (!names) return names.status().with_context(files_.path(file) + ": its header");
    if (file == 0) {
      table_.columns = *std::move(names);
      return begin();
    }
    if (*names == table_.columns) return {};
    return Status(Code::kCorrupt, files_.path(file) + ": its header is not that of " +
                                      files_.path(0) + "; put files of one kind together by glob");
  }

  Status take_row(const TextRow& row) {
    const auto label = fields_->label();
    const auto one = row_.split_one(row.text, delimiter_, label ? places_[*label] : 0);
    if (!one) return index_->at(row.offset, line_text(row.line), one.status());
    if (one->fields != table_.columns.size()) {
      const Status wrong(Code::kCorrupt, "has " + std::to_string(one->fields) +
                                             " fields, but there are " +
                                             std::to_string(table_.columns.size()) + " columns");
      return index_->at(row.offset, line_text(row.line), wrong);
    }
    if (label) values_[*label] = bytes_of(*one->field);
    const bool any_empty = may_have_empty(row.text);
    if (any_empty) STOKER_RETURN_IF_ERROR(note_empty(row));
    const auto numbers = RowPlace::of(row).to_numbers();
    const Status added = index_->add(row.offset, line_text(row.line), values_, numbers);
    if (any_empty) std::ranges::fill(values_, FieldValue(FieldFloats(&kSomeNumber, 1)));
    return added;
  }

  // Whether a field might be empty: two delimiters in a row, one at an end, or quotes.
  bool may_have_empty(std::string_view text) const {
    const char before_end = text.find_last_not_of("\r\n") == std::string_view::npos
                                ? '\0'
                                : text[text.find_last_not_of("\r\n")];
    const char twice[] = {delimiter_, delimiter_};
    return text.front() == delimiter_ || before_end == delimiter_ ||
           text.find(std::string_view(twice, 2)) != std::string_view::npos ||
           text.find('"') != std::string_view::npos;
  }

  // An empty field is a value that is not there.
  Status note_empty(const TextRow& row) {
    STOKER_RETURN_IF_ERROR(
        index_->at(row.offset, line_text(row.line), row_.split(row.text, delimiter_)));
    for (size_t i = 0; i < places_.size(); ++i) {
      const std::string_view field = row_[places_[i]];
      if (trimmed(field).empty()) values_[i] = FieldValue();
    }
    const auto label = fields_->label();
    if (label && !is_missing(values_[*label])) values_[*label] = bytes_of(row_[places_[*label]]);
    return {};
  }

  static constexpr float kSomeNumber = 0;

  const SetRequest& set_;
  const FileTable& files_;
  const ScanProgress& progress_;
  const char delimiter_;
  CsvTable table_;
  config::DatasetConfig config_;
  std::optional<RecordFields> fields_;
  std::vector<size_t> places_;
  std::optional<RecordIndex> index_;
  std::vector<FieldValue> values_;
  CsvRow row_;
  bool header_due_ = false;
};

Result<std::string> csv_settings(const SetRequest& set) {
  const auto& csv = set.as<config::CsvDataset>();
  const std::string& delimiter = csv.delimiter;
  constexpr std::string_view kNever = "\"\r\n";
  if (delimiter.size() != 1 || kNever.find(delimiter[0]) != std::string_view::npos)
    return set.wrong("delimiter", "must be one character other than a quote and a line end");
  config::RecordConfig record = csv.record;
  const bool takes_all = record.fields.input.empty();
  if (takes_all) record.fields.input = {"*"};
  const config::DatasetConfig config = with_record(set, std::move(record));
  const SetRequest with_input{.name = set.name, .config = config};
  STOKER_ASSIGN_OR_RETURN(std::string text, record_settings("csv", with_input));
  text +=
      " delimiter=" + std::to_string(int{delimiter_of(set)}) + (takes_all ? " every column" : "");
  for (const std::string& column : csv.column_names)
    text += ' ' + std::to_string(column.size()) + ':' + column;
  return text;
}

Result<FileTable> scan_csv(const SetRequest& set, const ScanProgress& progress) {
  return scan_shards(set, progress);
}

Result<Facts> inspect_csv(const SetRequest& set, const FileTable& files,
                          const ScanProgress& progress) {
  return CsvScan(set, files, progress).run();
}

Status no_csv(const SetRequest& set) {
  return Status(Code::kCorrupt,
                "data." + set.name + ": its index does not describe a csv data set");
}

// The columns stand behind the names of the classes.
Result<CsvTable> take_columns(const SetRequest& set, Facts& facts) {
  if (facts.numbers.empty() || facts.numbers.back() > facts.names.size()) return no_csv(set);
  const auto first = facts.names.end() - static_cast<ptrdiff_t>(facts.numbers.back());
  CsvTable table{.columns = {first, facts.names.end()}};
  facts.names.erase(first, facts.names.end());
  facts.numbers.pop_back();
  return table;
}

Result<std::unique_ptr<Dataset>> open_csv(const SetRequest& set, Index index) {
  std::string fingerprint = index.fingerprint();
  STOKER_ASSIGN_OR_RETURN(const CsvTable columns, take_columns(set, index.facts));
  STOKER_ASSIGN_OR_RETURN(auto record, columns.with_inputs(set));
  const config::DatasetConfig config = with_record(set, std::move(record));
  const SetRequest resolved{.name = set.name, .config = config, .index_dir = set.index_dir};
  STOKER_ASSIGN_OR_RETURN(RecordFields fields, RecordFields::of(resolved));
  STOKER_ASSIGN_OR_RETURN(std::vector<size_t> places, columns.places(set, fields));
  auto table =
      RecordTable::of(std::move(index.facts), index.files.size(), RowPlace::kWidth, fields);
  if (!table) return no_csv(set);
  auto records = std::make_unique<CsvRecords>(std::move(index.files), *std::move(table),
                                              std::move(places), delimiter_of(set));
  return make_record_dataset(resolved, std::move(fields), std::move(fingerprint),
                             std::move(records));
}

}  // namespace

const Kind& csv_kind() {
  static constexpr Kind kKind{.name = "csv",
                              .settings = csv_settings,
                              .scan = scan_csv,
                              .inspect = inspect_csv,
                              .open = open_csv,
                              .has_rows = true};
  return kKind;
}

}  // namespace stoker::dataset
