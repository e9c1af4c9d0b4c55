#include "tests/fuzz/dataset_under_test.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/data/dataset.h"
#include "shared/data/files/index.h"
#include "shared/data/files/prefetched_bytes.h"
#include "shared/data/format/format.h"

namespace stoker::fuzz {
namespace {

using data::Dataset;
using data::DatasetRequest;
using data::files::Index;

constexpr uint64_t kSamplesRead = 24;          // from the start, and the same number from the end
constexpr uint64_t kMaxSampleBytes = 1 << 20;  // limit for a sample of a small file
constexpr size_t kGuardBytes = 32;             // around each tensor
constexpr std::byte kGuard{0xa5};

void promise(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", what.c_str());
  std::abort();
}

bool blames_the_file(const Status& status) {
  promise(!status.message().empty(), "an error says what");
  promise(status.message().find('\n') == std::string::npos, "one line: " + status.message());
  const bool ours =
      status.code() == StatusCode::kInternal || status.code() == StatusCode::kOutOfMemory;
  promise(!ours, "an error of the file: " + status.to_string());
  return false;
}

Result<Index> index_of(const DatasetRequest& set, const data::format::DatasetFormatOps& kind) {
  Index index;
  STOKER_ASSIGN_OR_RETURN(index.fingerprint_text, kind.fingerprint_text(set));
  STOKER_ASSIGN_OR_RETURN(index.files, kind.scan(set, {}));
  STOKER_ASSIGN_OR_RETURN(index.metadata, kind.build_metadata(set, index.files, {}));
  return index;
}

Result<std::unique_ptr<Dataset>> open_again(const DatasetRequest& set,
                                            const data::format::DatasetFormatOps& kind,
                                            const Index& index) {
  auto again = data::files::decode_index(data::files::encode_index(index), "index");
  promise(again.ok(), "an index that was written can be read");
  return kind.open(set, *std::move(again));
}

// One sample with guard bytes around each of its tensors.
struct SampleReadRequest {
  bool ok = false;
  std::vector<std::vector<std::byte>> tensors;
  bool operator==(const SampleReadRequest&) const = default;
};
SampleReadRequest read(const Dataset& dataset, uint64_t sample,
                       const std::vector<TensorSpec>& specs) {
  SampleReadRequest read;
  std::vector<std::span<std::byte>> outputs;
  for (const TensorSpec& spec : specs)
    read.tensors.emplace_back(spec.bytes() + 2 * kGuardBytes, kGuard);
  for (auto& tensor : read.tensors)
    outputs.push_back(std::span(tensor).subspan(kGuardBytes, tensor.size() - 2 * kGuardBytes));
  const Status status = dataset.read(sample, {}, outputs);
  read.ok = status.ok() || blames_the_file(status);
  for (const auto& tensor : read.tensors) {
    const auto intact = [](std::byte byte) { return byte == kGuard; };
    promise(std::all_of(tensor.begin(), tensor.begin() + kGuardBytes, intact) &&
                std::all_of(tensor.end() - kGuardBytes, tensor.end(), intact),
            "nothing is written beside a tensor");
  }
  if (!read.ok) read.tensors.clear();  // unspecified on error
  return read;
}

void check_label(const Dataset& dataset, const SampleReadRequest& sample) {
  for (size_t i = 0; i < dataset.spec().size(); ++i) {
    if (dataset.spec()[i].name != "label") continue;
    uint64_t label = 0;
    std::memcpy(&label, sample.tensors[i].data() + kGuardBytes, sizeof label);
    promise(label < dataset.classes(), "a label is smaller than the number of classes");
  }
}

// A sample has the same bytes in a batch of its own length as in a batch of maximum length.
void check_length(const Dataset& dataset, uint64_t sample, const SampleReadRequest& padded) {
  if (dataset.max_length() == 0) return;
  const uint64_t length = dataset.length(sample);
  promise(length >= 1 && length <= dataset.max_length(), "a sample fits the longest");
  const SampleReadRequest exact = read(dataset, sample, dataset.spec_of_length(length));
  promise(exact.ok == padded.ok, "a sample can be read, or not, whatever its padding");
  if (!exact.ok) return;
  const auto& whole = exact.tensors.front();
  promise(std::equal(whole.begin() + kGuardBytes, whole.end() - kGuardBytes,
                     padded.tensors.front().begin() + kGuardBytes),
          "padding comes behind a sample");
}

bool check_sample(const Dataset& first, const Dataset& second, uint64_t sample) {
  const SampleReadRequest one = read(first, sample, first.spec());
  promise(one == read(second, sample, second.spec()), "a sample is the same each time");
  data::files::MemoryBudget budget(kMaxSampleBytes);
  data::files::PrefetchedBytes bytes(budget);
  first.prefetch(sample, bytes);
  {
    const data::files::PrefetchedBytes::Held held(&bytes);
    promise(one == read(first, sample, first.spec()),
            "a sample is the same when its bytes were read ahead");
  }
  promise(first.source(sample).offset == second.source(sample).offset, "and where it comes from");
  if (one.ok) check_label(first, one);
  check_length(first, sample, one);
  return one.ok;
}

bool check_samples(const Dataset& first, const Dataset& second) {
  const uint64_t size = first.size();
  promise(size >= 1 && size == second.size(), "a set has samples");
  promise(first.spec() == second.spec() && !first.spec().empty(), "a set has tensors");
  for (const TensorSpec& spec : first.spec())
    promise(spec.elements() >= 1 && spec.bytes() <= kMaxSampleBytes,
            "a small file has small samples: " + to_string(spec));
  bool any = false;
  for (uint64_t i = 0; i < std::min(size, kSamplesRead); ++i) {
    any = check_sample(first, second, i) || any;
    any = check_sample(first, second, size - 1 - i) || any;
  }
  return any;
}

}  // namespace

// Disables logging, because dropped records are logged and thousands of corrupt files would produce
// thousands of lines.
DatasetUnderTest::DatasetUnderTest() {
  const Status logs = init_log({.file = "", .console = false});
  promise(logs.ok(), "the log begins: " + logs.to_string());
}

void DatasetUnderTest::write(const std::string& name, std::string_view content) {
  // Avoids streams, because a fuzzer runs this about ten thousand times per second. Creates a new
  // file, because closing a truncated file waits for the disk on ext4.
  ::unlink(path(name).c_str());
  const UniqueFd fd(::open(path(name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  promise(fd.valid() && ::write(fd.get(), content.data(), content.size()) ==
                            static_cast<ssize_t>(content.size()),
          "the test can write " + path(name));
}

bool DatasetUnderTest::check(const config::DatasetConfig& config) const {
  const std::string name = "train";
  const DatasetRequest set{.name = name, .config = config, .index_dir = folder_.path()};
  const data::format::DatasetFormatOps& kind = data::format::format_ops(config.format());
  auto index = index_of(set, kind);
  if (!index) return blames_the_file(index.status());
  const auto second = open_again(set, kind, *index);
  const auto first = kind.open(set, *std::move(index));
  promise(first.ok() == second.ok(), "an index that was read opens as one that was just made");
  if (!first) return blames_the_file(first.status());
  return check_samples(**first, **second);
}

}  // namespace stoker::fuzz
