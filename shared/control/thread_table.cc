#include "shared/control/thread_table.h"

#include <algorithm>
#include <optional>
#include <stdexcept>

#include <boost/json.hpp>

#include "shared/base/clock.h"
#include "shared/base/json_parser.h"
#include "shared/base/utf8.h"

namespace stoker::control {
namespace {

namespace json = boost::json;

json::string json_text(std::string_view text) {
  const std::string valid = valid_utf8(text);
  return json::string(valid.data(), valid.size());
}

std::string text_field(const json::object& row, const char* name) {
  return std::string(std::string_view(row.at(name).as_string()));
}

// Throws if the state is unknown.
ThreadState parse_state(std::string_view name) {
  for (int i = 0; i < kThreadStates; ++i)
    if (to_string(static_cast<ThreadState>(i)) == name) return static_cast<ThreadState>(i);
  throw std::invalid_argument("unknown state");
}

ThreadRow parse_row(const json::object& row) {
  return {.name = text_field(row, "name"),
          .tid = row.at("tid").to_number<int>(),
          .is_queue_thread = row.at("is_queue_thread").as_bool(),
          .queue = text_field(row, "queue"),
          .operation = text_field(row, "operation"),
          .state = parse_state(text_field(row, "state")),
          .since = text_field(row, "since"),
          .seconds = row.at("duration_seconds").to_number<double>()};
}

}  // namespace

ThreadTable make_thread_table(const ThreadList& list) {
  const std::chrono::nanoseconds now = system_clock().monotonic();
  const auto wall = system_clock().wall();
  ThreadTable table{.library_threads = list.library_threads};
  for (const ThreadInfo& thread : list.threads) {
    const auto duration = std::max(now - thread.since, std::chrono::nanoseconds(0));
    table.rows.push_back(
        {.name = thread.name,
         .tid = thread.tid,
         .is_queue_thread = thread.is_queue_thread,
         .queue = thread.queue,
         .operation = thread.operation,
         .state = thread.state,
         .since = to_iso8601(
             wall - std::chrono::duration_cast<std::chrono::system_clock::duration>(duration)),
         .seconds = std::chrono::duration<double>(duration).count()});
  }
  return table;
}

std::string to_json(const ThreadTable& table) {
  json::array rows;
  for (const ThreadRow& row : table.rows) {
    rows.push_back(json::object{{"name", json_text(row.name)},
                                {"tid", row.tid},
                                {"is_queue_thread", row.is_queue_thread},
                                {"queue", json_text(row.queue)},
                                {"operation", json_text(row.operation)},
                                {"state", json_text(to_string(row.state))},
                                {"since", json_text(row.since)},
                                {"duration_seconds", row.seconds}});
  }
  return json::serialize(
      json::object{{"threads", std::move(rows)}, {"library_threads", table.library_threads}});
}

Result<ThreadTable> parse_thread_table(std::string_view text) {
  return parse_json_object<ThreadTable>(
      text, "the list of threads", [](const json::object& fields) -> ThreadTable {
        ThreadTable table{.library_threads = fields.at("library_threads").to_number<uint64_t>()};
        for (const json::value& row : fields.at("threads").as_array())
          table.rows.push_back(parse_row(row.as_object()));
        return table;
      });
}

}  // namespace stoker::control
