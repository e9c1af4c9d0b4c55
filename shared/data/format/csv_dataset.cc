// Format `csv`: files of comma-separated values, one row per sample. The index stores the location
// of each row and its label.
#include <algorithm>
#include <array>
#include <utility>

#include "shared/data/dataset_files.h"
#include "shared/data/format/csv_table.h"
#include "shared/data/format/format.h"
#include "shared/data/format/framed_records.h"
#include "shared/data/format/text_records.h"
#include "shared/data/record/record_dataset.h"
#include "shared/data/record/record_index.h"

namespace stoker::data::format {
namespace {

char delimiter_of(const DatasetRequest& request) {
  return request.as<config::CsvDataset>().delimiter.front();
}

config::DatasetConfig with_record(const DatasetRequest& request, config::RecordConfig record) {
  config::DatasetConfig config = request.config;
  std::get<config::CsvDataset>(config.source).record = with_shape(std::move(record));
  return config;
}

record::FieldBytes size_in_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

class CsvFields final : public RecordFields {
 public:
  CsvFields(const record::SampleSpec& spec, std::vector<size_t> indices, char delimiter)
      : RecordFields(spec), indices_(std::move(indices)), delimiter_(delimiter) {}

  Status read(std::span<const std::byte> record, std::span<record::FieldValue> values,
              std::optional<size_t> /*maybe_known*/) override {
    STOKER_RETURN_IF_ERROR(row_.split(record::to_string_view(record), delimiter_));
    for (size_t i = 0; i < values.size(); ++i)
      if (indices_[i] < row_.size()) values[i] = size_in_bytes(row_[indices_[i]]);
    return {};
  }

 private:
  const std::vector<size_t> indices_;
  const char delimiter_;
  CsvRow row_;
};

// Those of pandas.read_csv, except the empty cell.
constexpr auto kMarkers = std::to_array<std::string_view>(
    {"#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>",
     "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"});

std::vector<std::string> markers_of(const DatasetRequest& request) {
  const auto& given = request.as<config::CsvDataset>().na_values;
  return given.empty() ? std::vector<std::string>(kMarkers.begin(), kMarkers.end()) : given;
}

// Each marker has one of these; rows of numbers usually have none.
std::string first_bytes(const std::vector<std::string>& markers) {
  constexpr std::string_view kRare = "#Nn";
  std::string bytes;
  for (const std::string& marker : markers) {
    const size_t rare = marker.find_first_of(kRare);
    if (!marker.empty()) bytes += marker[rare == std::string::npos ? 0 : rare];
  }
  std::ranges::sort(bytes);
  bytes.erase(std::ranges::unique(bytes).begin(), bytes.end());
  return bytes;
}

// Builds the index in one pass over the files.
class CsvScan {
 public:
  CsvScan(const DatasetRequest& request, const files::FileTable& files,
          const files::ScanProgress& progress)
      : request_(request),
        files_(files),
        progress_(progress),
        delimiter_(delimiter_of(request)),
        has_given_markers_(!request.as<config::CsvDataset>().na_values.empty()),
        markers_(markers_of(request)),
        marker_bytes_(first_bytes(markers_)),
        table_{.columns = request.as<config::CsvDataset>().column_names} {}

  Result<files::IndexMetadata> run() {
    const files::FileReader reader(files_);
    const LineEnd line_end = [this](std::string_view bytes) {
      return end_of_csv_row(bytes, delimiter_);
    };
    for (size_t file = 0; file < files_.size(); ++file) {
      header_due_ = request_.as<config::CsvDataset>().column_names.empty();
      if (!header_due_ && !index_) STOKER_RETURN_IF_ERROR(begin());
      const Status scanned = scan_lines(reader, files_, file, line_end, [&](const TextLine& row) {
        return header_due_ ? take_header(file, row) : take_row(row);
      });
      STOKER_RETURN_IF_ERROR(request_.with_path(scanned));
      if (header_due_) return no_header(file);
      index_->end_shard();
    }
    STOKER_ASSIGN_OR_RETURN(files::IndexMetadata metadata, index_->finish());
    metadata.numbers.push_back(table_.columns.size());
    metadata.names.insert(metadata.names.end(), table_.columns.begin(), table_.columns.end());
    return metadata;
  }

 private:
  Status no_header(size_t file) const {
    return Status(StatusCode::kCorrupt, request_.key("path") + ": " + files_.path(file) +
                                            ": empty, without even a header");
  }

