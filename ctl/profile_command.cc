#include "ctl/profile_command.h"

#include <filesystem>

#include <boost/json.hpp>

#include "ctl/daemon_client.h"
#include "ctl/number_format.h"
#include "ctl/text_table.h"
#include "shared/base/json_parser.h"
#include "shared/control/inspection_requests.h"

namespace stoker::ctl {
namespace {

namespace json = boost::json;

constexpr std::chrono::milliseconds kStatusTime{10'000};
constexpr std::chrono::milliseconds kProfileTime{3'600'000};
constexpr int kDigits = 4;

std::string ms_cell(const json::object& row, const char* name) {
  const auto* const value = row.if_contains(name);
  return value == nullptr ? "" : format_significant(value->to_number<double>(), kDigits);
}

std::string text_of(const json::object& fields, const char* name) {
  const auto* const value = fields.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

// Throws what Boost.JSON throws where a field is not as it should be.
std::string render_table(const json::object& answer, const TextStyle& style) {
  const json::array& phases = answer.at("phases").as_array();
  const bool has_device =
      !phases.empty() && phases.front().as_object().contains("device_median_ms");
  std::vector<Column> columns = {{"phase", true}, {"median ms"}, {"sum ms"}, {"share"}};
  if (has_device) {
    columns.push_back({"on device\nmedian ms"});
    columns.push_back({"on device\nsum ms"});
  }
  TextTable table(columns);
  const auto add = [&](const std::string& name, const json::object& row, double share) {
    std::vector<std::string> cells = {name, ms_cell(row, "median_ms"), ms_cell(row, "sum_ms"),
                                      percent(share)};
    if (has_device) {
      cells.push_back(ms_cell(row, "device_median_ms"));
      cells.push_back(ms_cell(row, "device_sum_ms"));
    }
    table.add(std::move(cells));
  };
  for (const json::value& phase : phases) {
    const json::object& row = phase.as_object();
    add(printable(std::string_view(row.at("phase").as_string())), row,
        row.at("share").to_number<double>());
  }
  json::object whole = answer;
  whole["sum_ms"] = answer.at("total_ms");
  add("step", whole, 1);
  return table.render(style);
}

void report_paused(DaemonClient& link, const Console& console) {
  const auto answer = link.ask("status", "", kStatusTime);
  if (answer.ok() && answer->find("\"state\":\"paused\"") != std::string::npos)
    console.err << "stokerctl: training is paused; the profile starts when it resumes\n";
}

Status copy_trace(const std::string& from, const std::string& to) {
  std::error_code error;
  std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing, error);
  if (!error) return {};
  return Status(StatusCode::kIoError, to + ": " + error.message() + "; the trace is " + from);
}

}  // namespace

Result<std::string> render_profile(const std::string& answer, const TextStyle& style) {
  boost::system::error_code error;
  const json::value value = parse_json(answer, error);
  try {
    const json::object& fields = value.as_object();
    std::string out = "steps " + format_count(fields.at("first_step").to_number<uint64_t>()) +
                      " to " + format_count(fields.at("last_step").to_number<uint64_t>()) + " on " +
                      printable(text_of(fields, "device")) + "\n" + render_table(fields, style) +
                      "\n  " + printable(text_of(fields, "path")) + "\n";
    if (fields.contains("kernels_path"))
      out += "  " + printable(text_of(fields, "kernels_path")) + "\n";
    return out + "  open in https://ui.perfetto.dev or chrome://tracing\n";
  } catch (const std::exception& wrong) {
    return Status(StatusCode::kCorrupt,
                  std::string("stokerd's profile is not understood: ") + wrong.what());
  }
}

ExitCode record_profile(const CommandLine& command, const Console& console) {
  const control::ProfileRequest request{.steps = command.steps, .kernels = command.kernels};
  if (const Status wrong = request.validate(); !wrong.ok())
    return console.fail(wrong, ExitCode::kUsage);
  auto link = DaemonClient::open(command);
  if (!link.ok()) return console.fail(link.status(), exit_code_for_reply(link.status()));
  if (!command.json) report_paused(*link, console);
  const std::string params = "{\"steps\":" + std::to_string(request.steps) +
                             ",\"kernels\":" + (request.kernels ? "true" : "false") + "}";
  const auto answer = link->ask("profile", params, kProfileTime);
  if (!answer.ok()) return console.fail(answer.status(), exit_code_for_reply(answer.status()));
  const auto text = render_profile(*answer, console.style);
  if (!text.ok()) return console.fail(text.status(), exit_code_for_reply(text.status()));
  console.out << (command.json ? *answer + "\n" : *text);
  if (command.output.empty()) return ExitCode::kSuccess;
  const Status copied =
      copy_trace(text_of(json::parse(*answer).as_object(), "path"), command.output);
  return copied.ok() ? ExitCode::kSuccess : console.fail(copied, exit_code_for(copied));
}

}  // namespace stoker::ctl
