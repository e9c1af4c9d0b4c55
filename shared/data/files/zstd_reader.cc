#include "shared/data/files/zstd_reader.h"

#include <zstd.h>
#include <zstd_errors.h>

#include <utility>
#include <vector>

namespace stoker::data::files {
namespace {

constexpr int kMaxWindowLog = 25;  // of levels up to 20

}  // namespace

struct ZstdReader::State {
  State(PackedInput input_given, std::string path_given)
      : input(std::move(input_given)), path(std::move(path_given)) {}
  ~State() { ZSTD_freeDStream(stream); }

  Status corrupt(const std::string& what) const {
    const uint64_t at = taken - (in.size - in.pos);
    return Status(StatusCode::kCorrupt, path + ": " + what + " at offset " + std::to_string(at));
  }

  Status refill() {
    if (in.pos < in.size || input_ended) return {};
    buffer.resize(ZSTD_DStreamInSize());
    STOKER_ASSIGN_OR_RETURN(const size_t got, input(buffer));
    input_ended = got == 0;
    taken += got;
    in = {.src = buffer.data(), .size = got, .pos = 0};
    return {};
  }

  // One call of zstd.
  Status step(ZSTD_outBuffer& out) {
    STOKER_RETURN_IF_ERROR(refill());
    const bool is_last_call = in.pos == in.size && input_ended;
    if (is_last_call && is_between_frames) return finished = true, Status();
    const size_t before = out.pos;
    const size_t result = ZSTD_decompressStream(stream, &out, &in);
    if (ZSTD_isError(result) != 0) {
      if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation)
        return Status(StatusCode::kOutOfMemory, path + ": unpacking");
      if (ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge)
        return corrupt("a window of more than " + std::to_string((1 << kMaxWindowLog) >> 20) +
                       " MiB (compress it without --long and --ultra)");
      return corrupt(std::string("corrupt (") + ZSTD_getErrorName(result) + ")");
    }
    is_between_frames = result == 0;
    if (is_last_call && !is_between_frames && out.pos == before)
      return corrupt("the packed data is truncated");
    return {};
  }

  const PackedInput input;
  const std::string path;
  std::vector<std::byte> buffer;
  ZSTD_inBuffer in{};
  uint64_t taken = 0;  // bytes that were read into `buffer`
  bool input_ended = false;
  bool is_between_frames = false;  // an empty file is truncated
  bool finished = false;
  Status failure;  // that read_available() returns next
  ZSTD_DStream* stream = nullptr;
};

ZstdReader::ZstdReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
ZstdReader::ZstdReader(ZstdReader&&) noexcept = default;
ZstdReader::~ZstdReader() = default;

Result<ZstdReader> ZstdReader::open(PackedInput input, std::string name) {
  auto state = std::make_unique<State>(std::move(input), std::move(name));
  state->stream = ZSTD_createDStream();
  if (state->stream == nullptr ||
      ZSTD_isError(ZSTD_DCtx_setParameter(state->stream, ZSTD_d_windowLogMax, kMaxWindowLog)) != 0)
    return Status(StatusCode::kOutOfMemory, state->path + ": unpacking");
  return ZstdReader(std::move(state));
}

size_t ZstdReader::held_bytes() const {
  return ZSTD_sizeof_DStream(state_->stream) + state_->buffer.capacity();
}

Result<size_t> ZstdReader::read_available(std::span<std::byte> out) {
  ZSTD_outBuffer filled{.dst = out.data(), .size = out.size(), .pos = 0};
  while (filled.pos == 0 && !state_->finished && state_->failure.ok())
    state_->failure = state_->step(filled);
  if (filled.pos == 0) STOKER_RETURN_IF_ERROR(state_->failure);
  return filled.pos;
}

}  // namespace stoker::data::files
