#include "daemon/group/control_record.h"

#include <string>

namespace stoker::group {

ControlNumbers to_numbers(const ControlRecord& own) {
  return {static_cast<double>(own.step),    static_cast<double>(own.stop),
          static_cast<double>(own.save),    static_cast<double>(own.sample_errors),
          static_cast<double>(own.command), own.argument};
}

Result<ControlRecord> parse_sum(const ControlNumbers& sum, uint64_t own_step, int world_size) {
  const double steps = static_cast<double>(own_step) * world_size;
  const bool has_command =
      sum[4] >= 0 && sum[4] <= static_cast<double>(SharedCommand::kSetLearningRate);
  if (sum[0] != steps || !has_command)
    return Status(StatusCode::kInternal,
                  "the ranks of the group are at different steps; this one has completed step " +
                      std::to_string(own_step));
  return ControlRecord{.step = own_step,
                       .stop = static_cast<uint64_t>(sum[1]),
                       .save = static_cast<uint64_t>(sum[2]),
                       .sample_errors = static_cast<uint64_t>(sum[3]),
                       .command = static_cast<SharedCommand>(sum[4]),
                       .argument = sum[5]};
}

}  // namespace stoker::group
