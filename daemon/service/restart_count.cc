#include "daemon/service/restart_count.h"

#include <boost/json.hpp>

#include "shared/base/json_parser.h"

namespace stoker::service {
namespace {

namespace json = boost::json;
constexpr uint64_t kMaxBytes = 4096;

}  // namespace

RestartCount::Starts RestartCount::read(const std::string& path) {
  const auto text = read_file(path, kMaxBytes);
  if (!text.ok()) return {};
  const auto starts = parse_json_object<Starts>(*text, path, [](const json::object& fields) {
    return Starts{fields.at("step").to_number<uint64_t>(), fields.at("starts").to_number<int>(),
                  fields.at("machine").as_string().c_str()};
  });
  return starts.ok() ? *starts : Starts();
}

Status RestartCount::write(const Starts& starts) {
  const json::object now{
      {"step", starts.step}, {"starts", starts.count}, {"machine", starts.machine}};
  return write_file_atomically(files_, path_, json::serialize(now) + "\n");
}

Result<bool> RestartCount::record_start(uint64_t newest_step) {
  before_ = read(path_);
  const bool resumes =
      before_.count > 0 && before_.step == newest_step && before_.machine == machine_;
  const Starts now{
      .step = newest_step, .count = resumes ? before_.count + 1 : 1, .machine = machine_};
  if (now.count > kMaxStartsWithoutProgress) {
    STOKER_RETURN_IF_ERROR(reset());
    return false;
  }
  STOKER_RETURN_IF_ERROR(write(now));
  return true;
}

Status RestartCount::undo() { return before_.count > 0 ? write(before_) : reset(); }

Status RestartCount::reset() {
  const Status removed = files_.remove_file(path_);
  return removed.code() == StatusCode::kNotFound ? Status() : removed;
}

}  // namespace stoker::service
