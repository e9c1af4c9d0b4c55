#include "daemon/app/profile_writer.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/file.h"

namespace stoker::app {
namespace {

// The run directory may have been given relative to where stokerd stands; who reads the answer may
// stand elsewhere.
std::string absolute(const std::string& path) {
  std::error_code error;
  const auto found = std::filesystem::absolute(path, error);
  return error ? path : found.lexically_normal().string();
}

std::string path_field(const std::string& name, const std::string& path) {
  return ",\"" + name + "\":" + boost::json::serialize(boost::json::value(absolute(path)));
}

// LibTorch writes the file itself, so the name is the right one only when it is whole.
Status save_kernels(const train::TakenProfile& taken, const std::string& path) {
  const std::string unfinished = path + ".tmp";
  STOKER_RETURN_IF_ERROR(taken.save_kernels(unfinished));
  return default_file_system().rename(unfinished, path);
}

Result<std::string> write(const run::RunLayout& layout, const train::TakenProfile& taken) {
  char name[40];
  std::snprintf(name, sizeof name, "step-%09llu",
                static_cast<unsigned long long>(taken.profile.steps.back().step));
  STOKER_RETURN_IF_ERROR(make_directories(default_file_system(), layout.profiles_dir()));
  const std::string path = join_path(layout.profiles_dir(), name);
  STOKER_RETURN_IF_ERROR(write_file_atomically(default_file_system(), path + ".json",
                                               train::to_chrome_trace(taken.profile)));
  std::string answer =
      "{" + train::summary_fields(taken.profile) + path_field("path", path + ".json");
  if (taken.save_kernels) {
    STOKER_RETURN_IF_ERROR(save_kernels(taken, path + ".kernels.json"));
    answer += path_field("kernels_path", path + ".kernels.json");
  }
  return answer + "}";
}

}  // namespace

void save_profile(metrics::MetricsWriter& writer, const run::RunLayout& layout,
                  train::TakenProfile taken, train::Done done) {
  // Shared, because what is posted must be copyable.
  const auto profile = std::make_shared<const train::TakenProfile>(std::move(taken));
  const bool posted =
      writer.post([&layout, profile, done] { train::answer(done, write(layout, *profile)); });
  if (!posted) {
    train::answer(done, Status(StatusCode::kBusy,
                               "the disk does not keep up with the metrics; the "
                               "profile is lost"));
  }
}

}  // namespace stoker::app
