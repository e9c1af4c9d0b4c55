#include "daemon/app/run_files.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/file.h"
#include "shared/base/utf8.h"
#include "shared/batch/batch_description.h"
#include "shared/checkpoint/store.h"
#include "shared/run/evaluation_requests.h"
#include "shared/view/log_tail.h"

namespace stoker::app {
namespace {

constexpr std::chrono::seconds kMaxTimeOfShowBatch{30};  // other requests wait

Result<std::string> execute(const run::RunLayout& layout, Clock& clock,
                            const control::Evaluate& request, const std::stop_token&) {
  const checkpoint::CheckpointStore store(layout.checkpoints_dir(), default_file_system());
  STOKER_ASSIGN_OR_RETURN(const auto entries, store.list());
  if (std::ranges::find(entries, request.step, &checkpoint::CheckpointEntry::step) == entries.end())
    return Status(StatusCode::kNotFound, layout.checkpoints_dir() + ": no checkpoint of step " +
                                             std::to_string(request.step));
  STOKER_ASSIGN_OR_RETURN(
      const run::EvaluationRequest made,
      run::request_evaluation(default_file_system(), layout, request.step, clock));
  return boost::json::serialize(boost::json::object{{"step", made.step}, {"request_id", made.id}});
}

Result<std::string> execute(const run::RunLayout& layout, Clock&, const control::ReadLogs& request,
                            const std::stop_token&) {
  const int rank = static_cast<int>(request.rank);
  auto tail = view::LogTail::open(view::log_path(layout, request.evaluator, rank), request.lines);
  if (tail.status().code() == StatusCode::kNotFound)
    return view::no_log(layout, request.evaluator, rank,
                        "stokerd has not written it, or it was removed");
  if (!tail.ok()) return tail.status();
  const bool is_cut = tail->skip_to_last(control::ReadLogs::kMaxBytes);
  STOKER_ASSIGN_OR_RETURN(std::string text, tail->read_more());
  // Complete lines only: the first one can be cut.
  if (is_cut)
    text.erase(0, text.find('\n') == std::string::npos ? text.size() : text.find('\n') + 1);
  return boost::json::serialize(boost::json::object{{"text", valid_utf8(text)}});
}

// Reads what the run directory stores; the workers and the order of the data are not involved.
Result<std::string> execute(const run::RunLayout& layout, Clock& clock,
                            const control::ShowBatch& request, const std::stop_token& stop) {
  const auto end = clock.monotonic() + kMaxTimeOfShowBatch;
  const auto should_stop = [&] { return stop.stop_requested() || clock.monotonic() >= end; };
  auto description = batch::describe_batch(layout, request.step,
                                           {.first_sample = request.first_sample,
                                            .max_samples = control::ShowBatch::kMaxSamples,
                                            .should_stop = should_stop});
  if (description.status().code() == StatusCode::kCancelled && !stop.stop_requested())
    return Status(StatusCode::kTimedOut, "step " + std::to_string(request.step) + ", sample " +
                                             std::to_string(request.first_sample) +
                                             ": not read within " +
                                             std::to_string(kMaxTimeOfShowBatch.count()) + " s");
  if (!description.ok()) return description.status();
  return batch::to_json(*std::move(description), control::ShowBatch::kMaxBytes);
}

}  // namespace

Result<std::string> execute_file_request(const run::RunLayout& layout, Clock& clock,
                                         const control::FileRequest& request,
                                         const std::stop_token& stop) {
  return std::visit([&](const auto& one) { return execute(layout, clock, one, stop); }, request);
}

}  // namespace stoker::app