  // Called as soon as the columns are known.
  Status begin() {
    STOKER_ASSIGN_OR_RETURN(auto record, table_.with_inputs(request_));
    config_ = with_record(request_, std::move(record));
    const DatasetRequest request{
        .name = request_.name, .config = config_, .index_dir = request_.index_dir};
    STOKER_ASSIGN_OR_RETURN(spec_, record::SampleSpec::for_index(request));
    STOKER_ASSIGN_OR_RETURN(indices_, table_.indices(request_, *spec_));
    // Whether a value is a number is checked when its row is read. The index only needs to know
    // whether it is missing.
    values_.assign(indices_.size(), record::FieldValue(record::FieldFloats(&kSomeNumber, 1)));
    index_.emplace(request_, *spec_, files_, LineLocation::kWidth, progress_);
    return {};
  }

  Status take_header(size_t file, const TextLine& row) {
    header_due_ = false;
    const size_t line_end = row.text.find_first_of("\r\n");
    const bool has_returns = line_end < row.text.size() && line_end + 1 < row.text.size() &&
                             row.text[line_end] == '\r' && row.text[line_end + 1] != '\n' &&
                             row.text.find('\n') == row.text.npos;
    if (has_returns && row.text.find('"') == row.text.npos)
      return Status(StatusCode::kCorrupt,
                    files_.path(file) +
                        ": its lines end with carriage returns alone; convert them "
                        "to line feeds, for example with tr '\\r' '\\n'");
    auto names = csv_header(row.text, delimiter_);
    if (!names) return names.status().with_context(files_.path(file) + ": its header");
    if (file == 0) {
      table_.columns = *std::move(names);
      return begin();
    }
    if (*names == table_.columns) return {};
    return Status(StatusCode::kCorrupt, files_.path(file) + ": its header is not that of " +
                                            files_.path(0) +
                                            "; put files of one kind together by glob");
  }

  Status take_row(const TextLine& row) {
    const std::string what = line_location_text(row.line);
    if (const Status scanned = scan_row(row.text); !scanned.ok())
      return index_->add_bad(row.offset, what, scanned);
    return index_->add(row.offset, what, values_, LineLocation::of(row).to_numbers());
  }

  Status scan_row(std::string_view text) {
    if (std::exchange(is_split_, false))
      std::ranges::fill(values_, record::FieldValue(record::FieldFloats(&kSomeNumber, 1)));
    const auto label = spec_->label_value();
    STOKER_ASSIGN_OR_RETURN(const auto one,
                            row_.split_one(text, delimiter_, label ? indices_[*label] : 0));
    if (one.fields != table_.columns.size())
      return corrupt_record("has " + std::to_string(one.fields) + " fields, but there are " +
                            std::to_string(table_.columns.size()) + " columns");
    if (label) values_[*label] = size_in_bytes(*one.field);
    is_split_ = spec_->has_group || may_have_empty(text) || may_have_marker(text);
    if (!is_split_) return {};
    STOKER_RETURN_IF_ERROR(row_.split(text, delimiter_));
    take_texts_and_record_empty();
    return {};
  }

  // Whether a field can be empty: two consecutive delimiters, one at either end, or quotes.
  bool may_have_empty(std::string_view text) const {
    const char before_end = text.find_last_not_of("\r\n") == std::string_view::npos
                                ? '\0'
                                : text[text.find_last_not_of("\r\n")];
    const char twice[] = {delimiter_, delimiter_};
    return text.front() == delimiter_ || before_end == delimiter_ ||
           text.find(std::string_view(twice, 2)) != std::string_view::npos ||
           text.find('"') != std::string_view::npos;
  }

  // Whether a field can be one of na_values: all have one of these characters.
  bool may_have_marker(std::string_view text) const {
    return text.find_first_of(marker_bytes_) != std::string_view::npos;
  }

  // An empty field is a missing value, and so is one of na_values.
  void take_texts_and_record_empty() {
    const auto label = spec_->label_value(), group = spec_->group_value();
    for (size_t i = 0; i < indices_.size(); ++i) {
      const std::string_view field = record::trimmed(row_[indices_[i]]);
      const bool is_number = i != label && i != group;
      if (field.empty() || ((is_number || has_given_markers_) && is_marker(field)))
        values_[i] = record::FieldValue();
      else if (!is_number)
        values_[i] = size_in_bytes(row_[indices_[i]]);
    }
  }

