#include "shared/feed/sandboxed_dataset.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "shared/base/log.h"
#include "shared/feed/quarantine_table.h"

namespace stoker::feed {
namespace {

using End = RequestWorker::Attempt::End;

// Memory for the samples of a request; more only if a single sample needs it.
constexpr uint64_t kMaxRequestBytes = 4ull << 20;

uint64_t max_samples_per_request(const data::Dataset& data) {
  const uint64_t sample = shared_bytes(data.spec(), 1);
  return std::clamp<uint64_t>(kMaxRequestBytes / sample, 1, kMaxSamplesPerRequest);
}

// The padded length of the sequences that fit into `rows` for `count` samples; 0: not sequences.
uint64_t padded_length(const data::DatasetInfo& info, std::span<const std::span<std::byte>> rows,
                       uint64_t count) {
  if (info.max_length == 0 || info.length_tensors.empty()) return 0;
  const size_t tensor = info.length_tensors.front();
  return rows[tensor].size() / count / (info.spec[tensor].bytes() / info.max_length);
}

}  // namespace

// ---- Opening

Result<std::unique_ptr<SandboxedDataset>> SandboxedDataset::open(
    const config::Config& config, Location location, std::unique_ptr<data::Dataset> data) {
  const data::Dataset& inner = *data;
  STOKER_ASSIGN_OR_RETURN(auto dataset, open(config, std::move(location), inner));
  dataset->maybe_owned_ = std::move(data);
  return dataset;
}

Result<std::unique_ptr<SandboxedDataset>> SandboxedDataset::open(const config::Config& config,
                                                                 Location location,
                                                                 const data::Dataset& data) {
  if (location.feed_program.empty()) {
    STOKER_ASSIGN_OR_RETURN(location.feed_program, find_feed_program());
  }
  STOKER_ASSIGN_OR_RETURN(UniqueFd settings, make_config_file(config));
  std::unique_ptr<SandboxedDataset> dataset(
      new SandboxedDataset(std::move(location), config.feed, data, std::move(settings)));
  const std::lock_guard lock(dataset->mutex_);
  STOKER_RETURN_IF_ERROR(dataset->worker_.prepare(dataset->memory_bytes_));
  return dataset;
}

SandboxedDataset::SandboxedDataset(Location location, const config::FeedConfig& feed,
                                   const data::Dataset& data, UniqueFd config)
    : DatasetDecorator(data),
      info_(data.info()),
      dataset_(location.dataset),
      config_(std::move(config)),
      samples_per_request_(max_samples_per_request(data)),
      memory_bytes_(shared_bytes(data.spec(), samples_per_request_)),
      worker_(RequestWorker::Service{
          .dataset = location.dataset,
          .feed_program = std::move(location.feed_program),
          .arguments = {.index_dir = location.index_dir, .fingerprint = data.fingerprint()},
          .config_fd = config_.get(),
          .timeout_seconds = feed.worker_timeout_seconds,
          .should_stop = std::move(location.should_stop)}) {
  if (info_.maybe_files != nullptr) info_.maybe_files = this;
}

SandboxedDataset::~SandboxedDataset() = default;

// ---- Requests

SandboxedDataset::Attempt SandboxedDataset::request(
    std::span<const data::SampleReadRequest> samples,
    std::span<const std::span<std::byte>> rows) const {
  if (Status ready = worker_.prepare(memory_bytes_); !ready.ok())
    return {.end = End::kNotStarted, .result = {.good = 0, .status = std::move(ready)}};
  const uint64_t length = padded_length(info(), rows, samples.size());
  ReadRequest message{.length = length, .count = samples.size()};
  std::ranges::copy(samples, message.samples.begin());
  RequestWorker::Attempt attempt = worker_.request(message, samples.size());
  if (attempt.end == End::kAnswered) {
    auto result = parse_reply(attempt.reply, message.serial, samples.size());
    if (!result)
      attempt = worker_.reject("sent an invalid reply");
    else if (copy_rows(length, samples, result->good, rows))
      return {.result = *std::move(result)};
    else
      attempt = worker_.reject("sent a sequence with a different length than when it was indexed");
  }
  if (attempt.end == End::kCrashed)
    log_warn("worker process crashed", {{"dataset", dataset_}, {"cause", attempt.cause}});
  if (attempt.end == End::kWaiting)
    log_warn("worker process killed", {{"dataset", dataset_}, {"cause", attempt.cause}});
  return {.end = attempt.end,
          .result = {.good = 0, .status = std::move(attempt.status)},
          .cause = std::move(attempt.cause)};
}

// Copies the first `good` rows. False: the process sent an impossible length.
bool SandboxedDataset::copy_rows(uint64_t length, std::span<const data::SampleReadRequest> samples,
                                 uint64_t good, std::span<const std::span<std::byte>> rows) const {
  const std::vector<TensorSpec> specs = inner().spec_of_length(length);
  const auto shared = locate_samples(worker_.memory(), specs, samples.size());
  assert(shared.size() == rows.size());
  for (size_t t = 0; t < specs.size(); ++t) {
    assert(rows[t].size() == samples.size() * specs[t].bytes());
    std::memcpy(rows[t].data(), shared[t].data(), good * specs[t].bytes());
    if (length == 0 || specs[t].name != "length" || specs[t].bytes() != sizeof(uint64_t)) continue;
    for (uint64_t row = 0; row < good; ++row) {
      uint64_t valid_steps = 0;
      std::memcpy(&valid_steps, rows[t].data() + row * sizeof valid_steps, sizeof valid_steps);
      if (valid_steps != inner().length(samples[row].sample)) return false;
    }
  }
  return true;
}

// ---- Reading

Status SandboxedDataset::read(uint64_t sample, const data::RandomKey& random_key,
                              std::span<const std::span<std::byte>> outputs) const {
  const std::lock_guard lock(mutex_);
  return read_alone({.sample = sample, .random_key = random_key}, outputs);
}

data::BatchReadResult SandboxedDataset::read_batch(
    std::span<const data::SampleReadRequest> samples,
    std::span<const std::span<std::byte>> rows) const {
  const std::lock_guard lock(mutex_);
  data::RowOutputs outputs(rows, samples.size());
  for (size_t first = 0; first < samples.size(); first += samples_per_request_) {
    const size_t count = std::min<size_t>(samples_per_request_, samples.size() - first);
    data::BatchReadResult read =
        read_group(samples.subspan(first, count), outputs.of(first, count));
    if (!read.status.ok()) return {.good = first + read.good, .status = std::move(read.status)};
  }
  return {.good = samples.size(), .status = {}};
}

data::BatchReadResult SandboxedDataset::read_group(
    std::span<const data::SampleReadRequest> samples,
    std::span<const std::span<std::byte>> rows) const {
  const bool any_quarantined = std::ranges::any_of(
      samples, [this](const auto& each) { return quarantined_.contains(each.sample); });
  if (samples.size() > 1 && !any_quarantined) {
    Attempt attempt = request(samples, rows);
    if (attempt.end == End::kNotStarted ||
        (attempt.end == End::kAnswered && attempt.result.status.code() != StatusCode::kOutOfMemory))
      return std::move(attempt.result);
  }
  data::RowOutputs outputs(rows, samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    Status status = read_alone(samples[i], outputs.of(i));
    if (!status.ok()) return {.good = i, .status = std::move(status)};
  }
  return {.good = samples.size(), .status = {}};
}

Status SandboxedDataset::read_alone(const data::SampleReadRequest& sample,
                                    std::span<const std::span<std::byte>> row) const {
  if (quarantined_.contains(sample.sample))
    return Status(StatusCode::kCorrupt, to_string(source(sample.sample)) +
                                            ": quarantined: it crashed its worker process "
                                            "repeatedly");
  std::string cause;
  for (uint64_t crash = 0; crash < kCrashesToQuarantine; ++crash) {
    Attempt attempt = request({&sample, 1}, row);
    switch (attempt.end) {
      case End::kNotStarted:
        return std::move(attempt.result.status);
      case End::kWaiting:
        return Status(
            StatusCode::kTimedOut,
            to_string(source(sample.sample)) + ": its worker process was killed: " + attempt.cause);
      case End::kAnswered:
        if (attempt.result.status.code() != StatusCode::kOutOfMemory)
          return std::move(attempt.result.status);
        return quarantine(sample.sample, attempt.result.status.message());
      case End::kCrashed:
        cause = std::move(attempt.cause);
    }
  }
  return quarantine(sample.sample, cause);
}

Status SandboxedDataset::quarantine(uint64_t sample, std::string_view cause) const {
  if (quarantined_.size() >= kMaxQuarantined)
    return Status(StatusCode::kCorrupt,
                  "data." + dataset_ + ": more than " + std::to_string(kMaxQuarantined) +
                      " samples crash their worker process; check the data and "
                      "feed.worker_memory_limit_mib");
  quarantined_.insert(sample);
  const data::SampleSource origin = source(sample);
  log_warn("sample quarantined", {{"dataset", dataset_},
                                  {"sample", sample},
                                  {"path", origin.file},
                                  {"offset", origin.offset},
                                  {"cause", cause}});
  return Status(StatusCode::kCorrupt, to_string(origin) + ": quarantined: " + std::string(cause));
}

std::string SandboxedDataset::describe_transforms(uint64_t sample,
                                                  const data::RandomKey& random_key) const {
  const std::lock_guard lock(mutex_);
  constexpr const char* kUnknown = "unknown";
  if (!worker_.prepare(memory_bytes_).ok()) return kUnknown;
  ReadRequest message{.length = max_length(), .count = 1, .describes = 1};
  message.samples[0] = {.sample = sample, .random_key = random_key};
  const RequestWorker::Attempt attempt = worker_.request(message, 1);
  if (attempt.end != End::kAnswered) return kUnknown;
  const auto result = parse_reply(attempt.reply, message.serial, 1);
  if (!result) (void)worker_.reject("sent an invalid reply");
  return result && result->status.ok() ? to_string(attempt.reply) : kUnknown;
}

bool SandboxedDataset::is_quarantined(uint64_t sample) const {
  const std::lock_guard lock(mutex_);
  return quarantined_.contains(sample);
}

ProcessUse SandboxedDataset::worker_use() const {
  const std::lock_guard lock(mutex_);
  return worker_.use();
}

pid_t SandboxedDataset::process_id() const {
  const std::lock_guard lock(mutex_);
  return worker_.process_id();
}

}  // namespace stoker::feed
