#include "shared/data/dataset_request.h"

namespace stoker::data {
namespace {

constexpr int64_t kMaxBlockSize = int64_t{1} << 30;

}  // namespace

Result<uint64_t> block_size_of(const DatasetRequest& request) {
  const config::SequenceConfig* const sequence = request.config.sequence();
  const int64_t block_size = sequence == nullptr ? 0 : sequence->block_size.value_or(0);
  if (block_size >= 1 && block_size <= kMaxBlockSize) return static_cast<uint64_t>(block_size);
  return request.config_error(
      "sequence.block_size",
      std::to_string(block_size) + " is not between 1 and " + std::to_string(kMaxBlockSize));
}

uint64_t token_bytes(config::TokenType type) {
  switch (type) {
    case config::TokenType::kUint16:
      return 2;
    case config::TokenType::kUint32:
      return 4;
  }
  return 2;
}

Status too_short(const DatasetRequest& request, uint64_t length, std::string_view units) {
  const int64_t block_size = request.config.sequence()->block_size.value_or(0);
  return request.config_error(
      "path", request.config.path() + ": the part that data." + request.name + ".split takes has " +
                  std::to_string(length) + ' ' + std::string(units) +
                  "; one sample needs block_size + 1 = " + std::to_string(block_size + 1));
}

}  // namespace stoker::data
