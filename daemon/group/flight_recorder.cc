#include "daemon/group/flight_recorder.h"

#include <unistd.h>

#include <algorithm>
#include <span>
#include <utility>

#include <boost/json.hpp>

#include "daemon/group/socket_address.h"
#include "shared/base/deadline.h"
#include "shared/base/log.h"
#include "shared/base/utf8.h"

namespace stoker::group {
namespace {

namespace json = boost::json;

Status replace_unsynced(FileSystem& files, const std::string& path, const std::string& text) {
  const std::string temporary = temporary_path(path);
  const auto write_all = [&]() -> Status {
    STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, files.open(temporary, kNewFile));
    STOKER_RETURN_IF_ERROR(files.write(fd.get(), std::as_bytes(std::span(text)), temporary));
    return files.rename(temporary, path);
  };
  Status status = write_all();
  if (!status.ok()) (void)files.remove_file(temporary);
  return status;
}

double in_ms(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

void CollectiveSizes::add(int64_t elements_of_tensor, uint64_t bytes_of_tensor) {
  if (tensors < kMaxListed) elements[tensors] = elements_of_tensor;
  ++tensors;
  bytes += bytes_of_tensor;
}

FlightRecorder::FlightRecorder(Owner owner, Clock& clock)
    : owner_(std::move(owner)), clock_(clock) {}

void FlightRecorder::begin_step(uint64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

bool FlightRecorder::has_steps() const {
  const std::lock_guard lock(mutex_);
  return step_ > 0;
}

void FlightRecorder::end_training() {
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
}

bool FlightRecorder::has_ended() const {
  const std::lock_guard lock(mutex_);
  return has_ended_;
}

uint64_t FlightRecorder::start(const char* operation, const CollectiveSizes& sizes) {
  const auto now = clock_.wall();
  const std::lock_guard lock(mutex_);
  const uint64_t sequence = ++recorded_;
  at(sequence) = {.sequence = sequence,
                  .operation = operation,
                  .step = step_,
                  .sizes = sizes,
                  .started_at = now,
                  .started = clock_.monotonic()};
  return sequence;
}

void FlightRecorder::complete(uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  Collective& collective = at(sequence);
  if (collective.sequence != sequence) return;
  collective.completed = clock_.monotonic();
  collective.is_complete = true;
  ++completed_;
}

uint64_t FlightRecorder::num_events() const {
  const std::lock_guard lock(mutex_);
  return recorded_ + completed_;
}

std::string FlightRecorder::to_jsonl(const std::string& reason) const {
  const std::lock_guard lock(mutex_);
  std::string lines = json::serialize(json::object{{"rank", owner_.rank},
                                                   {"world_size", owner_.world_size},
                                                   {"host", host_name()},
                                                   {"pid", ::getpid()},
                                                   {"written_at", to_iso8601(clock_.wall())},
                                                   {"reason", valid_utf8(reason)},
                                                   {"collectives", recorded_}}) +
                      '\n';
  const uint64_t first = recorded_ > kCapacity ? recorded_ - kCapacity + 1 : 1;
  for (uint64_t sequence = first; sequence <= recorded_; ++sequence) {
    const Collective& each = ring_[sequence % kCapacity];
    const auto listed = each.sizes.elements.begin();
    json::object fields{
        {"sequence", sequence},
        {"operation", each.operation},
        {"step", each.step},
        {"state", each.is_complete ? "completed" : "started"},
        {"started_at", to_iso8601(each.started_at)},
        {"tensors", each.sizes.tensors},
        {"bytes", each.sizes.bytes},
        {"sizes",
         json::array(listed, listed + static_cast<std::ptrdiff_t>(std::min(
                                          each.sizes.tensors, CollectiveSizes::kMaxListed)))}};
    if (each.is_complete) {
      const auto took = each.completed - each.started;
      fields["completed_at"] = to_iso8601(
          each.started_at + std::chrono::duration_cast<std::chrono::system_clock::duration>(took));
      fields["duration_ms"] = in_ms(took);
    }
    lines += json::serialize(fields) + '\n';
  }
  return lines;
}

Status FlightRecorder::write(FileSystem& files, const std::string& reason,
                             std::chrono::milliseconds timeout) const {
  return write_within(timeout, owner_.path, [&files, path = owner_.path, text = to_jsonl(reason)] {
    return replace_unsynced(files, path, text);
  });
}

void set_aside_flight_record(FileSystem& files, const std::string& path) {
  const std::string previous = path + ".previous";
  Status moved = files.rename(path, previous);
  if (moved.code() == StatusCode::kNotFound) moved = files.remove_file(previous);
  if (!moved.ok() && moved.code() != StatusCode::kNotFound)
    log_warn("file write failed", {{"path", previous}, {"error", moved.to_string()}});
}

}  // namespace stoker::group
