// RunView: what a page, a report or a list shows of a run, read from its directory as JSON. It needs
// no stokerd and changes nothing: the run can be running, have ended, or be a copy.
//
// Threads:  one at a time.
// Blocking: reads files; what has not changed since the last call is not read again.
// Errors:   none, except read_artifact(): a file that is missing or invalid is omitted. So is a link or
//           another special file: each call holds a DirectoryRoot of the run.
// Limits:   the newest 500 evaluations of the present branch, 200 checkpoints, 60 artifacts, 200 log lines; CurveHistory.
//           A call reads at most 256 MiB of results, of manifests and of records; the next call continues.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "shared/base/status.h"
#include "shared/run/eval_result.h"
#include "shared/run/run_layout.h"
#include "shared/view/curve_history.h"
#include "shared/view/log_tail.h"
#include "shared/view/run_summary.h"

namespace stoker::view {

struct ArtifactFile {
  std::string_view content_type;
  std::string bytes;
};

struct FoundRun {
  std::string name;  // path below the directory; of the directory itself: its name
  run::RunLayout layout;
};

inline constexpr size_t kMaxRuns = 1000;

// The run directories in `root`, at most three levels below it, and `root` itself; the newest
// activity first. At most `max_runs` in total; of more, as many of each owner. Links are not followed.
// `maybe_unsearched`: the number of folders that were not searched, or not to their end, because their owner
// has too many.
std::vector<FoundRun> find_runs(const std::string& root, size_t max_runs = kMaxRuns,
                                uint64_t* maybe_unsearched = nullptr);

class RunView {
 public:
  // `name`: how a list of runs calls it; empty: the name of the directory.
  explicit RunView(run::RunLayout layout, std::string name = {});

  RunSummary summary() const;
  // The summary's fields, and evaluations, checkpoints, artifacts, classes, sample errors, settings,
  // environment, log and events.
  std::string overview();
  // For a report: curves() then has all records, however long that takes.
  void read_all_curves();
  // CurveHistory::to_json().
  std::string curves(size_t max_rows = SIZE_MAX);
  // Server-sent events since the last call, or since the first curves() and overview(): `train` (new
  // rows), `log` (new lines, the last ones of many), `run` (the overview has changed), `reset` (the
  // curves have changed). What curves() and overview() returned can be repeated.
  std::string events();

  // Of the run's evaluator: an image or a text. kNotFound: no such file.
  Result<ArtifactFile> read_artifact(const std::string& name) const;

  const std::string& name() const { return name_; }
  const run::RunLayout& layout() const { return layout_; }

 private:
  struct CachedEval {
    std::string stamp;                            // of the file
    std::optional<run::EvalResult> maybe_result;  // nullopt: the file is invalid
    bool has_details = false;  // classes and confusion matrix, which can be large
    void remove_details();
  };
  struct CachedManifest {
    std::string stamp;
    std::string created, sha256;
    boost::json::object environment;
    uint64_t bytes = 0;
  };
  // The following are called below the DirectoryRoot of the run.
  std::vector<const run::EvalResult*> read_evals();
  // The bytes that were read.
  uint64_t refresh(CachedEval& cached, const std::string& name, bool with_details) const;
  // The newest ones; `environment` becomes that of the last one.
  boost::json::array read_checkpoints(boost::json::object& environment);
  // The last lines; then complete lines that were appended, the last ones of many.
  std::string open_tail();
  std::string read_tail();
  std::string change_stamp() const;

  const run::RunLayout layout_;
  const std::string name_;
  CurveHistory history_;
  std::map<std::string, CachedEval> evals_;          // by file name
  uint64_t unread_evals_ = 0;                        // older ones, beyond the limits
  std::map<std::string, CachedManifest> manifests_;  // by path
  std::optional<LogTail> maybe_tail_;
  uint64_t sent_rows_ = 0;
  std::string sent_stamp_;
};

}  // namespace stoker::view
