#include "daemon/service/restart_count.h"

#include <boost/json.hpp>

namespace stoker::service {
namespace {

namespace json = boost::json;
constexpr uint64_t kMaxBytes = 4096;

struct Starts {
  uint64_t step = 0;
  int starts = 0;
};

// No starts where the file is missing or cannot be understood: it only counts.
Starts read_starts(const std::string& path) {
  const auto text = read_file(path, kMaxBytes);
  if (!text.ok()) return {};
  boost::system::error_code error;
  const json::value value = json::parse(*text, error);
  if (error) return {};
  try {
    return {value.at("step").to_number<uint64_t>(), value.at("starts").to_number<int>()};
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace

Result<bool> RestartCount::note_start(uint64_t newest_step) {
  const Starts before = read_starts(path_);
  const int starts = before.starts > 0 && before.step == newest_step ? before.starts + 1 : 1;
  if (starts > kMaxInVain) {
    STOKER_RETURN_IF_ERROR(forget());
    return false;
  }
  const json::object now{{"step", newest_step}, {"starts", starts}};
  STOKER_RETURN_IF_ERROR(write_file_atomically(files_, path_, json::serialize(now) + "\n"));
  return true;
}

Status RestartCount::forget() {
  const Status removed = files_.remove_file(path_);
  return removed.code() == Code::kNotFound ? Status() : removed;
}

}  // namespace stoker::service
