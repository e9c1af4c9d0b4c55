// Format `tokens`: flat files of little-endian 16-bit or 32-bit token ids without a header, as
// tokenizers write them for training.
#include "shared/data/format/tokens_dataset.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "shared/data/dataset_files.h"
#include "shared/data/dataset_request.h"
#include "shared/data/file_kind.h"
#include "shared/data/files/file_reader.h"
#include "shared/data/files/scan.h"
#include "shared/data/format/byte_stream.h"
#include "shared/data/format/format.h"
#include "shared/data/format/token_values.h"
#include "shared/data/sample_range.h"

namespace stoker::data::format {
namespace {

uint64_t width_of(const config::TokensDataset& tokens) { return token_bytes(tokens.dtype); }

std::string dtype_text(const config::TokensDataset& tokens) {
  return width_of(tokens) == 2 ? "uint16" : "uint32";
}

class TokensDataset final : public Dataset, public SampleFiles {
 public:
  TokensDataset(std::string fingerprint, TokenStream tokens, SampleRange range, uint64_t block_size)
      : stream_(std::move(tokens.files), tokens.bytes),
        begin_(range.begin),
        block_size_(block_size),
        width_(tokens.width),
        info_{.size = (range.size() - 1) / block_size,
              .fingerprint = std::move(fingerprint),
              .spec = {token_block_spec(block_size + 1, width_)},
              .classes = tokens.classes,
              .shard_ends = stream_.shard_ends(position(0), block_size * width_,
                                               (range.size() - 1) / block_size),
              .maybe_files = this} {}

  const DatasetInfo& info() const override { return info_; }
  SampleSource source(uint64_t sample) const override { return stream_.source(position(sample)); }
  Status read(uint64_t sample, const RandomKey&,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size() && outputs.size() == 1 && outputs[0].size() == spec()[0].bytes());
    const std::span<std::byte> out = outputs[0];
    STOKER_RETURN_IF_ERROR(stream_.read(position(sample), out.last((block_size_ + 1) * width_)));
    widen_tokens_in_place(out, width_);
    return check_positive(sample, out);
  }
  void prefetch(uint64_t sample, files::PrefetchedBytes& bytes) const override {
    stream_.prefetch(position(sample), (block_size_ + 1) * width_, bytes);
  }

 private:
  uint64_t position(uint64_t sample) const { return (begin_ + sample * block_size_) * width_; }

  Status check_positive(uint64_t sample, std::span<const std::byte> out) const {
    const auto large = find_large_token(out, width_);
    if (!large) return {};
    const SampleSource where = stream_.source(position(sample) + 4 * large->index);
    return Status(StatusCode::kCorrupt, where.file + ": token " + std::to_string(large->token) +
                                            " at offset " + std::to_string(where.offset) +
                                            " is larger than 2147483647; is the dtype right?");
  }

  const ByteStream stream_;
  const uint64_t begin_;
  const uint64_t block_size_;
  const uint64_t width_;
  const DatasetInfo info_;
};

Result<std::string> tokens_fingerprint_text(const DatasetRequest& request) {
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, SplitFraction::of(request));
  STOKER_ASSIGN_OR_RETURN(const uint64_t block_size, block_size_of(request));
  return "format=tokens " + split.to_text() + " block_size=" + std::to_string(block_size) +
         " dtype=" + dtype_text(request.as<config::TokensDataset>());
}

Result<files::FileTable> scan_tokens(const DatasetRequest& request,
                                     const files::ScanProgress& progress) {
  return scan_source(request, "**/*.bin", progress);
}

constexpr size_t kFewTokens = 64;  // which tell nothing
constexpr size_t kFewIds = 16;

// Whether the numbers at the indices that leave `rest` when divided by `every` are all zero.
bool are_zero(std::span<const uint64_t> numbers, size_t every, size_t rest) {
  for (size_t i = rest; i < numbers.size(); i += every)
    if (numbers[i] != 0) return false;
  return true;
}

// Whether numbers of twice the width were read as two: the upper halves are those of small ids, and the lower ones
// are many. `upper`: the index of the upper half, 1 if they are little-endian.
bool are_halves(std::span<const uint64_t> numbers, size_t upper = 1) {
  constexpr uint64_t kMaxByte = 255, kMaxUpper = 3;  // vocabularies of up to 262,144
  std::set<uint64_t> lower;
  bool are_all_zero = true;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i % 2 != upper)
      lower.insert(numbers[i]);
    else if (numbers[i] > kMaxUpper)
      return false;
    else
      are_all_zero = are_all_zero && numbers[i] == 0;
  }
  return lower.size() >= kFewIds && (are_all_zero || *lower.rbegin() > kMaxByte);
}

std::vector<uint64_t> numbers_in(std::span<const std::byte> head, uint64_t width) {
  std::vector<uint64_t> numbers(head.size() / width);
  for (size_t i = 0; i < numbers.size(); ++i)
    std::memcpy(&numbers[i], head.data() + i * width, width);
  return numbers;
}

std::vector<uint64_t> with_other_byte_order(std::vector<uint64_t> numbers, uint64_t width) {
  for (uint64_t& number : numbers)
    number = width == 2 ? __builtin_bswap16(static_cast<uint16_t>(number))
                        : __builtin_bswap32(static_cast<uint32_t>(number));
  return numbers;
}

bool are_many(std::span<const uint64_t> numbers) {
  return std::set<uint64_t>(numbers.begin(), numbers.end()).size() >= kFewIds;
}

