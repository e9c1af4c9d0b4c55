// Splitting the rows of a CSV file into fields, compared with libcsv.
#include <csv.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/cpu_time.h"
#include "bench/library_benches.h"
#include "shared/data/format/csv_table.h"

namespace stoker::bench {
namespace {

constexpr size_t kColumns = 20;

// Numbers with six digits; `quoted`: each fourth field is a quoted text with a delimiter in it.
std::string make_csv(size_t rows, bool quoted) {
  std::string text;
  uint64_t state = 1;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < kColumns; ++column) {
      state = state * 6364136223846793005 + 1442695040888963407;
      const std::string number = std::to_string(static_cast<double>(state >> 44) / 1e5);
      text += quoted && column % 4 == 0 ? "\"a, " + number + '"' : number;
      text += column + 1 < kColumns ? ',' : '\n';
    }
  }
  return text;
}

struct Totals {
  size_t fields = 0;
  size_t bytes = 0;
  bool operator==(const Totals&) const = default;
};

Result<Totals> split_rows(std::string_view rest) {
  Totals totals;
  data::format::CsvRow row;
  while (!rest.empty()) {
    const size_t length = data::format::end_of_csv_row(rest, ',');
    STOKER_RETURN_IF_ERROR(row.split(rest.substr(0, length), ','));
    rest.remove_prefix(length);
    totals.fields += row.size();
    for (size_t field = 0; field < row.size(); ++field) totals.bytes += row[field].size();
  }
  return totals;
}

Result<Totals> split_with_libcsv(std::string_view text) {
  csv_parser parser;
  if (::csv_init(&parser, CSV_STRICT) != 0) return Status(StatusCode::kInternal, "csv_init");
  Totals totals;
  const auto add_field = [](void*, size_t bytes, void* data) {
    auto& sums = *static_cast<Totals*>(data);
    ++sums.fields;
    sums.bytes += bytes;
  };
  const size_t parsed = ::csv_parse(
      &parser, text.data(), text.size(), add_field, [](int, void*) {}, &totals);
  ::csv_free(&parser);
  if (parsed != text.size()) return Status(StatusCode::kInternal, "csv_parse");
  return totals;
}

Result<double> megabytes_per_second(Result<Totals> (*split)(std::string_view),
                                    const std::string& text, std::chrono::nanoseconds time) {
  STOKER_ASSIGN_OR_RETURN(const Totals expected, split_rows(text));
  const auto work = [&]() -> Status {
    STOKER_ASSIGN_OR_RETURN(const Totals totals, split(text));
    return totals == expected ? Status() : Status(StatusCode::kInternal, "fields differ");
  };
  STOKER_ASSIGN_OR_RETURN(const double seconds, cpu_time_per_call(work, time));
  return static_cast<double>(text.size()) / seconds / 1e6;
}

}  // namespace

Benchmark library_csv() {
  const auto prepare = [](const Options& options) -> Result<std::vector<Trial>> {
    std::vector<Trial> trials;
    for (const bool quoted : {false, true}) {
      const auto text =
          std::make_shared<const std::string>(make_csv(options.quick ? 100 : 50'000, quoted));
      const auto measure = [=, time = options.run_time()](auto* split) {
        return [=] { return megabytes_per_second(split, *text, time); };
      };
      trials.push_back({quoted ? "rows of 20 fields, 5 of them quoted" : "rows of 20 numbers",
                        "MB/s",
                        measure(&split_rows),
                        {{"libcsv", measure(&split_with_libcsv)}}});
    }
    return trials;
  };
  return {"csv", "fields of CSV rows, compared with libcsv", prepare};
}

}  // namespace stoker::bench
