#include "shared/run/run_state.h"

#include <filesystem>

#include <boost/json.hpp>

#include "shared/run/json_object.h"

namespace stoker::run {
namespace {

namespace json = boost::json;
constexpr uint64_t kMaxBytes = 1 << 20;

}  // namespace

std::string to_json(const RunEnd& end) {
  return json::serialize(json::object{{"state", end.state},
                                      {"step", end.step},
                                      {"reason", end.reason},
                                      {"exit_code", end.exit_code}}) +
         "\n";
}

Result<RunEnd> parse_run_end(std::string_view text, const std::string& path) {
  return parse_object<RunEnd>(text, path, [](const json::object& root) {
    RunEnd end;
    end.state = root.at("state").as_string().c_str();
    end.step = root.at("step").to_number<uint64_t>();
    end.reason = root.at("reason").as_string().c_str();
    end.exit_code = root.at("exit_code").to_number<int>();
    return end;
  });
}

std::string to_json(const RunPause& pause) {
  return json::serialize(json::object{{"step", pause.step}, {"since", pause.since}}) + "\n";
}

Result<RunPause> parse_run_pause(std::string_view text, const std::string& path) {
  return parse_object<RunPause>(text, path, [](const json::object& root) {
    return RunPause{.step = root.at("step").to_number<uint64_t>(),
                    .since = root.at("since").as_string().c_str()};
  });
}

Status write_run_end(FileSystem& files, const RunLayout& layout, const RunEnd& end) {
  return write_file_atomically(files, layout.end_file(), to_json(end));
}

RunState look(const RunLayout& layout) {
  RunState state;
  const auto locked = is_locked(layout.lock_file());
  if (locked.ok() && *locked) {
    state.kind = RunState::Kind::kRunning;
    if (const auto text = read_file(layout.paused_file(), kMaxBytes); text.ok()) {
      auto pause = parse_run_pause(*text, layout.paused_file());
      if (pause.ok()) state.pause = *std::move(pause);
    }
    return state;
  }
  if (const auto text = read_file(layout.end_file(), kMaxBytes); text.ok()) {
    auto end = parse_run_end(*text, layout.end_file());
    if (end.ok()) {
      state.kind = RunState::Kind::kEnded;
      state.end = *std::move(end);
      return state;
    }
  }
  if (!locked.ok()) state.no_locks = locked.status().message();
  std::error_code ignored;
  if (std::filesystem::exists(layout.lock_file(), ignored)) state.kind = RunState::Kind::kDead;
  return state;
}

}  // namespace stoker::run
