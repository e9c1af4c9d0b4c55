#include "daemon/ctl/run_history.h"

#include <algorithm>
#include <filesystem>

#include "shared/base/file.h"
#include "shared/metrics/json_lines.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {
namespace {

constexpr uint64_t kMaxResultBytes = 1 << 20;

Result<std::vector<metrics::TrainRow>> read_train_rows(const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(const auto read, metrics::read_rows(path));
  std::vector<metrics::TrainRow> rows;
  rows.reserve(read.rows.size());
  for (const metrics::Row& row : read.rows) {
    auto one = metrics::train_row_of(row);
    if (!one.ok()) return one.status().with_context(path + ":" + std::to_string(rows.size() + 1));
    rows.push_back(*std::move(one));
  }
  return rows;
}

// The files that eval_result_path() names; the ledger and best.json are others.
bool is_result_name(const std::string& name) {
  return name.starts_with("step-") && name.ends_with(".json");
}

Result<std::vector<run::EvalResult>> read_evals(const std::string& eval_dir) {
  std::vector<run::EvalResult> evals;
  const auto names = list_directory(eval_dir);
  if (!names.ok() && names.status().code() == Code::kNotFound) return evals;
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (!is_result_name(name)) continue;
    const std::string path = join_path(eval_dir, name);
    STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxResultBytes));
    STOKER_ASSIGN_OR_RETURN(run::EvalResult result, run::parse_eval_result(text, path));
    evals.push_back(std::move(result));
  }
  std::sort(evals.begin(), evals.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
  return evals;
}

}  // namespace

const run::EvalResult* RunHistory::find_eval(uint64_t step) const {
  for (const run::EvalResult& eval : evals)
    if (eval.step == step) return &eval;
  return nullptr;
}

Result<RunHistory> read_history(const std::string& run_dir) {
  const run::RunLayout layout(run_dir);
  std::error_code ignored;
  if (!std::filesystem::is_directory(run_dir, ignored)) {
    return Status(Code::kNotFound, run_dir + ": no such directory; name a run with --run-dir");
  }
  RunHistory history;
  history.run_dir = run_dir;
  history.state = run::look(layout);
  auto rows = read_train_rows(layout.train_rows());
  if (!rows.ok() && rows.status().code() != Code::kNotFound) return rows.status();
  if (!rows.ok() || rows->empty()) {
    return Status(Code::kNotFound,
                  layout.train_rows() + ": no step has been reported yet; try again after " +
                      "metrics.every_steps steps, or look into " + layout.trainer_log());
  }
  history.train = *std::move(rows);
  STOKER_ASSIGN_OR_RETURN(history.evals, read_evals(layout.eval()));
  return history;
}

}  // namespace stoker::ctl
