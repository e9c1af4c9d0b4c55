#include "shared/dataset/token_blocks.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "shared/dataset/source.h"
#include "shared/dataset/split_fraction.h"

namespace stoker::dataset {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 62;  // of all texts

class TokenBlocks final : public Dataset {
 public:
  // `ends`: of each text with the byte after it, in the stream.
  TokenBlocks(std::string fingerprint, std::unique_ptr<RecordReader> records,
              std::vector<uint64_t> ends, SampleRange range, uint64_t context)
      : fingerprint_(std::move(fingerprint)),
        records_(std::move(records)),
        ends_(std::move(ends)),
        begin_(range.begin),
        context_(context),
        size_((range.size() - 1) / context),
        spec_{
            {.name = "tokens", .dtype = DType::kU8, .shape = {static_cast<int64_t>(context + 1)}}} {
  }

  uint64_t size() const override { return size_; }
  const std::vector<TensorSpec>& spec() const override { return spec_; }
  uint64_t classes() const override { return 256; }
  const std::string& fingerprint() const override { return fingerprint_; }
  SampleSource source(uint64_t sample) const override {
    return records_->source(text_at(begin_ + sample * context_));
  }

  Status read(uint64_t sample, const RandomKey&,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size_ && outputs.size() == 1 && outputs[0].size() == context_ + 1);
    std::span<std::byte> rest = outputs[0];
    uint64_t position = begin_ + sample * context_;
    for (uint64_t text = text_at(position); !rest.empty(); ++text) {
      const uint64_t from = position - (text == 0 ? 0 : ends_[text - 1]);
      const uint64_t left = ends_[text] - 1 - position;  // of the text itself
      const std::span<std::byte> taken = rest.first(std::min<uint64_t>(left, rest.size()));
      if (!taken.empty()) STOKER_RETURN_IF_ERROR(records_->read_text(text, from, taken));
      rest = rest.subspan(taken.size());
      if (rest.empty()) break;
      rest[0] = std::byte{0};
      rest = rest.subspan(1);
      position = ends_[text];
    }
    return {};
  }
  void prefetch(uint64_t sample, PrefetchedBytes& bytes) const override {
    uint64_t rest = context_ + 1;
    uint64_t position = begin_ + sample * context_;
    for (uint64_t text = text_at(position); rest > 0; ++text) {
      const uint64_t from = position - (text == 0 ? 0 : ends_[text - 1]);
      const uint64_t taken = std::min(ends_[text] - 1 - position, rest);
      if (taken > 0) records_->prefetch_text(text, from, taken, bytes);
      rest -= std::min(rest, taken + 1);
      position = ends_[text];
    }
  }

 private:
  uint64_t text_at(uint64_t position) const {
    return static_cast<uint64_t>(std::ranges::upper_bound(ends_, position) - ends_.begin());
  }

  const std::string fingerprint_;
  const std::unique_ptr<RecordReader> records_;
  const std::vector<uint64_t> ends_;
  const uint64_t begin_;
  const uint64_t context_;
  const uint64_t size_;
  const std::vector<TensorSpec> spec_;
};

}  // namespace

Result<std::unique_ptr<Dataset>> make_token_blocks(const DatasetRequest& request,
                                                   std::string fingerprint,
                                                   std::unique_ptr<RecordReader> records) {
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, SplitFraction::of(request));
  std::vector<uint64_t> ends(records->table().size());
  uint64_t length = 0;
  for (uint64_t record = 0; record < ends.size(); ++record) {
    const uint64_t bytes = records->text_bytes(record);
    if (bytes >= kMaxBytes - length)
      return Status(StatusCode::kCorrupt,
                    request.key("path") + ": its texts are too long together");
    ends[record] = length += bytes + 1;
  }
  const SampleRange range = split.of_count(length);
  STOKER_ASSIGN_OR_RETURN(const uint64_t context, context_of(request));
  if (range.size() < context + 1) return too_short(request, range.size(), "bytes");
  return std::unique_ptr<Dataset>(std::make_unique<TokenBlocks>(
      std::move(fingerprint), std::move(records), std::move(ends), range, context));
}

}  // namespace stoker::dataset
