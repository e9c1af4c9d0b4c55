// csv row: finds the end of a row of comma-separated values and splits it into fields.
//
// RFC 4180: fields are separated by one character. A field that starts with a quote extends to the
// next single quote, "" in it is a quote, and it can contain delimiters and line ends. In other
// fields, a quote is an ordinary character. A row ends with LF, CR LF or the end of the file.
//
// Threads: one CsvRow per thread.
// Errors:  kCorrupt with the reason; the caller adds the location.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/data/dataset_request.h"
#include "shared/data/record/sample_spec.h"

namespace stoker::data::format {

// Size in bytes of the first row including its line end; 0 if the row does not end within `bytes`.
size_t end_of_csv_row(std::string_view bytes, char delimiter);

class CsvRow {
 public:
  // `text` can include the line end. It must outlive the use of the fields.
  Status split(std::string_view text, char delimiter);
  // Extracts the field `wanted` and counts the fields. Several times faster than split() if no
  // field is quoted. The field is nullopt if the row has too few.
  struct One {
    std::optional<std::string_view> field;
    size_t fields = 0;
  };
  Result<One> split_one(std::string_view text, char delimiter, size_t wanted);

  size_t size() const { return fields_.size(); }
  std::string_view operator[](size_t field) const { return fields_[field]; }

 private:
  Status take_quoted(std::string_view& rest, char delimiter);

  std::vector<std::string_view> fields_;  // views of the text or of unquoted_
  std::string unquoted_;                  // reserved in advance, so that views of it stay valid
};

// CsvTable: the columns of the files of a dataset, from their header rows or the configuration.
//
// Threads: a value.
// Errors:  kCorrupt (an invalid header, files with different headers), kInvalidArgument (a
//          configured column does not exist or is not unique).
struct CsvTable {
  std::vector<std::string> columns;  // from the header or column_names

  // The record config. An empty fields.input is filled with all columns except the label, the targets
  // and the group.
  Result<config::RecordConfig> with_inputs(const DatasetRequest& request) const;
  // Column index of each name in the fields. kInvalidArgument also if input_shape does not match
  // the number of input columns.
  Result<std::vector<size_t>> indices(const DatasetRequest& request,
                                      const record::SampleSpec& spec) const;
};

// The fields of a header row. Line ends and other control characters in a name are replaced with
// spaces.
Result<std::vector<std::string>> csv_header(std::string_view row, char delimiter);

}  // namespace stoker::data::format
