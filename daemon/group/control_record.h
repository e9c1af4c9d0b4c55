// ControlRecord: what the ranks tell each other in each step, in the same collective as its gradients,
// so that all take the same decisions at the same step boundary without further communication.
//
// It is summed over the ranks like the gradients: a request counts the ranks that have it, a command
// comes from the chief alone, and each rank has its numbers.
//
// Threads:  values; pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shared/base/resource_use.h"
#include "shared/base/status.h"

namespace stoker::group {

// A command that changes how all ranks continue. Other commands concern the chief only.
// kChangeSetting: with the next text of the chief.
enum class SharedCommand : uint8_t { kNone, kPause, kResume, kChangeSetting };

// What one rank reports about itself.
struct RankReport {
  double compute_ms = 0;         // of the step, until it waits for the other ranks
  double data_wait_ms = 0;       // of this: waiting for data
  uint64_t quarantined = 0;      // samples that it has put into quarantine since the start
  uint64_t optimizer_bytes = 0;  // of its optimizer state
  uint64_t checksum = 0;         // of its parameters; all ranks have one, or none, in the same step
  // The first kProcessResources of its last measurement; 0: not known.
  std::array<double, kProcessResources> use = {};
  bool operator==(const RankReport&) const = default;
};

struct ControlRecord {
  uint64_t step = 0;             // completed steps; the same on all ranks
  uint64_t stop = 0;             // ranks that have been requested to stop
  uint64_t preempted = 0;        // of these: by the launcher
  uint64_t save = 0;             // ranks that have been requested to save
  uint64_t snapshot = 0;         // 1: all ranks save their part of this step; of the chief
  uint64_t refresh = 0;          // 1: another dataset version starts after this step; of the chief
  uint64_t sample_errors = 0;    // since the start, on the ranks other than the chief
  uint64_t can_capture = 0;      // ranks that are ready to capture CUDA graphs
  uint64_t gave_up_capture = 0;  // ranks that capture none
  SharedCommand command = SharedCommand::kNone;  // of the chief
  std::vector<RankReport> ranks;                 // by rank; set by parse_sum()
  bool operator==(const ControlRecord&) const = default;
};

// Numbers that a sum of F64 does not change: integers up to 2^53, and doubles of one rank.
using ControlNumbers = std::vector<double>;

// `own` is that of `rank`, with its report.
ControlNumbers to_numbers(const ControlRecord& own, const RankReport& report, int rank,
                          int world_size);
size_t count_numbers(int world_size);
// From the sum over all ranks. kInternal: the ranks are at different steps, or a number is no count.
Result<ControlRecord> parse_sum(const ControlNumbers& sum, uint64_t own_step, int world_size);

// Samples that a rank has put into quarantine, as text for the chief, which has `count` from its report
// and may receive a later text with more. kCorrupt: less, or no samples of a dataset of `num_samples`.
std::string format_samples(const std::vector<uint64_t>& samples);
Result<std::vector<uint64_t>> parse_samples(const std::string& text, uint64_t count,
                                            uint64_t num_samples);

// kInternal, the same on all ranks, if the parameters of a rank differ from those of most ranks.
// `name_of`: "rank 3 (node-2, pid 4711)".
Status compare_checksums(const std::vector<RankReport>& ranks, uint64_t step,
                         const std::function<std::string(int)>& name_of);

}  // namespace stoker::group
