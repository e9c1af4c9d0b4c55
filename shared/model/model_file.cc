#include "shared/model/model_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/checkpoint/hashed_files.h"
#include "shared/graph/graph_file.h"

namespace stoker::model {
namespace {

Result<struct stat> inspect(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return Status::from_errno(errno, path);
  return found;
}

}  // namespace

Result<std::string> file_digest(const config::ModelConfig& config) {
  if (config.user_file_path() == nullptr) return std::string();
  const bool is_folder = std::holds_alternative<config::ExportedConfig>(config.arch);
  const std::string path =
      *config.user_file_path() + (is_folder ? std::string("/") + graph::kGraphName : "");
  const auto digest = [&]() -> Result<std::string> {
    STOKER_ASSIGN_OR_RETURN(const UniqueFd fd,
                            default_file_system().open(path, O_RDONLY | O_NONBLOCK));
    STOKER_ASSIGN_OR_RETURN(const struct stat file, inspect(path));
    if (!S_ISREG(file.st_mode))
      return Status(StatusCode::kInvalidArgument, path + ": is not a file");
    return checkpoint::sha256_of_file(fd.get(), static_cast<uint64_t>(file.st_size), path);
  }();
  if (!digest.ok()) {
    const Status& status = digest.status();
    const bool is_missing = is_folder && status.code() == StatusCode::kNotFound;
    return Status(status.code(), status.message() + (is_missing ? config::kExportHint : ""))
        .with_context("model.path");
  }
  log_info("model code loaded", {{"path", path}, {"sha256", *digest}});
  return digest;
}

Status check_same_file(const std::string& saved, const std::string& now, const std::string& path,
                       const std::string& key) {
  if (saved.empty() || saved == now) return {};
  constexpr size_t kShown = 12;
  return Status(StatusCode::kInvalidArgument,
                "was trained with another " + key + ", SHA-256 " + saved.substr(0, kShown) + "; " +
                    path + " had " + (now.empty() ? "none" : now.substr(0, kShown)) +
                    " at startup; restore that file or restart this program");
}

}  // namespace stoker::model
