// csv row: where a row of comma-separated values ends, and its fields.
//
// As RFC 4180 has it: fields are separated by one character, a field that begins with a quote goes on
// to the next single quote, "" in it is a quote, and it may hold delimiters and line ends. A quote
// within a field that does not begin with one is a character like others. A row ends with LF, CR LF,
// or the file.
//
// Threads: one CsvRow a thread.
// Errors:  kCorrupt, saying what; the caller adds where.
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

// How many of the bytes are the first row with its line end; 0 where it does not end in them.
size_t end_of_csv_row(std::string_view bytes, char delimiter);

class CsvRow {
 public:
  // `text` with or without its line end; it must live as long as the fields are used.
  Status split(std::string_view text, char delimiter);
  // Only the field `wanted`, and how many there are: several times faster than split() where no field
  // is in quotes. The field is nullopt where there are not so many.
  struct One {
    std::optional<std::string_view> field;
    size_t fields = 0;
  };
  Result<One> split_one(std::string_view text, char delimiter, size_t wanted);

  size_t size() const { return fields_.size(); }
  std::string_view operator[](size_t field) const { return fields_[field]; }

 private:
  Status take_quoted(std::string_view& rest, char delimiter);

  std::vector<std::string_view> fields_;  // into the text, or into unquoted_
  std::string unquoted_;                  // reserved before it is pointed into
};

// CsvTable: what the first rows of a set's files say about its columns.
//
// Threads: a value.
// Errors:  kCorrupt (a header that is not one, files with different headers), kInvalidArgument (a
//          setting names a column that is not there, or that is there twice).
struct CsvTable {
  std::vector<std::string> columns;  // of the header, or of the setting

  // The settings of records with the inputs that they leave out: every column but the label or the
  // targets.
  Result<config::RecordConfig> with_inputs(const DatasetRequest& request) const;
  // The column of each name of the fields. kInvalidArgument also where the shape is not that of so
  // many columns.
  Result<std::vector<size_t>> indices(const DatasetRequest& request,
                                      const record::SampleSpec& spec) const;
};

// The fields of a header row; a line end or another control character in a name counts as a space.
Result<std::vector<std::string>> csv_header(std::string_view row, char delimiter);

}  // namespace stoker::data::format
