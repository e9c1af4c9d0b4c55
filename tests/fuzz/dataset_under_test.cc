#include "tests/fuzz/dataset_under_test.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
#include "tests/fuzz/file_under_test.h"
#include "tests/fuzz/format.h"

namespace stoker::fuzz {
namespace {

using data::Dataset;
using data::DatasetRequest;
using data::files::Index;

constexpr uint64_t kMaxSamples = 24;           // from the start, and the same number from the end
constexpr uint64_t kMaxSampleBytes = 1 << 20;  // limit for a sample of a small file
constexpr size_t kGuardBytes = 32;             // around each tensor
constexpr std::byte kGuard{0xa5};

bool check_error(const Status& status) {
  check_invariant(!status.message().empty(), "error without a message");
  check_invariant(status.message().find('\n') == std::string::npos,
                  "error message with a newline: " + status.message());
  const bool is_internal =
      status.code() == StatusCode::kInternal || status.code() == StatusCode::kOutOfMemory;
  check_invariant(!is_internal, "error not attributed to the file: " + status.to_string());
  return false;
}

Result<Index> build_index(const DatasetRequest& request,
                          const data::format::DatasetFormatOps& ops) {
  Index index;
  STOKER_ASSIGN_OR_RETURN(index.fingerprint_text, ops.fingerprint_text(request));
  STOKER_ASSIGN_OR_RETURN(index.files, ops.scan(request, {}));
  STOKER_ASSIGN_OR_RETURN(index.metadata, ops.build_metadata(request, index.files, {}));
  return index;
}

Result<std::unique_ptr<Dataset>> reopen(const DatasetRequest& request,
                                        const data::format::DatasetFormatOps& ops,
                                        const Index& index) {
  auto decoded = data::files::decode_index(data::files::encode_index(index), "index");
  check_invariant(decoded.ok(), "an index must survive a round trip");
  return ops.open(request, *std::move(decoded));
}

// One sample with guard bytes around each of its tensors.
struct SampleBytes {
  bool ok = false;
  std::vector<std::vector<std::byte>> tensors;
  bool operator==(const SampleBytes&) const = default;
};
SampleBytes read(const Dataset& dataset, uint64_t sample, const std::vector<TensorSpec>& specs) {
  SampleBytes read;
  std::vector<std::span<std::byte>> outputs;
  for (const TensorSpec& spec : specs)
    read.tensors.emplace_back(spec.bytes() + 2 * kGuardBytes, kGuard);
  for (auto& tensor : read.tensors)
    outputs.push_back(std::span(tensor).subspan(kGuardBytes, tensor.size() - 2 * kGuardBytes));
  const Status status = dataset.read(sample, {}, outputs);
  read.ok = status.ok() || check_error(status);
  for (const auto& tensor : read.tensors) {
    const auto intact = [](std::byte byte) { return byte == kGuard; };
    check_invariant(std::all_of(tensor.begin(), tensor.begin() + kGuardBytes, intact) &&
                        std::all_of(tensor.end() - kGuardBytes, tensor.end(), intact),
                    "write outside of a tensor");
  }
  if (!read.ok) read.tensors.clear();  // unspecified on error
  return read;
}

void check_label(const Dataset& dataset, const SampleBytes& sample) {
  for (size_t i = 0; i < dataset.spec().size(); ++i) {
    if (dataset.spec()[i].name != "label") continue;
    uint64_t label = 0;
    std::memcpy(&label, sample.tensors[i].data() + kGuardBytes, sizeof label);
    check_invariant(label < dataset.classes(), "label out of range");
  }
}

// A sample has the same bytes in a batch of the same length as in a batch of maximum length.
void check_length(const Dataset& dataset, uint64_t sample, const SampleBytes& padded) {
  if (dataset.max_length() == 0) return;
  const uint64_t length = dataset.length(sample);
  check_invariant(length >= 1 && length <= dataset.max_length(), "sample length out of range");
  const SampleBytes unpadded = read(dataset, sample, dataset.spec_of_length(length));
  check_invariant(unpadded.ok == padded.ok, "the result of a read must not depend on padding");
  if (!unpadded.ok) return;
  const auto& tensor = unpadded.tensors.front();
  check_invariant(std::equal(tensor.begin() + kGuardBytes, tensor.end() - kGuardBytes,
                             padded.tensors.front().begin() + kGuardBytes),
                  "padding must follow the sample");
}

bool check_sample(const Dataset& first, const Dataset& second, uint64_t sample) {
  const SampleBytes one = read(first, sample, first.spec());
  check_invariant(one == read(second, sample, second.spec()),
                  "repeated reads of a sample must be equal");
  data::files::MemoryBudget budget(kMaxSampleBytes);
  data::files::PrefetchedBytes bytes(budget);
  if (first.info().maybe_files != nullptr) first.info().maybe_files->prefetch(sample, bytes);
  {
    const data::files::PrefetchedBytes::Held held(&bytes);
    check_invariant(one == read(first, sample, first.spec()), "a prefetched sample must be equal");
  }
  check_invariant(first.source(sample).offset == second.source(sample).offset,
                  "both datasets must report the same source");
  if (one.ok) check_label(first, one);
  check_length(first, sample, one);
  return one.ok;
}

bool check_samples(const Dataset& first, const Dataset& second) {
  const uint64_t size = first.size();
  check_invariant(size >= 1 && size == second.size(), "empty dataset");
  check_invariant(first.spec() == second.spec() && !first.spec().empty(),
                  "samples without tensors");
  for (const TensorSpec& spec : first.spec())
    check_invariant(spec.elements() >= 1 && spec.bytes() <= kMaxSampleBytes,
                    "sample too large for its file: " + to_string(spec));
  bool any = false;
  for (uint64_t i = 0; i < std::min(size, kMaxSamples); ++i) {
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
  check_invariant(logs.ok(), "cannot start the log: " + logs.to_string());
}

void DatasetUnderTest::write(const std::string& name, std::string_view content) {
  // Avoids streams, because a fuzzer runs this about ten thousand times per second. Creates a new
  // file, because closing a truncated file waits for the disk on ext4.
  ::unlink(path(name).c_str());
  const UniqueFd fd(::open(path(name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  check_invariant(fd.valid() && ::write(fd.get(), content.data(), content.size()) ==
                                    static_cast<ssize_t>(content.size()),
                  "cannot write " + path(name));
}

bool DatasetUnderTest::check(const config::DatasetConfig& config) const {
  const std::string name = "train";
  const DatasetRequest request{.name = name, .config = config, .index_dir = folder_.path()};
  const data::format::DatasetFormatOps& ops = data::format::format_ops(config.format());
  auto index = build_index(request, ops);
  if (!index) return check_error(index.status());
  if (reads_once()) {
    const auto dataset = ops.open(request, *std::move(index));
    return dataset.ok() && read(**dataset, 0, (*dataset)->spec()).ok;
  }
  const auto second = reopen(request, ops, *index);
  const auto first = ops.open(request, *std::move(index));
  check_invariant(first.ok() == second.ok(), "a stored index must open like a new one");
  if (!first) return check_error(first.status());
  return check_samples(**first, **second);
}

}  // namespace stoker::fuzz
