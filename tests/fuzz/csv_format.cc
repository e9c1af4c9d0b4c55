#include "tests/fuzz/dataset_under_test.h"
#include "tests/fuzz/format.h"

namespace stoker::fuzz {
namespace {

constexpr unsigned kHasTarget = 1, kHasColumns = 2, kSkips = 4, kIsTabbed = 8;

// The first byte selects the settings; the rest is the file.
bool run(std::string_view input) {
  static DatasetUnderTest set;
  if (input.empty()) return false;
  const unsigned settings = static_cast<unsigned char>(input[0]);
  set.write("table", input.substr(1));
  config::CsvDataset csv;
  csv.path = set.path("table");
  if ((settings & kHasTarget) != 0) {
    csv.record.fields.target = {"y"};
  } else {
    csv.record.fields.label = "y";
  }
  if ((settings & kHasColumns) != 0) csv.column_names = {"a", "y", "b"};
  if ((settings & kSkips) != 0) csv.record.on_missing_field = config::OnMissingField::kDrop;
  if ((settings & kIsTabbed) != 0) csv.delimiter = "\t";
  return set.check({.source = csv});
}

std::string seed(unsigned settings, const std::string& table) {
  return static_cast<char>(settings) + table;
}

}  // namespace

const Format& csv_format() {
  static constexpr Format kFormat{
      .name = "csv", .run = run, .seeds = [] {
        return std::vector<std::string>{
            seed(0, "a,y,b\n1,cat,2.5\n-3,dog,4e2\n"),
            seed(kHasTarget, "\xef\xbb\xbf\"a\",y\r\n\"1\",0.5\r\n\r\n+2,-1e-60"),
            seed(kHasColumns, "1,0,2\n3,17,4\n"),
            seed(kSkips, "x,y\n,1\n2,\"a \"\"b\"\"\n, c\"\n3,\n"),
            seed(kIsTabbed | kHasTarget, "x\ty\n1\t2\n")};
      }};
  return kFormat;
}

}  // namespace stoker::fuzz
