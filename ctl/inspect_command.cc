#include "ctl/inspect_command.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <thread>
#include <vector>

#include <boost/json.hpp>

#include "ctl/daemon_client.h"
#include "ctl/text_format.h"
#include "shared/base/json_parser.h"
#include "shared/base/number_format.h"
#include "shared/base/readable_format.h"
#include "shared/base/utf8.h"

namespace stoker::ctl {
namespace {

// One histogram bucket: `count` values between the previous `limit` and this one. The first entry
// only holds the lower limit of the first bucket.
struct HistogramPoint {
  double limit = 0;
  double count = 0;
};

constexpr std::array<const char*, 9> kBlocks = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<const char*, 9> kAscii = {" ", ".", ".", ":", "-", "=", "+", "*", "#"};

std::vector<double> rebin(const std::vector<HistogramPoint>& points, double min, double max,
                          size_t width) {
  std::vector<double> bins(width, 0.0);
  const double bin_width = (max - min) / static_cast<double>(width);
  for (size_t i = 1; i < points.size(); ++i) {
    const double low = std::max(points[i - 1].limit, min), high = std::min(points[i].limit, max);
    if (points[i].count <= 0) continue;
    // a bucket of zero width within [min, max], such as that of zero at either end
    if (high <= low) {
      const double at = std::clamp((low - min) / bin_width, 0.0, static_cast<double>(width - 1));
      bins[static_cast<size_t>(at)] += points[i].count;
      continue;
    }
    for (size_t at = 0; at < width; ++at) {
      const double begin = min + static_cast<double>(at) * bin_width;
      const double overlap = std::min(high, begin + bin_width) - std::max(low, begin);
      if (overlap > 0) bins[at] += points[i].count * overlap / (high - low);
    }
  }
  return bins;
}

// Formats a histogram on one line, with `width` characters for equal parts of [min, max]. A higher
// character stands for a larger count; the count of a bucket is spread evenly over the bucket. Uses
// eighths of a block if `unicode` is set, else one of " .:-=+*#". Returns an empty string if there
// is nothing to draw.
std::string sparkline(const std::vector<HistogramPoint>& points, double min, double max,
                      size_t width, bool unicode) {
  if (points.size() < 2 || width == 0 || !std::isfinite(min) || !std::isfinite(max)) return "";
  const auto& marks = unicode ? kBlocks : kAscii;
  if (max <= min) return marks.back();
  const std::vector<double> bins = rebin(points, min, max, width);
  const double max_count = *std::max_element(bins.begin(), bins.end());
  std::string out;
  for (const double bin : bins) {
    // Round up, so that every nonzero count is visible.
    const double height = max_count > 0 ? std::ceil(bin / max_count * 8 - 1e-9) : 0;
    out += marks[static_cast<size_t>(std::clamp(height, 0.0, 8.0))];
  }
  return out;
}

namespace json = boost::json;
using std::chrono::milliseconds;

constexpr milliseconds kOpenTimeout{
    600'000};  // it is opened between two steps, and a step can take minutes
constexpr milliseconds kReadTimeout{10'000};
constexpr size_t kSparkWidth = 16;
constexpr int kInspectionDigits = 3;

double number_field(const json::object& tensor, const char* name) {
  return tensor.at(name).to_number<double>();
}

std::string printable_field(const json::object& tensor, const char* name) {
  return printable(std::string_view(tensor.at(name).as_string()));
}

std::vector<HistogramPoint> histogram_points(const json::object& tensor) {
  std::vector<HistogramPoint> points;
  const auto* const histogram = tensor.if_contains("histogram");
  if (histogram == nullptr) return points;
  for (const json::value& point : histogram->as_array()) {
    points.push_back({.limit = point.as_array().at(0).to_number<double>(),
                      .count = point.as_array().at(1).to_number<double>()});
  }
  return points;
}

// Calls `render` with the fields of the record. An exception of Boost.JSON means that the record is
// malformed.
template <typename Render>
Result<std::string> render_record(const std::string& row, Render render) {
  return parse_json_object<std::string>(row, "inspection record of stokerd", render);
}

// "[4, 3, 32, 32]"
std::string format_shape(const json::object& tensor) {
  std::string text;
  for (const json::value& size : tensor.at("shape").as_array())
    text += (text.empty() ? "" : ", ") + std::to_string(size.to_number<uint64_t>());
  return "[" + text + "]";
}

bool is_input(const json::object& tensor) { return tensor.at("kind").as_string() == "input"; }

std::vector<std::string> file_names(const json::object& row) {
  std::vector<std::string> names;
  const auto* const files = row.if_contains("files");
  if (files == nullptr) return names;
  for (const json::value& file : files->as_array())
    names.push_back(printable(std::string_view(file.as_string())));
  return names;
}

// "ticket 17, 2 files", and a line per file. Empty if the record has no inputs.
std::string format_ticket(const json::object& row) {
  if (!row.contains("ticket")) return "";
  const auto num_files = row.at("num_files").to_number<uint64_t>();
  const auto files = file_names(row);
  std::string text = "ticket " + format_count(row.at("ticket").to_number<uint64_t>());
  if (num_files > 0) text += ", " + format_count(num_files) + (num_files == 1 ? " file" : " files");
  text += "\n";
  for (const std::string& file : files) text += "  " + file + "\n";
  if (files.size() < num_files)
    text += "  and " + format_count(num_files - files.size()) + " more\n";
  return text;
}

std::vector<std::string> tensor_cells(const json::object& tensor, const TextStyle& style,
                                      bool histogram, bool has_inputs) {
  const auto number = [&tensor](const char* name) {
    return format_number(number_field(tensor, name), kInspectionDigits);
  };
  std::vector<std::string> cells = {printable_field(tensor, "name"),
                                    printable_field(tensor, "kind"),
                                    number("mean"),
                                    number("std"),
                                    number("min"),
                                    number("max"),
                                    number("norm"),
                                    format_percent(number_field(tensor, "zero_fraction")),
                                    std::to_string(tensor.at("nan_count").to_number<uint64_t>()),
                                    std::to_string(tensor.at("inf_count").to_number<uint64_t>())};
  if (has_inputs) {
    cells.insert(cells.begin() + 2, is_input(tensor) ? printable_field(tensor, "dtype") : "");
    cells.insert(cells.begin() + 3, is_input(tensor) ? format_shape(tensor) : "");
  }
  if (histogram) {
    cells.push_back(sparkline(histogram_points(tensor), number_field(tensor, "min"),
                              number_field(tensor, "max"), kSparkWidth, style.unicode));
  }
  return cells;
}

std::string format_table(const json::object& row, const TextStyle& style) {
  const json::array& tensors = row.at("tensors").as_array();
  const bool histogram = !tensors.empty() && tensors.front().as_object().contains("histogram");
  std::vector<Column> columns = {{"name", true}, {"kind", true}, {"mean"},    {"std"}, {"min"},
                                 {"max"},        {"norm"},       {"zeros %"}, {"NaN"}, {"inf"}};
  const bool has_inputs = row.contains("ticket");
  if (has_inputs) {
    columns.insert(columns.begin() + 2, Column{"dtype", true});
    columns.insert(columns.begin() + 3, Column{"shape", true});
  }
  if (histogram) columns.push_back({"from min to max", true});
  TextTable table(columns);
  for (const json::value& tensor : tensors)
    table.add(tensor_cells(tensor.as_object(), style, histogram, has_inputs));
  return "step " + format_count(row.at("step").to_number<uint64_t>()) + "\n" + table.render(style) +
         format_ticket(row);
}

std::string format_lines(const json::object& row) {
  const std::string step = "step=" + std::to_string(row.at("step").to_number<uint64_t>());
  std::string out;
  for (const json::value& value : row.at("tensors").as_array()) {
    const json::object& tensor = value.as_object();
    out += step + " " + printable_field(tensor, "kind") + "=" + printable_field(tensor, "name");
    if (is_input(tensor))
      out += " dtype=" + printable_field(tensor, "dtype") +
             " shape=" + json::serialize(tensor.at("shape"));
    for (const char* name :
         {"mean", "std", "min", "max", "norm", "zero_fraction", "nan_count", "inf_count"}) {
      out += " " + (std::string(name) + "=") + format_shortest(number_field(tensor, name));
    }
    const std::string bars = sparkline(histogram_points(tensor), number_field(tensor, "min"),
                                       number_field(tensor, "max"), kSparkWidth, false);
    out += bars.empty() ? "\n" : " [" + bars + "]\n";
  }
  if (!row.contains("ticket")) return out;
  const std::string ticket =
      step + " ticket=" + std::to_string(row.at("ticket").to_number<uint64_t>());
  out += ticket + " num_files=" + std::to_string(row.at("num_files").to_number<uint64_t>()) + "\n";
  for (const std::string& file : file_names(row)) out += ticket + " file=" + file + "\n";
  return out;
}

// Formats a record of an inspection as a table. kCorrupt: the record is malformed.
Result<std::string> render_inspection_table(const std::string& row, const TextStyle& style) {
  return render_record(row,
                       [&](const json::object& fields) { return format_table(fields, style); });
}

Result<std::string> render_inspection_lines(const std::string& row) {
  return render_record(row, [](const json::object& fields) { return format_lines(fields); });
}

// Result of one read of the inspection.
struct InspectionRecords {
  std::vector<std::string> rows;
  uint64_t next = 0;
  uint64_t dropped = 0;
  std::string end_reason;
};

Result<InspectionRecords> fetch(DaemonClient& client, uint64_t inspection, uint64_t after) {
  const control::ReadInspection read{.inspection = inspection, .after = after};
  STOKER_ASSIGN_OR_RETURN(const std::string reply, client.request(read, kReadTimeout));
  const auto parse = [](const json::object& fields) {
    InspectionRecords records;
    for (const json::value& row : fields.at("records").as_array())
      records.rows.push_back(json::serialize(row));
    records.next = fields.at("next").to_number<uint64_t>();
    records.dropped = fields.at("dropped").to_number<uint64_t>();
    records.end_reason = std::string(fields.at("end_reason").as_string());
    return records;
  };
  return parse_json_object<InspectionRecords>(reply, "reply of stokerd", parse);
}

// On a terminal, draws the newest record over the previous one, unless there is only one; otherwise
// prints every record.
Status show(const InspectionRecords& records, const CommandLine& command, const Console& console,
            uint64_t dropped, bool live) {
  for (size_t i = live && !records.rows.empty() ? records.rows.size() - 1 : 0;
       i < records.rows.size(); ++i) {
    if (command.json) {
      console.print_json(records.rows[i]);
      continue;
    }
    STOKER_ASSIGN_OR_RETURN(const std::string text,
                            console.style.live
                                ? render_inspection_table(records.rows[i], console.style)
                                : render_inspection_lines(records.rows[i]));
    if (!live) {
      console.out << text;
      continue;
    }
    std::string screen = "\x1b[H";
    for (const char c : text) screen += c == '\n' ? std::string("\x1b[K\n") : std::string(1, c);
    console.out << screen << "\n"
                << (dropped > 0 ? std::to_string(dropped) + " records dropped; " : "")
                << "(Ctrl-C ends the inspection; training continues)\x1b[K\n\x1b[J";
  }
  if (!live && records.dropped > 0)
    console.err << "stokerctl: " << records.dropped
                << " records dropped: they were produced faster than they were read\n";
  console.out.flush();
  return {};
}

Result<uint64_t> open_inspection(DaemonClient& client, const control::OpenInspection& request) {
  STOKER_ASSIGN_OR_RETURN(const std::string reply, client.request(request, kOpenTimeout));
  return parse_json_object<uint64_t>(reply, "reply of stokerd", [](const json::object& fields) {
    return fields.at("inspection").to_number<uint64_t>();
  });
}

}  // namespace

ExitCode follow_inspection(const control::OpenInspection& request, const CommandLine& command,
                           const Console& console, milliseconds interval) {
  auto client = DaemonClient::open(command);
  if (!client.ok()) return console.fail(client.status(), exit_code_for_reply(client.status()));
  if (!command.json && client->is_paused())
    console.err << "stokerctl: training is paused; records follow when it resumes\n";
  const auto inspection = open_inspection(*client, request);
  if (!inspection.ok()) {
    const bool is_usage_error = inspection.status().code() == StatusCode::kInvalidArgument ||
                                inspection.status().code() == StatusCode::kNotFound;
    return console.fail(inspection.status(), is_usage_error
                                                 ? ExitCode::kUsage
                                                 : exit_code_for_reply(inspection.status()));
  }
  const bool live = console.style.live && !command.json && request.steps != 1;
  if (live) console.out << "\x1b[2J\x1b[H" << std::flush;
  uint64_t after = 0, dropped = 0;
  while (true) {
    const auto records = fetch(*client, *inspection, after);
    if (!records.ok()) return console.fail(records.status(), exit_code_for_reply(records.status()));
    after = records->next;
    dropped += records->dropped;
    if (const Status shown = show(*records, command, console, dropped, live); !shown.ok())
      return console.fail(shown, exit_code_for_reply(shown));
    if (!records->end_reason.empty()) {
      if (request.steps == 0 && !command.json)
        console.err << "stokerctl: " << printable(records->end_reason) << "\n";
      return ExitCode::kSuccess;
    }
    if (!console.out.good()) break;
    if (records->rows.empty()) std::this_thread::sleep_for(interval);
  }
  (void)client->request(control::CloseInspection{*inspection}, kReadTimeout);
  return ExitCode::kIoError;  // our output has no reader any more
}

}  // namespace stoker::ctl
