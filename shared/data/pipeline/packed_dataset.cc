#include "shared/data/pipeline/packed_dataset.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdio>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "shared/base/hash.h"
#include "shared/base/log.h"
#include "shared/base/tensor_role.h"
#include "shared/data/record/sample_spec.h"

namespace stoker::data::pipeline {
namespace {

constexpr uint32_t kNoSample = std::numeric_limits<uint32_t>::max();
constexpr uint64_t kMaxDocuments = kNoSample;
constexpr uint32_t kMinLength = 2;  // a token and the one that it predicts

// The documents that are packed, from the longest to the shortest; those of one length in order.
std::vector<uint32_t> by_decreasing_length(std::span<const uint32_t> lengths, uint32_t max_length) {
  std::vector<uint64_t> next(max_length + 1);  // by length: index of the next document
  for (const uint32_t length : lengths)
    if (length >= kMinLength) ++next[length];
  uint64_t size = 0;
  for (uint32_t length = max_length; length >= kMinLength; --length)
    size += std::exchange(next[length], size);
  std::vector<uint32_t> documents(size);
  for (size_t document = 0; document < lengths.size(); ++document)
    if (lengths[document] >= kMinLength)
      documents[next[lengths[document]]++] = static_cast<uint32_t>(document);
  return documents;
}

// The sample of each document, or kNoSample.
std::vector<uint32_t> assign_samples(std::span<const uint32_t> lengths, uint32_t max_length,
                                     uint32_t& num_samples) {
  std::vector<uint32_t> samples(lengths.size(), kNoSample);
  std::map<uint32_t, std::vector<uint32_t>> by_space;  // the samples with this much space left
  num_samples = 0;
  for (const uint32_t document : by_decreasing_length(lengths, max_length)) {
    const uint32_t length = lengths[document];
    uint32_t space = max_length, sample = num_samples;
    if (const auto best = by_space.lower_bound(length); best != by_space.end()) {
      space = best->first;
      sample = best->second.back();
      best->second.pop_back();
      if (best->second.empty()) by_space.erase(best);
    } else {
      ++num_samples;
    }
    samples[document] = sample;
    if (space - length >= kMinLength) by_space[space - length].push_back(sample);
  }
  return samples;
}

}  // namespace

Packing pack(std::span<const uint32_t> lengths, uint32_t max_length) {
  uint32_t num_samples = 0;
  std::vector<uint32_t> samples = assign_samples(lengths, max_length, num_samples);
  std::vector<uint32_t> numbers(num_samples, kNoSample);  // in the order of the first documents
  Packing packing{.documents = {}, .ends = std::vector<uint64_t>(num_samples)};
  uint32_t next_number = 0;
  for (uint32_t& sample : samples) {
    if (sample == kNoSample) continue;
    if (numbers[sample] == kNoSample) numbers[sample] = next_number++;
    sample = numbers[sample];
    ++packing.ends[sample];
  }
  uint64_t begin = 0;
  for (uint64_t& end : packing.ends) begin += std::exchange(end, begin);
  packing.documents.resize(begin);
  for (size_t document = 0; document < samples.size(); ++document)
    if (samples[document] != kNoSample)
      packing.documents[packing.ends[samples[document]]++] = static_cast<uint32_t>(document);
  return packing;
}

namespace {

class PackedDataset final : public Dataset, public SampleFiles {
 public:
  PackedDataset(std::unique_ptr<Dataset> documents, Packing packing)
      : documents_(std::move(documents)),
        packing_(std::move(packing)),
        token_bytes_(documents_->spec()[0].bytes() / documents_->max_length()),
        info_{.size = packing_.ends.size(),
              .fingerprint = sha256_hex(documents_->fingerprint() + " packing"),
              .spec = packed_spec(documents_->spec()),
              .classes = documents_->classes(),
              .class_names = documents_->class_names(),
              .writable_fds = documents_->writable_fds(),
              .maybe_files = documents_->info().maybe_files == nullptr ? nullptr : this} {}

  const DatasetInfo& info() const override { return info_; }
  SampleSource source(uint64_t sample) const override {
    return documents_->source(packing_.documents_of(sample).front());
  }

