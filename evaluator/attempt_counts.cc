#include "evaluator/attempt_counts.h"

#include <algorithm>

#include <boost/json.hpp>

#include "shared/base/log.h"

namespace stoker::evaluator {
namespace {

namespace json = boost::json;
constexpr uint64_t kMaxBytes = 1 << 20;

}  // namespace

AttemptCounts AttemptCounts::open(FileSystem& files, const std::string& path) {
  AttemptCounts attempts(files, path);
  attempts.read();
  return attempts;
}

void AttemptCounts::read() {
  const auto text = read_file(path_, kMaxBytes);
  if (!text.ok() && text.status().code() == StatusCode::kNotFound) return;
  boost::system::error_code error;
  const json::value root = text.ok() ? json::parse(*text, error) : json::value();
  try {
    for (const json::value& value : root.as_array()) {
      const json::object& entry = value.as_object();
      counts_[{entry.at("step").to_number<uint64_t>(),
               entry.at("manifest_sha256").as_string().c_str()}] =
          entry.at("attempts").to_number<int>();
    }
  } catch (const std::exception& failure) {
    counts_.clear();
    log_warn("attempt counts unreadable", {{"path", path_}, {"error", failure.what()}});
  }
}

void AttemptCounts::write() const {
  json::array root;
  for (const auto& [key, attempts] : counts_)
    root.push_back(
        json::object{{"step", key.first}, {"manifest_sha256", key.second}, {"attempts", attempts}});
  const Status written = write_file_atomically(*files_, path_, json::serialize(root) + "\n");
  if (!written.ok())
    log_warn("attempt counts not written", {{"path", path_}, {"error", written.to_string()}});
}

int AttemptCounts::count(uint64_t step, const std::string& manifest_sha256) const {
  const auto found = counts_.find({step, manifest_sha256});
  return found == counts_.end() ? 0 : found->second;
}

int AttemptCounts::begin(uint64_t step, const std::string& manifest_sha256) {
  const int attempts = ++counts_[{step, manifest_sha256}];
  write();
  return attempts;
}

void AttemptCounts::undo(uint64_t step, const std::string& manifest_sha256) {
  const auto found = counts_.find({step, manifest_sha256});
  if (found == counts_.end()) return;
  if (--found->second <= 0) counts_.erase(found);
  write();
}

void AttemptCounts::remove(uint64_t step, const std::string& manifest_sha256) {
  if (counts_.erase({step, manifest_sha256}) > 0) write();
}

void AttemptCounts::retain_only(const std::vector<uint64_t>& steps) {
  const size_t num_removed = std::erase_if(counts_, [&](const auto& item) {
    return std::ranges::find(steps, item.first.first) == steps.end();
  });
  if (num_removed > 0) write();
}

}  // namespace stoker::evaluator
