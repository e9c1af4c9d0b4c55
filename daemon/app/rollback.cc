#include "daemon/app/rollback.h"

#include <boost/json.hpp>

#include "daemon/app/resume_checkpoint.h"
#include "shared/base/json_parser.h"

namespace stoker::app {

namespace json = boost::json;

Status roll_back(FileSystem& files, const checkpoint::CheckpointStore& store,
                 const run::RunLayout& layout, std::optional<uint64_t> resumed_from,
                 uint64_t times) {
  STOKER_ASSIGN_OR_RETURN(const auto saved, store.list());
  if (saved.empty()) {
    return Status(StatusCode::kCorrupt,
                  "loss or state is not finite, and there is no checkpoint yet to roll back to; "
                  "try a smaller optimizer.lr or train.max_grad_norm");
  }
  const uint64_t newest = saved.back().step;
  const bool made_no_progress = times > 0 && resumed_from == newest && saved.size() > 1;
  const uint64_t to_step = made_no_progress ? saved[saved.size() - 2].step : newest;
  STOKER_RETURN_IF_ERROR(archive_later_checkpoints(files, store, layout, to_step));
  return write_file_atomically(files, layout.rollback_file(),
                               to_json({.to_step = to_step, .times = times + 1}) + "\n");
}

std::string to_json(const Rollback& rollback) {
  return json::serialize(json::object{{"step", rollback.to_step}, {"attempts", rollback.times}});
}

std::optional<Rollback> parse_rollback(const std::string& text) {
  const auto read = [](const json::object& root) {
    return Rollback{.to_step = root.at("step").to_number<uint64_t>(),
                    .times = root.at("attempts").to_number<uint64_t>()};
  };
  const auto parsed = parse_json_object<Rollback>(text, "", read);
  return parsed.ok() ? std::optional(*parsed) : std::nullopt;
}

Result<std::optional<Rollback>> read_rollback(const std::string& path) {
  constexpr uint64_t kMaxBytes = 1 << 16;
  const auto text = read_file(path, kMaxBytes);
  if (text.status().code() == StatusCode::kNotFound) return std::optional<Rollback>();
  if (!text.ok()) return text.status();
  const std::optional<Rollback> rollback = parse_rollback(*text);
  if (rollback) return rollback;
  return Status(StatusCode::kCorrupt,
                path + R"(: is not {"step": N, "attempts": N}; remove it to continue )"
                       "with the learning rate of the last checkpoint");
}

}  // namespace stoker::app