  Status read(uint64_t sample, const RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size() && outputs.size() == info_.spec.size());
    // The tensors of a slot are aligned for their type (batch_layout.h).
    const std::span positions(reinterpret_cast<int32_t*>(outputs[1].data()),
                              outputs[1].size() / sizeof(int32_t));
    uint64_t filled = 0;
    for (const uint32_t document : packing_.documents_of(sample)) {
      const uint64_t length = documents_->length(document);
      int64_t length_read = 0;
      std::array<std::span<std::byte>, 3> of_document{
          outputs[0].subspan(filled * token_bytes_, length * token_bytes_),
          std::as_writable_bytes(std::span(&length_read, 1)),
          {}};
      if (has_labels())
        of_document[2] = outputs[2].subspan(filled * sizeof(int64_t), length * sizeof(int64_t));
      const RandomKey key{.seed = random_key.seed, .epoch = random_key.epoch, .sample = document};
      STOKER_RETURN_IF_ERROR(
          documents_->read(document, key, std::span(of_document).first(documents_->spec().size())));
      const std::span<int32_t> own = positions.subspan(filled, length);
      std::iota(own.begin(), own.end(), 0);
      filled += length;
    }
    record::fill_padding(outputs[0].subspan(filled * token_bytes_), false);
    record::fill_padding(outputs[1].subspan(filled * sizeof(int32_t)), false);
    if (has_labels()) record::fill_padding(outputs[2].subspan(filled * sizeof(int64_t)), true);
    return {};
  }
  void prefetch(uint64_t sample, files::PrefetchedBytes& bytes) const override {
    for (const uint32_t document : packing_.documents_of(sample))
      documents_->info().maybe_files->prefetch(document, bytes);
  }

 private:
  static std::vector<TensorSpec> packed_spec(std::vector<TensorSpec> spec) {
    spec[1] = {
        .name = tensor_name(TensorRole::kPositions), .dtype = DType::kI32, .shape = spec[0].shape};
    return spec;
  }
  bool has_labels() const { return info_.spec.size() > 2; }

  // Constant after construction.
  const std::unique_ptr<Dataset> documents_;
  const Packing packing_;
  const uint64_t token_bytes_;
  const DatasetInfo info_;
};

void log_packing(const std::string& name, std::span<const uint32_t> lengths, uint64_t max_length,
                 const Packing& packing) {
  uint64_t tokens = 0;
  for (const uint32_t document : packing.documents) tokens += lengths[document];
  const double places = static_cast<double>(max_length) * static_cast<double>(packing.ends.size());
  char padding[16];
  std::snprintf(padding, sizeof padding, "%.1f%%",
                100 * (1 - static_cast<double>(tokens) / places));
  log_info("sequences packed", {{"dataset", name},
                                {"documents", packing.documents.size()},
                                {"samples", packing.ends.size()},
                                {"padding", padding}});
}

}  // namespace

Result<std::unique_ptr<Dataset>> with_packing(const DatasetRequest& request,
                                              std::unique_ptr<Dataset> documents,
                                              LogsPacking logs) {
  const auto wrong = [&](const std::string& what) {
    return request.config_error("sequence.packing", what);
  };
  const std::vector<TensorSpec>& spec = documents->spec();
  const bool has_labels =
      spec.size() == 3 && role_of(spec[2]) == TensorRole::kLabels && spec[2].shape == spec[0].shape;
  if (documents->max_length() == 0 || role_of(spec[0]) != TensorRole::kTokens ||
      (spec.size() != 2 && !has_labels))
    return wrong("requires sequences of tokens, without labels or with one per token");
  if (documents->size() > kMaxDocuments)
    return wrong("has more than " + std::to_string(kMaxDocuments) + " documents; split them");
  std::vector<uint32_t> lengths(documents->size());
  for (size_t document = 0; document < lengths.size(); ++document)
    lengths[document] = static_cast<uint32_t>(documents->length(document));
  Packing packing = pack(lengths, static_cast<uint32_t>(documents->max_length()));
  if (packing.ends.empty()) return wrong("no document has at least two tokens");
  if (logs == LogsPacking::kYes)
    log_packing(request.name, lengths, documents->max_length(), packing);
  return std::unique_ptr<Dataset>(
      std::make_unique<PackedDataset>(std::move(documents), std::move(packing)));
}

}  // namespace stoker::data::pipeline
