// RecordedGroup: a group whose collectives are recorded for a file that this rank writes when it leaves
// because of an error.
//
// Threads, Blocking, Errors: see ProcessGroup. The message of kPeerLost has the path of the file, if
// it could be written.
// The file is written after the other ranks have been told.
// Owner: the recorder must outlive this object.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/group/flight_recorder.h"
#include "daemon/group/process_group.h"
#include "shared/base/status.h"

namespace stoker::group {

class RecordedGroup final : public ProcessGroup {
 public:
  RecordedGroup(std::unique_ptr<ProcessGroup> group, FlightRecorder& recorder)
      : group_(std::move(group)), recorder_(recorder) {}

  int rank() const override { return group_->rank(); }
  int world_size() const override { return group_->world_size(); }
  void begin_step(uint64_t step) override { recorder_.begin_step(step); }
  Status add_devices(const OpenCollectives& open) override;
  Status wait_for_devices(const std::stop_token& stop) override;
  Status check_lost() override;
  Status end_devices(const std::stop_token& stop) override;
  Status broadcast(const at::Tensor& tensor, int root, const std::stop_token& stop) override;
  Status all_reduce_ordered(const std::vector<at::Tensor>& tensors,
                            const std::stop_token& stop) override;
  Status all_gather(const at::Tensor& flat, const std::vector<int64_t>& ends,
                    const std::stop_token& stop) override;
  Status start_all_reduce(const at::Tensor& tensor) override;
  Status start_reduce_scatter(const at::Tensor& flat, const std::vector<int64_t>& ends) override;
  Status finish_sums(const std::stop_token& stop) override;
  Status check_same(const SharedSettings& settings, const std::stop_token& stop) override;
  Result<std::string> text_of_chief(const std::string& text, const std::stop_token& stop) override;
  Result<std::vector<std::string>> gather(const std::string& text,
                                          const std::stop_token& stop) override;
  Status send_text(const std::string& name, const std::string& text) override {
    return group_->send_text(name, text);
  }
  Result<std::string> receive_text(const std::string& name, int of_rank) override {
    return group_->receive_text(name, of_rank);
  }
  Status check_rank(int rank) override { return group_->check_rank(rank); }
  Status check_newest() override { return group_->check_newest(); }
  std::string name_of(int rank) override { return group_->name_of(rank); }
  bool is_leaving() const override { return group_->is_leaving(); }
  void report_failure(const Status& reason) override;

 private:
  Status end(uint64_t sequence, const Status& status);
  Status end_start(const Status& started);
  Status end_wait(const Status& ended);  // of what is no collective

  const std::unique_ptr<ProcessGroup> group_;
  FlightRecorder& recorder_;
  std::vector<uint64_t> started_;  // sums
  bool is_lost_ = false;           // another rank
};

// Writes the file of the recorder. Returns the end of an error message, with its path; empty if it could
// not be written, which is logged, or if training has ended.
std::string write_flight_record(const FlightRecorder& recorder, const std::string& reason);

}  // namespace stoker::group
