#include "daemon/app/profile_writer.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/file.h"

namespace stoker::app {
namespace {

// The run directory can be relative to the working directory of stokerd; the client can have
// another one.
std::string absolute(const std::string& path) {
  std::error_code error;
  const auto found = std::filesystem::absolute(path, error);
  return error ? path : found.lexically_normal().string();
}

std::string path_field(const std::string& name, const std::string& path) {
  return ",\"" + name + "\":" + boost::json::serialize(boost::json::value(absolute(path)));
}

// LibTorch writes the file itself; it is renamed when it is complete.
Status save_kernels(const train::RecordedProfile& recorded, const std::string& path) {
  const std::string unfinished = path + ".tmp";
  STOKER_RETURN_IF_ERROR(recorded.save_kernels(unfinished));
  return default_file_system().rename(unfinished, path);
}

Result<std::string> write(const run::RunLayout& layout, const train::RecordedProfile& recorded) {
  char name[40];
  std::snprintf(name, sizeof name, "step-%09llu",
                static_cast<unsigned long long>(recorded.profile.steps.back().step));
  STOKER_RETURN_IF_ERROR(make_directories(default_file_system(), layout.profiles_dir()));
  const std::string path = join_path(layout.profiles_dir(), name);
  STOKER_RETURN_IF_ERROR(write_file_atomically(default_file_system(), path + ".json",
                                               train::to_chrome_trace(recorded.profile)));
  std::string answer =
      "{" + train::summary_fields(recorded.profile) + path_field("path", path + ".json");
  if (recorded.save_kernels) {
    STOKER_RETURN_IF_ERROR(save_kernels(recorded, path + ".kernels.json"));
    answer += path_field("kernels_path", path + ".kernels.json");
  }
  return answer + "}";
}

}  // namespace

void save_profile(metrics::MetricsWriter& writer, const run::RunLayout& layout,
                  train::RecordedProfile recorded, train::Done done) {
  // Shared, because a posted function must be copyable.
  const auto profile = std::make_shared<const train::RecordedProfile>(std::move(recorded));
  const bool posted =
      writer.post([&layout, profile, done] { train::answer(done, write(layout, *profile)); });
  if (!posted) {
    train::answer(done, Status(StatusCode::kBusy,
                               "the metrics queue is full because the disk is too "
                               "slow; the profile is lost"));
  }
}

}  // namespace stoker::app
