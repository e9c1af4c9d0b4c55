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

std::vector<double> equal_parts(const std::vector<HistogramPoint>& points, double min, double max,
                                size_t width) {
  std::vector<double> parts(width, 0.0);
  const double part = (max - min) / static_cast<double>(width);
  for (size_t i = 1; i < points.size(); ++i) {
    const double low = std::max(points[i - 1].limit, min), high = std::min(points[i].limit, max);
    if (points[i].count <= 0) continue;
    // a bucket of zero width within [min, max], such as that of zero at either end
    if (high <= low) {
      const double at = std::clamp((low - min) / part, 0.0, static_cast<double>(width - 1));
      parts[static_cast<size_t>(at)] += points[i].count;
      continue;
    }
    for (size_t at = 0; at < width; ++at) {
      const double begin = min + static_cast<double>(at) * part;
      const double shared = std::min(high, begin + part) - std::max(low, begin);
      if (shared > 0) parts[at] += points[i].count * shared / (high - low);
    }
  }
  return parts;
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
  const std::vector<double> parts = equal_parts(points, min, max, width);
  const double highest = *std::max_element(parts.begin(), parts.end());
  std::string out;
  for (const double part : parts) {
    // Round up, so that every nonzero count is visible.
    const double height = highest > 0 ? std::ceil(part / highest * 8 - 1e-9) : 0;
    out += marks[static_cast<size_t>(std::clamp(height, 0.0, 8.0))];
  }
  return out;
}

namespace json = boost::json;
using std::chrono::milliseconds;

