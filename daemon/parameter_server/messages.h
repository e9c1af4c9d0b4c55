// Messages between a worker and a parameter server. The worker sends a request, the server a reply; each
// is a Header, followed by the bytes of tensors, whose number both sides know.
//
// Threads: values; send and receive as group::PairConnection.
// Errors:  as group::PairConnection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <stop_token>

#include <ATen/core/Tensor.h>

#include "daemon/group/pair_connection.h"
#include "daemon/train/train_step.h"
#include "shared/base/status.h"

namespace stoker::parameter_server {

enum class Operation : int64_t {
  kInitialize =
      1,  // step + Sums; then parameters and optimizer state, to server 0 also those that are not
          // trained. Only from the chief
  kClaim,  // -> ClaimReply, ticket, step; as Sums::steps the ticket to prefetch, -1: none. Only server 0
  kPull,  // step + norm -> step; then parameters
  kPush,  // ticket, step + Sums of the micro-batch; then pack_gradients() -> PushResult, step
  kReadUntrained,  // ->; then the parameters that are not trained. Only server 0
  kReadStepNorms,  // step -> 1 if there are any, then the norms of the own gradients in the update to
                   // this step, before and after train.max_grad_value. Sync
  kBeginSave,      // -> 1 if the state is complete, step + Sums. Only server 0, from the chief
  kReadState,      // step + norm -> step; then parameters and optimizer state
  kEndSave,        // ->. Only server 0, from the chief
  kTakeRecord,  // saved step, step -> 1 if there is a record after this step, its step + Sums. Only
                // server 0, from the chief. Those up to the saved step are not needed any more
  kReadNorms,  // saved step, step + norm -> 1 if they are recorded; then the norms of the own gradients
               // in the update to this step. From the chief; likewise
  kReadStatus,  // -> stale gradients, backups, largest staleness, 1 for async; then a WorkerSummary of each
                // worker. Only server 0, from the chief
  kEndRun,         // RunOutcome ->. From the chief
  kKeepAlive,      // ->. From a worker that waits, so that it is not lost
  kClaimGap,       // -> as kClaim, of a worker that then leaves. Only server 0
  kApplySettings,  // version ->. The server reads this version of the settings, and those before it, from the store, see
                   // SettingHistory. Server 0 only from the chief
};

// The answer to kClaim and kClaimGap.
enum class ClaimReply : int64_t {
  kGranted,
  kWait,
  kEnded,       // ticket: 1 for a preemption
  kInitialize,  // the chief must send the parameters
};

// Losses and training metrics: of one micro-batch, or summed over steps.
struct Sums {
  double loss = 0;
  // In the order of train::TrainingState::training_metrics(); the others are 0.
  std::array<double, train::kMaxTrainingMetrics> metrics = {}, metric_counts = {};
  int64_t steps = 0;
  // By which an update clips, if several servers have a part of the gradients; negative: none.
  double norm = -1;
  // The number of values in the loss, which `loss` and the gradients of a sync micro-batch are not yet
  // divided by (TrainStep::max_count()); negative: the same for all micro-batches.
  double count = -1;
};

// In the reply to kClaim.
inline constexpr int64_t kNoTicket = -1;
// Of a WorkerSummary in kReadStatus.
inline constexpr int64_t kNumbersPerWorker = 5;

// operation or result, ticket or step, step, version of the settings, Sums; the doubles by their bits.
using Header = std::array<int64_t, 8 + 2 * train::kMaxTrainingMetrics>;
// Of server 0, in its replies to kClaim, kClaimGap, kBeginSave and kTakeRecord.
inline constexpr size_t kVersion = 3;

Header make_header(int64_t first, uint64_t second = 0, uint64_t third = 0, const Sums& sums = {});
Sums sums_of(const Header& header);
// Adds those of one step, but not the norm. Of a step whose loss has no values only the metrics, which also count
// samples without a weight in the loss.
void add_step(Sums& interval, const Sums& of_step);

Status send_header(group::PairConnection& connection, const Header& header,
                   const std::stop_token& stop);
Result<Header> receive_header(group::PairConnection& connection, const std::stop_token& stop);

}  // namespace stoker::parameter_server
