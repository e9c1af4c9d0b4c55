// stoker-config-reference: prints one of the documents generated from the settings, the events of the
// log, the metrics and the resources.
#include <cstdio>
#include <sstream>
#include <string>
#include <string_view>

#include "shared/base/log_events.h"
#include "shared/base/resource_use.h"
#include "shared/config/key_synonyms.h"
#include "shared/config/reference.h"
#include "shared/config/run_config.h"
#include "shared/config/topology_limits.h"
#include "shared/eval_metrics/metric_table.h"

namespace stoker {
namespace {

std::string_view title_of(LogTopic topic) {
  switch (topic) {
    case LogTopic::kRun:
      return "Start, end and control of a run";
    case LogTopic::kData:
      return "Data and workers";
    case LogTopic::kTraining:
      return "Training";
    case LogTopic::kCheckpoints:
      return "Checkpoints and resume";
    case LogTopic::kRecords:
      return "Metric records and TensorBoard";
    case LogTopic::kEvaluation:
      return "Evaluation";
  }
  return {};
}

std::string levels_of(const LogEventInfo& event) {
  std::string levels;
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn, LogLevel::kError})
    if ((event.levels & level_bit(level)) != 0)
      levels += (levels.empty() ? "" : ", ") + std::string(config::to_string(level));
  return levels;
}

// "`a`, `b`" for "a b".
std::string quoted_words(std::string_view words) {
  std::string text;
  std::istringstream names{std::string(words)};
  for (std::string name; names >> name;) text += (text.empty() ? "`" : ", `") + name + "`";
  return text;
}

// One table per topic, in the order of the events.
std::string events_markdown() {
  std::string text;
  const LogEventInfo* maybe_previous = nullptr;
  for (const LogEventInfo& event : log_events::kAll) {
    if (maybe_previous == nullptr || maybe_previous->topic != event.topic) {
      text += std::string(text.empty() ? "" : "\n") + "## " + std::string(title_of(event.topic)) +
              "\n\n| event | level | fields | meaning |\n|---|---|---|---|\n";
    }
    text += "| `" + std::string(event.name) + "` | " + levels_of(event) + " | " +
            quoted_words(event.fields) + " | " + std::string(event.meaning) + " |\n";
    maybe_previous = &event;
  }
  return text;
}

// The metrics of all tasks.
std::string metrics_markdown() {
  std::string text =
      "| metric | better | unit | aggregation | tasks | definition |\n|---|---|---|---|---|---|\n";
  for (const eval_metrics::BuiltinMetric& metric : eval_metrics::builtin_metrics()) {
    const bool is_larger = metric.direction == eval_metrics::Direction::kMaximize;
    text += "| `" + std::string(metric.name) + "` | " + (is_larger ? "larger" : "smaller") + " | " +
            std::string(metric.unit) + " | " + std::string(to_string(metric.aggregation)) + " | " +
            quoted_words(metric.tasks) + " | " + std::string(metric.help) + " |\n";
  }
  return text;
}

std::string resources_markdown() {
  std::string text = "| resource | unit | meaning |\n|---|---|---|\n";
  for (const ResourceField& field : kResourceFields)
    text += "| `" + std::string(field.name) + "` | " + std::string(field.unit) + " | " +
            std::string(field.help) + " |\n";
  return text;
}

}  // namespace
}  // namespace stoker

int main(int argc, char** argv) {
  const std::string_view what = argc == 2 ? argv[1] : "";
  std::string text;
  if (what == "manual") text = stoker::config::manual_yaml();
  if (what == "markdown") text = stoker::config::reference_markdown();
  if (what == "synonyms") text = stoker::config::key_synonyms_markdown();
  if (what == "schema") text = stoker::config::json_schema();
  if (what == "man") text = stoker::config::man_page();
  if (what == "events") text = stoker::events_markdown();
  if (what == "metrics") text = stoker::metrics_markdown();
  if (what == "resources") text = stoker::resources_markdown();
  if (what == "limits") text = stoker::config::topology_limits_markdown();
  if (text.empty()) {
    std::fputs(
        "Usage: stoker-config-reference manual|markdown|synonyms|schema|man|events|metrics|"
        "resources|limits\n",
        stderr);
    return 64;
  }
  return std::fputs(text.c_str(), stdout) < 0 ? 74 : 0;
}
