#include "daemon/group/recorded_group.h"

#include <utility>

#include <ATen/core/Tensor.h>

#include "shared/base/log.h"

namespace stoker::group {
namespace {

CollectiveSizes sizes_of(const std::vector<at::Tensor>& tensors) {
  CollectiveSizes sizes;
  for (const at::Tensor& tensor : tensors) sizes.add(tensor.numel(), tensor.nbytes());
  return sizes;
}

}  // namespace

Status RecordedGroup::end(uint64_t sequence, const Status& status) {
  if (status.ok()) recorder_.complete(sequence);
  if (status.code() != StatusCode::kPeerLost || std::exchange(is_lost_, true)) return status;
  return Status(status.code(), status.message() + write_flight_record(recorder_, status.message()),
                status.cause());
}

Status RecordedGroup::add_devices(const OpenCollectives& open) {
  const uint64_t sequence = recorder_.start("add_devices");
  return end(sequence, group_->add_devices(open));
}

Status RecordedGroup::wait_for_devices(const std::stop_token& stop) {
  return end_wait(group_->wait_for_devices(stop));
}

Status RecordedGroup::check_lost() { return end_wait(group_->check_lost()); }

Status RecordedGroup::end_devices(const std::stop_token& stop) {
  return end_wait(group_->end_devices(stop));
}

Status RecordedGroup::broadcast(const at::Tensor& tensor, int root, const std::stop_token& stop) {
  const uint64_t sequence = recorder_.start("broadcast", sizes_of({tensor}));
  return end(sequence, group_->broadcast(tensor, root, stop));
}

Status RecordedGroup::all_reduce_ordered(const std::vector<at::Tensor>& tensors,
                                         const std::stop_token& stop) {
  const uint64_t sequence = recorder_.start("all_reduce_ordered", sizes_of(tensors));
  return end(sequence, group_->all_reduce_ordered(tensors, stop));
}

Status RecordedGroup::all_gather(const at::Tensor& flat, const std::vector<int64_t>& ends,
                                 const std::stop_token& stop) {
  const uint64_t sequence = recorder_.start("all_gather", sizes_of({flat}));
  return end(sequence, group_->all_gather(flat, ends, stop));
}

Status RecordedGroup::start_all_reduce(const at::Tensor& tensor) {
  started_.push_back(recorder_.start("all_reduce", sizes_of({tensor})));
  return end_start(group_->start_all_reduce(tensor));
}

Status RecordedGroup::start_reduce_scatter(const at::Tensor& flat,
                                           const std::vector<int64_t>& ends) {
  started_.push_back(recorder_.start("reduce_scatter", sizes_of({flat})));
  return end_start(group_->start_reduce_scatter(flat, ends));
}

Status RecordedGroup::end_start(const Status& started) {
  return started.ok() ? started : end(started_.back(), started);
}

Status RecordedGroup::end_wait(const Status& ended) { return ended.ok() ? ended : end(0, ended); }

// Only the end of the last one is known.
Status RecordedGroup::finish_sums(const std::stop_token& stop) {
  const Status finished = group_->finish_sums(stop);
  const auto sequences = std::exchange(started_, {});
  if (!finished.ok()) return end(0, finished);
  for (const uint64_t sequence : sequences) recorder_.complete(sequence);
  return finished;
}

Status RecordedGroup::check_same(const SharedSettings& settings, const std::stop_token& stop) {
  const uint64_t sequence = recorder_.start("check_same");
  return end(sequence, group_->check_same(settings, stop));
}

Result<std::string> RecordedGroup::text_of_chief(const std::string& text,
                                                 const std::stop_token& stop) {
  const uint64_t sequence = recorder_.start("text_of_chief");
  auto received = group_->text_of_chief(text, stop);
  const Status status = end(sequence, received.status());
  if (!status.ok()) return status;
  return received;
}

Result<std::vector<std::string>> RecordedGroup::gather(const std::string& text,
                                                       const std::stop_token& stop) {
  const uint64_t sequence = recorder_.start("gather");
  auto gathered = group_->gather(text, stop);
  const Status status = end(sequence, gathered.status());
  if (!status.ok()) return status;
  return gathered;
}

void RecordedGroup::report_failure(const Status& reason) {
  group_->report_failure(reason);
  if (!is_lost_ && recorder_.has_steps()) (void)write_flight_record(recorder_, reason.to_string());
}

std::string write_flight_record(const FlightRecorder& recorder, const std::string& reason) {
  if (recorder.has_ended()) return "";
  const Status written = recorder.write(default_file_system(), reason);
  if (written.ok()) return "; this rank's last collectives: " + recorder.path();
  log_warn("file write failed", {{"path", recorder.path()}, {"error", written.to_string()}});
  return "";
}

}  // namespace stoker::group
