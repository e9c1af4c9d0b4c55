#include "evaluator/standalone_evaluation.h"

#include <filesystem>
#include <iostream>
#include <utility>

#include "evaluator/checkpoint_evaluator.h"
#include "evaluator/load_run_config.h"
#include "evaluator/memory_limit.h"
#include "evaluator/priority.h"
#include "shared/base/log.h"
#include "shared/run/run_layout.h"

namespace stoker::evaluator {
namespace {

namespace fs = std::filesystem;

// Holds the dataset indexes if there is no run directory for them.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::error_code error;
    path_ = (fs::temp_directory_path(error) / "stoker-eval-XXXXXX").string();
    if (error || ::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

bool is_directory(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

Result<std::string> config_path(const CommandLine& command) {
  if (!command.config.empty()) return command.config;
  if (!command.run_dir.empty()) return run::RunLayout(command.run_dir).config_file();
  const std::string& path_argument = command.checkpoints.front();
  if (is_directory(path_argument)) {
    std::error_code error;
    const fs::path run_dir = fs::weakly_canonical(path_argument, error).parent_path().parent_path();
    const std::string path = run::RunLayout(run_dir.string()).config_file();
    if (!error && fs::exists(path, error)) return path;
  }
  return Status(StatusCode::kInvalidArgument,
                path_argument +
                    ": is not in a run directory with a config.yaml; set --config FILE or "
                    "--run-dir DIR");
}

// The indexes that stokerd built in the run of this configuration. A file given by --config belongs
// to no run unless --run-dir is also given.
std::string training_indexes(const CommandLine& command, const std::string& config) {
  if (!command.run_dir.empty()) return run::RunLayout(command.run_dir).index_dir();
  if (!command.config.empty()) return "";
  return run::RunLayout(fs::path(config).parent_path().string()).index_dir();
}

Result<run::EvalResult> evaluate_path(CheckpointEvaluator& evaluator, const std::string& path,
                                      std::stop_token stop) {
  if (is_directory(path)) {
    STOKER_ASSIGN_OR_RETURN(const auto checkpoint,
                            checkpoint::CheckpointStore::open_verified(path));
    return evaluator.measure(checkpoint, std::move(stop));
  }
  std::error_code error;
  if (!fs::exists(path, error)) return Status(StatusCode::kNotFound, path + ": does not exist");
  if (!path.ends_with(".safetensors"))
    return Status(StatusCode::kInvalidArgument,
                  path + ": neither a checkpoint directory nor a .safetensors file");
  return evaluator.measure_file(path, std::move(stop));
}

}  // namespace

Status evaluate_standalone(const CommandLine& command, Clock& clock, std::stop_token stop) {
  STOKER_ASSIGN_OR_RETURN(const std::string path, config_path(command));
  STOKER_ASSIGN_OR_RETURN(const config::Config config,
                          load_run_config(path, command.overrides, command.trust));
  STOKER_RETURN_IF_ERROR(init_log({.level = config.log.level, .file = ""}));
  STOKER_RETURN_IF_ERROR(limit_memory(config.eval.memory_limit_mib));
  lower_priority(config.eval.priority);
  const ScratchDirectory scratch;
  const std::string run_index_dir = run::RunLayout(command.run_dir).eval_index_dir();
  const bool has_run_index = !command.run_dir.empty() && is_directory(run_index_dir);
  STOKER_ASSIGN_OR_RETURN(
      const auto evaluator,
      CheckpointEvaluator::create(config,
                                  {.own = has_run_index ? run_index_dir : scratch.path(),
                                   .train = training_indexes(command, path)},
                                  clock, {}, stop));
  for (const std::string& path_argument : command.checkpoints) {
    STOKER_ASSIGN_OR_RETURN(const run::EvalResult result,
                            evaluate_path(*evaluator, path_argument, stop));
    std::cout << run::to_json(result) << std::flush;
  }
  return {};
}

}  // namespace stoker::evaluator
