// StreamFeed::Reader: an enqueue thread of a StreamFeed. Reads an input from the file-name queue to its end,
// then the next one.
//
// Threads: enqueue_next() and decode() from one thread at a time; the others from any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

#include "shared/base/status.h"
#include "shared/data/stream/record_decoder.h"
#include "shared/data/stream/record_stream.h"
#include "shared/feed/element_limit.h"
#include "shared/feed/stream_feed.h"
#include "shared/feed/stream_state.h"
#include "shared/queue/tensor.h"

namespace stoker::feed {

// The record of an element: its last component, I64 [kValues].
struct ElementReference {
  static constexpr int64_t kValues = 4;
  uint64_t source;
  data::stream::StreamPosition at;
  uint64_t end;  // offset of the next record

  data::stream::StreamPosition next() const { return {.offset = end, .record = at.record + 1}; }
  Result<queue::Tensor> to_tensor() const;
  static ElementReference of(const queue::Tuple& element);
};

class StreamFeed::Reader {
 public:
  Reader(StreamFeed& feed, std::unique_ptr<data::stream::RecordDecoder> decoder)
      : feed_(feed),
        decoder_(std::move(decoder)),
        memory_([&feed] { feed.examples_->check_settled(); }) {}

  // Enqueues the next record, or opens the next input. After an error its thread ends.
  Status enqueue_next(const std::stop_token& stop);
  // The element of a record, nullopt if the record is dropped. Without `may_wait` also above the
  // limit of memory.
  Result<std::optional<queue::Tuple>> decode(uint64_t source,
                                             const data::stream::StreamRecord& record, uint64_t end,
                                             bool may_wait, const std::stop_token& stop);
  const data::stream::RecordDecoder& decoder() const { return *decoder_; }

  // Whether it waits for its input. Everything that it has read before is then in the queue.
  bool waits_for_input() const;
  bool waits_for_memory() const { return memory_.is_blocked(); }
  std::string input_name() const;  // empty: none
  size_t held_bytes() const;       // for reading
  uint64_t polls() const;          // as ByteInput::polls(), of all inputs so far

 private:
  Status read_next(const std::stop_token& stop);
  Status open_next(const std::stop_token& stop);
  // With an error, nothing after its position can be used.
  void close_input(const Status& error = {});
  Status handle_error(const Status& error, uint64_t record, const std::stop_token& stop);
  void count_window(size_t bytes);
  Status reserve(uint64_t bytes, bool may_wait, const std::stop_token& stop);

  // Constant after construction.
  StreamFeed& feed_;
  const std::unique_ptr<data::stream::RecordDecoder> decoder_;

  // Used by the thread.
  bool is_usable_ = false;  // the current input has an element, or is continued
  size_t window_ = 0;       // as memory_ knows it

  ElementLimit::Reader memory_;
  std::atomic<bool> waits_for_name_{false};  // written by the thread; no other data depends on it
  std::atomic<bool> ended_{false};           // likewise

  // Changed by the thread with mutex_ locked, so that the thread reads them without.
  mutable std::mutex mutex_;
  std::unique_ptr<data::stream::RecordStream> stream_;
  uint64_t source_ = 0;
  uint64_t closed_polls_ = 0;  // of the inputs before
};

}  // namespace stoker::feed