// Ids below 256 in two bytes, or below 2^24 in four, that are multiples of a power of 256 as they are.
bool are_big_endian(const std::vector<uint64_t>& numbers, uint64_t width) {
  const uint64_t limit = width == 2 ? 1 << 8 : 1 << 24;
  const auto swapped = with_other_byte_order(numbers, width);
  const auto is_small = [limit](uint64_t id) { return id < limit; };
  const auto large = std::ranges::count_if(numbers, [&](uint64_t id) { return !is_small(id); });
  return std::ranges::all_of(swapped, is_small) && are_many(swapped) &&
         2 * static_cast<size_t>(large) > numbers.size();
}

// Whether all are integers as a float32 can have them exactly.
bool are_floats(std::span<const std::byte> head) {
  constexpr float kMaxExact = 16777216;
  std::set<float> ids;
  for (const uint64_t bits : numbers_in(head, sizeof(float))) {
    const auto number = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!(number >= 0 && number < kMaxExact) || number != std::floor(number)) return false;
    ids.insert(number);
  }
  return ids.size() >= kFewIds;
}

// What the ids of a file seem to be instead of ids of `width` bytes; empty if they are plausible.
std::string other_type(std::span<const std::byte> head, uint64_t width) {
  constexpr uint64_t kMaxId = uint64_t{1} << 24;
  const std::vector<uint64_t> numbers = numbers_in(head, width);
  if (numbers.size() < kFewTokens) return {};
  if (are_floats(head)) return "float32";
  if (are_halves(numbers)) {
    if (width == 4 || (are_zero(numbers, 4, 2) && are_zero(numbers, 4, 3))) return "int64";
    return "uint32";
  }
  const bool is_of_other_width = width == 2 && are_halves(with_other_byte_order(numbers, width), 0);
  if (is_of_other_width || are_big_endian(numbers, width)) return "big-endian";
  const auto large = std::ranges::count_if(numbers, [](uint64_t id) { return id >= kMaxId; });
  return 2 * static_cast<size_t>(large) > numbers.size() ? "uint16" : "";
}

// Each file is raw ids of the configured width, as far as its first bytes tell.
Result<files::IndexMetadata> build_tokens_metadata(const DatasetRequest& request,
                                                   const files::FileTable& files,
                                                   const files::ScanProgress& progress) {
  constexpr size_t kHeadBytes = 16384;
  const auto& tokens = request.as<config::TokensDataset>();
  const files::FileReader reader(files);
  std::vector<std::byte> head;
  for (size_t file = 0; file < files.size(); ++file) {
    progress(file, "files checked", static_cast<double>(file) / static_cast<double>(files.size()));
    head.resize(std::min<uint64_t>(files.stamp(file).size, kHeadBytes));
    STOKER_RETURN_IF_ERROR(reader.read(file, 0, head).with_context(request.key("path")));
    const std::string where = request.key("path") + ": " + files.path(file);
    STOKER_RETURN_IF_ERROR(reject_other_kind(head, "a file of token ids").with_context(where));
    const std::string other = other_type(head, width_of(tokens));
    if (other.empty()) continue;
    const bool is_read = other == "uint16" || other == "uint32";
    return Status(StatusCode::kCorrupt,
                  where + ": its numbers are not plausible as " + dtype_text(tokens) +
                      ", but they are as " + other + "; " +
                      (is_read ? "set " + request.key("dtype")
                               : "write them as uint16 or uint32, with numpy's astype('<u2') or "
                                 "astype('<u4') and tofile()"));
  }
  return no_metadata(request, files, progress);
}

Result<std::unique_ptr<Dataset>> open_tokens(const DatasetRequest& request, files::Index index) {
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, SplitFraction::of(request));
  STOKER_ASSIGN_OR_RETURN(const uint64_t length, ByteStream::total_length(index.files));
  const auto& tokens = request.as<config::TokensDataset>();
  const uint64_t width = width_of(tokens);
  for (size_t file = 0; file < index.files.size(); ++file) {
    const uint64_t size = index.files.stamp(file).size;
    if (size % width != 0) {
      return Status(StatusCode::kCorrupt, request.key("path") + ": " + index.files.path(file) +
                                              ": " + std::to_string(size) +
                                              " bytes is not a whole number of " +
                                              dtype_text(tokens) + " tokens");
    }
  }
  const SampleRange range = split.of_count(length / width);
  STOKER_ASSIGN_OR_RETURN(const uint64_t block_size, block_size_of(request));
  if (range.size() < block_size + 1) return too_short(request, range.size(), "tokens");
  std::string fingerprint = index.fingerprint();
  return make_tokens_dataset(std::move(fingerprint), whole_files(std::move(index.files), width, 0),
                             range, block_size);
}

}  // namespace

TokenStream whole_files(files::FileTable files, uint64_t width, uint64_t classes) {
  TokenStream stream{.files = std::move(files), .width = width, .classes = classes};
  for (size_t file = 0; file < stream.files.size(); ++file)
    stream.bytes.push_back(stream.files.stamp(file).size);
  return stream;
}

std::unique_ptr<Dataset> make_tokens_dataset(std::string fingerprint, TokenStream tokens,
                                             SampleRange range, uint64_t block_size) {
  return std::make_unique<TokensDataset>(std::move(fingerprint), std::move(tokens), range,
                                         block_size);
}

const DatasetFormatOps& tokens_format() {
  static constexpr DatasetFormatOps kFormatOps{.name = "tokens",
                                               .fingerprint_text = tokens_fingerprint_text,
                                               .scan = scan_tokens,
                                               .build_metadata = build_tokens_metadata,
                                               .open = open_tokens,
                                               .has_rows = true};
  return kFormatOps;
}

}  // namespace stoker::data::format