  bool is_marker(std::string_view field) const {
    return std::ranges::find(markers_, field) != markers_.end();
  }

  static constexpr float kSomeNumber = 0;

  const DatasetRequest& request_;
  const files::FileTable& files_;
  const files::ScanProgress& progress_;
  const char delimiter_;
  const bool has_given_markers_;
  const std::vector<std::string> markers_;
  const std::string marker_bytes_;
  CsvTable table_;
  config::DatasetConfig config_;
  std::optional<record::SampleSpec> spec_;
  std::vector<size_t> indices_;
  std::optional<record::RecordIndexBuilder> index_;
  std::vector<record::FieldValue> values_;
  CsvRow row_;
  bool is_split_ = false;  // values_ has more of the last row than its label
  bool header_due_ = false;
};

Result<std::string> csv_fingerprint_text(const DatasetRequest& request) {
  const auto& csv = request.as<config::CsvDataset>();
  const std::string& delimiter = csv.delimiter;
  constexpr std::string_view kNever = "\"\r\n";
  if (delimiter.size() != 1 || kNever.find(delimiter[0]) != std::string_view::npos)
    return request.config_error("delimiter",
                                "must be one character other than a quote and a line end");
  config::RecordConfig record = csv.record;
  const bool uses_full_image = record.fields.input.empty();
  if (uses_full_image) record.fields.input = {"*"};
  const config::DatasetConfig config = with_record(request, std::move(record));
  const DatasetRequest with_input{.name = request.name, .config = config};
  STOKER_ASSIGN_OR_RETURN(std::string text, record::record_fingerprint_text("csv", with_input));
  text += " delimiter=" + std::to_string(int{delimiter_of(request)}) +
          (uses_full_image ? " every column" : "");
  for (const std::string& marker : csv.na_values)
    text += " na=" + std::to_string(marker.size()) + ':' + marker;
  for (const std::string& column : csv.column_names)
    text += ' ' + std::to_string(column.size()) + ':' + column;
  return text;
}

Result<files::IndexMetadata> build_csv_metadata(const DatasetRequest& request,
                                                const files::FileTable& files,
                                                const files::ScanProgress& progress) {
  return CsvScan(request, files, progress).run();
}

// The column names are stored after the class names.
Result<CsvTable> take_columns(const DatasetRequest& request, files::IndexMetadata& metadata) {
  if (metadata.numbers.empty() || metadata.numbers.back() > metadata.names.size())
    return Status(StatusCode::kCorrupt,
                  "data." + request.name + ": its index does not describe a csv dataset");
  const auto first = metadata.names.end() - static_cast<ptrdiff_t>(metadata.numbers.back());
  CsvTable table{.columns = {first, metadata.names.end()}};
  metadata.names.erase(first, metadata.names.end());
  metadata.numbers.pop_back();
  return table;
}

Result<std::unique_ptr<Dataset>> open_csv(const DatasetRequest& request, files::Index index) {
  std::string fingerprint = index.fingerprint();
  STOKER_ASSIGN_OR_RETURN(const CsvTable columns, take_columns(request, index.metadata));
  STOKER_ASSIGN_OR_RETURN(auto record, columns.with_inputs(request));
  const config::DatasetConfig config = with_record(request, std::move(record));
  const DatasetRequest resolved{
      .name = request.name, .config = config, .index_dir = request.index_dir};
  STOKER_ASSIGN_OR_RETURN(record::SampleSpec spec, record::SampleSpec::of(resolved));
  STOKER_ASSIGN_OR_RETURN(const std::vector<size_t> indices, columns.indices(request, spec));
  return open_framed(
      resolved, std::move(index), std::move(fingerprint), line_framing(), std::move(spec),
      [indices, delimiter = delimiter_of(request)](const record::SampleSpec& sample) {
        return std::make_unique<CsvFields>(sample, indices, delimiter);
      });
}

}  // namespace

const DatasetFormatOps& csv_format() {
  static constexpr DatasetFormatOps kFormatOps{.name = "csv",
                                               .fingerprint_text = csv_fingerprint_text,
                                               .scan = scan_shards,
                                               .build_metadata = build_csv_metadata,
                                               .open = open_csv,
                                               .has_rows = true};
  return kFormatOps;
}

}  // namespace stoker::data::format
