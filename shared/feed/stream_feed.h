// StreamFeed: fills ring slots with the samples of a stream, a source without an index.
//
//   inputs -> file-name queue -> reader threads: records, samples -> example queue -> batches -> ring
//
// The file names and the readers are queue runners, as with TensorFlow's string_input_producer and
// shuffle_batch. One thread takes whole batches. After each batch it records the StreamState from
// which the stream continues, before the batch is published.
//
// In a mixture, the plan says which rows of a batch are the stream's; IndexedRows reads the others.
//
// The batches of a RandomShuffleQueue and a PriorityQueue depend on the number of elements from which
// they are taken. They are therefore taken from a full or closed queue, or when all readers wait for
// their inputs or for memory.
//
// Reproducible, bit for bit, are the batches of one reader thread
//  - of complete files (a GLOB): they are a function of settings and files;
//  - of a pipe with a FIFOQueue or PaddingFIFOQueue: a function of the bytes;
//  - of a spool folder with one of these: if the order of its files is (spool_folder.h);
//  - of one producer that connects, with one of these: a function of its bytes.
// A RandomShuffleQueue or PriorityQueue whose source runs dry takes from what has arrived until then,
// which depends on time. So does the order of elements with several reader threads. A resumed stream continues with the
// elements and files of its state in all cases; what the state does not have is new in this respect.
//
// Threads:  create(), restore() and start() from one thread, in this order; the others from any.
// Blocking: restore() reads the elements again; its waits notice a stop within 100 ms, like those of
//           all threads. The readers wait while `capacity` elements or `max_bytes` are held, so that a
//           producer is slowed down by the pipe, and while kMaxPendingErrors wait for the ring.
// Progress: the ring's count of samples increases while readers read, wait for their inputs, or skip
//           what is no sample, and while restore() does, so that none of it looks like a hang.
// Owner:    inputs and ring must outlive this object, and this object the threads (join the
//           coordinator first).
// Errors:   create(): kInvalidArgument, kMismatch (the ring has another layout). restore(): kCorrupt
//           (an input has changed), kInvalidArgument (elements of an input that cannot be read again),
//           those of ByteInput. A record that cannot be used is reported
//           through the ring and skipped, or stops the coordinator with on_sample_error: fail. If no
//           record can be found behind it, the rest of its input is skipped with a warning. Other
//           errors of an input stop the coordinator.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/coordinator.h"
#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/config/feed_config.h"
#include "shared/data/dataset_request.h"
#include "shared/data/record/label_range_check.h"
#include "shared/data/stream/record_decoder.h"
#include "shared/data/stream/record_stream.h"
#include "shared/data/stream/stream_inputs.h"
#include "shared/feed/element_limit.h"
#include "shared/feed/indexed_rows.h"
#include "shared/feed/stream_state.h"
#include "shared/queue/queue.h"
#include "shared/queue/queue_runner.h"
#include "shared/ring/shm_ring.h"

namespace stoker::feed {

struct StreamFeedOptions {
  queue::QueueType queue = queue::QueueType::kFIFO;  // kPriority requires fields.priority
  int64_t capacity = 1000;  // elements; at least min_after_dequeue and a batch
  int64_t min_after_dequeue = 0;
  int num_threads = 4;  // readers
  uint64_t seed = 0;    // of the shuffling and of random transforms
  config::LastBatchPolicy last_batch = config::LastBatchPolicy::kCarryOver;
  config::OnSampleError on_sample_error = config::OnSampleError::kSkip;
  uint64_t max_bytes = uint64_t{256} << 20;   // of elements, beyond those that a batch needs
  data::record::LabelRangeCheck limits = {};  // of the values that model and task support
  // In a mixture: the rows of its other datasets; must outlive the feed. With last_batch kCarryOver.
  IndexedRows* maybe_indexed = nullptr;
};

struct StreamStatus {
  enum class Activity {
    kReading,
    kWaiting,  // for the producer of an input
    kBlocked,  // by a full queue
    kEnded
  };
  Activity activity = Activity::kReading;
  std::string input;           // of a reader, one that waits if there is one
  int64_t elements = 0;        // in the queue
  uint64_t bytes = 0;          // of elements and for reading
  uint64_t records = 0;        // that became elements
  uint64_t dropped = 0;        // by on_missing_field or sequence.on_overflow
  uint64_t errors = 0;         // records that cannot be used
  uint64_t dropped_bytes = 0;  // at the ends of inputs, that fill no block
};
std::string_view to_string(StreamStatus::Activity activity);  // "reading", …

class StreamFeed {
 public:
  // Called by the thread that takes batches before it publishes the batch of the ticket, and with the
  // end_ticket() at the end of the stream. An error stops the coordinator.
  using RecordState = std::function<Status(uint64_t ticket, const StreamState& after)>;

  // The layout of the ring must be that of the decoder's samples.
  static Result<std::unique_ptr<StreamFeed>> create(const data::DatasetRequest& request,
                                                    data::stream::StreamInputs& inputs,
                                                    const StreamFeedOptions& options,
                                                    ring::ShmRing& ring, ring::ProducerId producer,
                                                    RecordState record_state);
  ~StreamFeed();
  StreamFeed(const StreamFeed&) = delete;
  StreamFeed& operator=(const StreamFeed&) = delete;