constexpr milliseconds kOpenTime{
    600'000};  // it is opened between two steps, and a step can take minutes
constexpr milliseconds kReadTime{10'000};
constexpr size_t kSparkWidth = 16;
constexpr int kInspectionDigits = 3;

double number_of(const json::object& tensor, const char* name) {
  return tensor.at(name).to_number<double>();
}

std::string word_of(const json::object& tensor, const char* name) {
  return printable(std::string_view(tensor.at(name).as_string()));
}

std::vector<HistogramPoint> histogram_of(const json::object& tensor) {
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
Result<std::string> with_fields(const std::string& row, Render render) {
  boost::system::error_code error;
  const json::value value = parse_json(row, error);
  try {
    return render(value.as_object());
  } catch (const std::exception& wrong) {
    return Status(StatusCode::kCorrupt,
                  std::string("invalid inspection record from stokerd: ") + wrong.what());
  }
}

std::vector<std::string> cells_of(const json::object& tensor, const TextStyle& style,
                                  bool histogram) {
  const auto number = [&tensor](const char* name) {
    return format_number(number_of(tensor, name), kInspectionDigits);
  };
  std::vector<std::string> cells = {word_of(tensor, "name"),
                                    word_of(tensor, "kind"),
                                    number("mean"),
                                    number("std"),
                                    number("min"),
                                    number("max"),
                                    number("norm"),
                                    format_percent(number_of(tensor, "zero_fraction")),
                                    std::to_string(tensor.at("nan_count").to_number<uint64_t>()),
                                    std::to_string(tensor.at("inf_count").to_number<uint64_t>())};
  if (histogram) {
    cells.push_back(sparkline(histogram_of(tensor), number_of(tensor, "min"),
                              number_of(tensor, "max"), kSparkWidth, style.unicode));
  }
  return cells;
}

std::string table_of(const json::object& row, const TextStyle& style) {
  const json::array& tensors = row.at("tensors").as_array();
  const bool histogram = !tensors.empty() && tensors.front().as_object().contains("histogram");
  std::vector<Column> columns = {{"name", true}, {"of", true}, {"mean"},    {"std"}, {"min"},
                                 {"max"},        {"norm"},     {"zeros %"}, {"NaN"}, {"inf"}};
  if (histogram) columns.push_back({"from min to max", true});
  TextTable table(columns);
  for (const json::value& tensor : tensors)
    table.add(cells_of(tensor.as_object(), style, histogram));
  return "step " + format_count(row.at("step").to_number<uint64_t>()) + "\n" + table.render(style);
}

std::string lines_of(const json::object& row) {
  const std::string step = "step=" + std::to_string(row.at("step").to_number<uint64_t>());
  std::string out;
  for (const json::value& value : row.at("tensors").as_array()) {
    const json::object& tensor = value.as_object();
    out += step + " " + word_of(tensor, "kind") + "=" + word_of(tensor, "name");
    for (const char* name :
         {"mean", "std", "min", "max", "norm", "zero_fraction", "nan_count", "inf_count"}) {
      out += " " + (std::string(name) + "=") + format_shortest(number_of(tensor, name));
    }
    const std::string bars = sparkline(histogram_of(tensor), number_of(tensor, "min"),
                                       number_of(tensor, "max"), kSparkWidth, false);
    out += bars.empty() ? "\n" : " [" + bars + "]\n";
  }
  return out;
}

// Formats a record of an inspection as a table. kCorrupt: the record is malformed.
Result<std::string> render_inspection_table(const std::string& row, const TextStyle& style) {
  return with_fields(row, [&](const json::object& fields) { return table_of(fields, style); });
}

Result<std::string> render_inspection_lines(const std::string& row) {
  return with_fields(row, [](const json::object& fields) { return lines_of(fields); });
}

// Result of one read of the inspection.
struct Fetched {
  std::vector<std::string> rows;
  uint64_t next = 0;
  uint64_t lost = 0;
  std::string ended;
};

Result<Fetched> fetch(DaemonClient& link, uint64_t inspection, uint64_t after) {
  const control::ReadInspection read{.inspection = inspection, .after = after};
  STOKER_ASSIGN_OR_RETURN(const std::string answer, link.ask(read, kReadTime));
  boost::system::error_code error;
  const json::value value = parse_json(answer, error);
  try {
    Fetched fetched;
    for (const json::value& row : value.at("records").as_array())
      fetched.rows.push_back(json::serialize(row));
    fetched.next = value.at("next").to_number<uint64_t>();
    fetched.lost = value.at("dropped").to_number<uint64_t>();
    fetched.ended = std::string(value.at("end_reason").as_string());
    return fetched;
  } catch (const std::exception& wrong) {
    return Status(StatusCode::kCorrupt,
                  std::string("stokerd's answer is not understood: ") + wrong.what());
  }
}

// On a terminal, draws the newest record over the previous one; otherwise prints every record.
Status show(const Fetched& fetched, const CommandLine& command, const Console& console,
            uint64_t lost) {
  const bool live = console.style.live && !command.json;
  for (size_t i = live && !fetched.rows.empty() ? fetched.rows.size() - 1 : 0;
       i < fetched.rows.size(); ++i) {
    if (command.json) {
      console.out << fetched.rows[i] << "\n";
      continue;
    }
    STOKER_ASSIGN_OR_RETURN(const std::string text,
                            live ? render_inspection_table(fetched.rows[i], console.style)
                                 : render_inspection_lines(fetched.rows[i]));
    if (!live) {
      console.out << text;
      continue;
    }
    std::string screen = "\x1b[H";
    for (const char c : text) screen += c == '\n' ? std::string("\x1b[K\n") : std::string(1, c);
    console.out << screen << "\n"
                << (lost > 0 ? std::to_string(lost) + " records dropped; " : "")
                << "(Ctrl-C ends the inspection only)\x1b[K\n\x1b[J";
  }
  if (!live && fetched.lost > 0)
    console.err << "stokerctl: " << fetched.lost
                << " records dropped: they came faster than they were read\n";
  console.out.flush();
  return {};
}

Result<uint64_t> open_inspection(DaemonClient& link, const control::OpenInspection& request) {
  STOKER_ASSIGN_OR_RETURN(const std::string answer, link.ask(request, kOpenTime));
  boost::system::error_code error;
  const json::value value = parse_json(answer, error);
  const auto* const inspection =
      value.is_object() ? value.get_object().if_contains("inspection") : nullptr;
  if (inspection == nullptr || !inspection->is_number())
    return Status(StatusCode::kCorrupt, "stokerd's answer has no inspection");
  return inspection->to_number<uint64_t>();
}

}  // namespace

ExitCode follow_inspection(const control::OpenInspection& request, const CommandLine& command,
                           const Console& console, milliseconds interval) {
  auto link = DaemonClient::open(command);
  if (!link.ok()) return console.fail(link.status(), exit_code_for_reply(link.status()));
  if (!command.json && link->is_paused())
    console.err << "stokerctl: training is paused; records follow when it resumes\n";
  const auto inspection = open_inspection(*link, request);
  if (!inspection.ok()) {
    const bool wrong = inspection.status().code() == StatusCode::kInvalidArgument ||
                       inspection.status().code() == StatusCode::kNotFound;
    return console.fail(inspection.status(),
                        wrong ? ExitCode::kUsage : exit_code_for_reply(inspection.status()));
  }
  if (console.style.live && !command.json) console.out << "\x1b[2J\x1b[H" << std::flush;
  uint64_t after = 0, lost = 0;
  while (true) {
    const auto fetched = fetch(*link, *inspection, after);
    if (!fetched.ok()) return console.fail(fetched.status(), exit_code_for_reply(fetched.status()));
    after = fetched->next;
    lost += fetched->lost;
    if (const Status shown = show(*fetched, command, console, lost); !shown.ok())
      return console.fail(shown, exit_code_for_reply(shown));
    if (!fetched->ended.empty()) {
      if (request.steps == 0 && !command.json)
        console.err << "stokerctl: " << fetched->ended << "\n";
      return ExitCode::kSuccess;
    }
    if (!console.out.good()) break;
    if (fetched->rows.empty()) std::this_thread::sleep_for(interval);
  }
  (void)link->ask(control::CloseInspection{*inspection}, kReadTime);
  return ExitCode::kIoError;  // our output has no reader any more
}

}  // namespace stoker::ctl