  // Continues from a state of a stream with the same settings. The inputs must start with number
  // state.next_source, and must not return its taken_files(). An input that cannot be read again
  // continues with the first byte that comes; to continue without the elements that the queue had of
  // it, remove them from the state.
  Status restore(const StreamState& state, const std::stop_token& stop);
  void start(Coordinator& coordinator);

  // The first ticket without a batch, once the stream has ended and all batches are published.
  std::optional<uint64_t> end_ticket() const;
  StreamStatus status() const;
  // Those of this process, with what they wait for in the queues; see list_records().
  ThreadList threads() const;

 private:
  class Reader;
  // An input, as in StreamState, while it is needed.
  struct Input {
    std::string name;
    data::stream::StreamPosition next;  // behind the last element that was dequeued
    uint64_t identity = 0;
    bool ended = false;
    // Where a reader continues, with can_continue: behind the last record.
    data::stream::StreamPosition read_to;
  };
  struct RecordError {
    Status status;
    uint64_t sample;
  };

  StreamFeed(data::stream::StreamInputs& inputs, const StreamFeedOptions& options,
             const data::stream::Framing& framing, ring::ShmRing& ring, ring::ProducerId producer,
             RecordState record_state);
  Status make_queues();
  Status make_readers(const data::DatasetRequest& request);
  Status check_limits(const data::DatasetRequest& request) const;

  // Elements: the tensors of a row, aligned as in the ring.
  static size_t element_bytes(std::span<const TensorSpec> spec);
  static queue::Shape to_shape(const TensorSpec& spec);

  // File names and inputs.
  Status enqueue_name(const std::stop_token& stop);
  uint64_t add_input(data::stream::StreamInputs::Item item);
  Input input_of(uint64_t number) const;
  Result<std::unique_ptr<data::stream::RecordStream>> open_input(const Input& from);
  void set_identity(uint64_t number, uint64_t identity);
  void end_input(uint64_t number, const data::stream::StreamPosition& at, const Status& error);

  // Errors of records.
  Status report(const Status& error, uint64_t sample, const std::stop_token& stop);
  bool pass_errors_to_ring(uint64_t ticket);  // false: there are none

  // Restoring.
  Status reread(const StreamState& state, std::span<const size_t> elements,
                std::vector<queue::Tuple>& tuples, const std::stop_token& stop);

  // Batches.
  Status fill_ring(const std::stop_token& stop);
  Status fill(const ring::Claim& claim, const std::stop_token& stop);
  Status fill_from_stream(const ring::Claim& claim, std::span<const uint64_t> rows,
                          const std::stop_token& stop);
  Result<queue::Tuple> take_batch(uint64_t ticket, size_t rows, const std::stop_token& stop);
  void capture_state(const queue::QueueContents& contents);
  void finish_input(const StreamState::Source& input);
  void write_rows(const queue::Tuple& batch, std::span<const uint64_t> rows,
                  std::span<std::byte> slot) const;
  void pad_labels(std::span<std::byte> slot, std::span<const uint64_t> rows) const;
  Status end_stream(uint64_t ticket);
  bool all_readers_wait() const;
  void report_progress();

  // Constant after create().
  data::stream::StreamInputs& inputs_;
  const StreamFeedOptions options_;
  const data::stream::Framing framing_;
  ring::ShmRing& ring_;
  const ring::ProducerId producer_;
  const RecordState record_state_;
  const uint64_t batch_;                       // rows
  const std::vector<uint64_t> all_rows_;       // 0 to batch_ - 1
  std::vector<TensorSpec> spec_;               // of a row
  std::vector<bool> is_per_step_;              // by tensor: the first dimension is the length
  const std::shared_ptr<ElementLimit> limit_;  // shared with the elements

  // Own synchronization.
  std::unique_ptr<queue::Queue> names_;
  std::unique_ptr<queue::Queue> examples_;
  std::vector<std::unique_ptr<Reader>> readers_;
  std::atomic<uint64_t> records_{0};
  std::atomic<uint64_t> dropped_{0};
  std::atomic<uint64_t> errors_{0};
  std::atomic<uint64_t> dropped_bytes_{0};
  std::atomic<uint64_t> pending_names_{0};    // enqueued, and not opened yet
  std::atomic<uint64_t> unusable_inputs_{0};  // that ended without an element, since the last one
  std::atomic<uint64_t> end_ticket_{kNotEnded};  // written by the thread that takes batches

  // Used by the thread that enqueues names.
  std::deque<uint64_t> resumed_;  // inputs of the restored state

  // Used by the thread that takes batches.
  StreamState state_;           // after the last batch that was taken
  size_t kept_finished_ = 0;    // of state_.finished, when it was last reduced
  uint64_t last_activity_ = 0;  // of the readers, when progress was last reported

  // Guarded by inputs_mutex_, which is locked while the example queue is.
  mutable std::mutex inputs_mutex_;
  std::map<uint64_t, Input> known_inputs_;
  uint64_t next_input_ = 0;

  // Guarded by errors_mutex_.
  static constexpr size_t kMaxPendingErrors = 256;
  std::mutex errors_mutex_;
  std::condition_variable_any errors_passed_;
  std::deque<RecordError> pending_errors_;

  static constexpr uint64_t kNotEnded = ~uint64_t{0};
  queue::QueueRunnerRegistry runners_;  // last member, because its threads use the others
};

}  // namespace stoker::feed
