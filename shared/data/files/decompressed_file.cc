#include "shared/data/files/decompressed_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/base/number_format.h"
#include "shared/data/files/derived_file.h"

namespace stoker::data::files {
namespace {

constexpr size_t kInputBytes = size_t{1} << 18;
constexpr int kGzipBits = 15 + 16, kRawBits = -15;  // for inflateInit2(): the largest window

}  // namespace

struct Inflater::State {
  State(PackedInput input_given, Packed::Format format_given, std::string path_given,
        uint64_t offset_given)
      : input(std::move(input_given)),
        format(format_given),
        path(std::move(path_given)),
        offset(offset_given) {}
  ~State() {
    if (ready) inflateEnd(&stream);
  }

  Status corrupt(const std::string& what) const {
    const uint64_t at = offset + taken - stream.avail_in;
    return Status(StatusCode::kCorrupt, path + ": " + what + " at offset " + std::to_string(at));
  }

  Status refill() {
    if (stream.avail_in > 0 || input_ended) return {};
    buffer.resize(kInputBytes);
    STOKER_ASSIGN_OR_RETURN(const size_t got, input(buffer));
    input_ended = got == 0;
    taken += got;
    stream.next_in = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_in = static_cast<uInt>(got);
    return {};
  }

  // Called at the end of a stream: starts the next gzip member, if there is one.
  Status next_member() {
    STOKER_RETURN_IF_ERROR(refill());
    if (stream.avail_in == 0) return finished = true, Status();
    if (format == Packed::Format::kDeflate) return corrupt("bytes after the packed data");
    if (inflateReset(&stream) != Z_OK) return corrupt("cannot be unpacked further");
    return {};
  }

  // One call of zlib, which adds its bytes to `done`. At the end of a member, continues with the
  // next.
  Status step(std::span<std::byte> out, size_t& done) {
    STOKER_RETURN_IF_ERROR(refill());
    const size_t room = std::min<size_t>(out.size(), std::numeric_limits<uInt>::max());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream, Z_NO_FLUSH);
    done += room - stream.avail_out;
    if (result == Z_STREAM_END) return next_member();
    if (result == Z_MEM_ERROR) return Status(StatusCode::kOutOfMemory, path + ": unpacking");
    if (result == Z_BUF_ERROR && input_ended) return corrupt("the packed data is truncated");
    if (result == Z_OK || result == Z_BUF_ERROR) return {};
    const char* const why = stream.msg != nullptr ? stream.msg : "not packed data";
    return corrupt(std::string("corrupt (") + why + ")");
  }

  const PackedInput input;
  const Packed::Format format;
  const std::string path;
  const uint64_t offset;
  std::vector<std::byte> buffer;
  uint64_t taken = 0;  // bytes that were read into `buffer`
  bool input_ended = false;
  z_stream stream{};
  bool ready = false;
  bool finished = false;
  Status failure;  // that read_available() returns next
};

Inflater::Inflater(std::unique_ptr<State> state) : state_(std::move(state)) {}
Inflater::Inflater(Inflater&&) noexcept = default;
Inflater::~Inflater() = default;

Result<Inflater> Inflater::open(PackedInput input, Packed::Format format, std::string name,
                                uint64_t offset) {
  auto state = std::make_unique<State>(std::move(input), format, std::move(name), offset);
  const int bits = format == Packed::Format::kGzip ? kGzipBits : kRawBits;
  if (inflateInit2(&state->stream, bits) != Z_OK)
    return Status(StatusCode::kOutOfMemory, state->path + ": unpacking");
  state->ready = true;
  return Inflater(std::move(state));
}

Result<Inflater> Inflater::open(const FileReader& reader, const FileTable& files,
                                const Packed& packed) {
  PackedInput input = [&reader, packed,
                       taken = uint64_t{0}](std::span<std::byte> bytes) mutable -> Result<size_t> {
    const size_t count = std::min<uint64_t>(bytes.size(), packed.bytes - taken);
    if (count == 0) return size_t{0};
    STOKER_RETURN_IF_ERROR(reader.read(packed.file, packed.offset + taken, bytes.first(count)));
    taken += count;
    return count;
  };
  return open(std::move(input), packed.format, files.path(packed.file), packed.offset);
}

Result<size_t> Inflater::read(std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size() && !state_->finished)
    STOKER_RETURN_IF_ERROR(state_->step(out.subspan(done), done));
  return done;
}

Result<size_t> Inflater::read_available(std::span<std::byte> out) {
  size_t done = 0;
  while (done == 0 && !state_->finished && state_->failure.ok())
    state_->failure = state_->step(out, done);
  if (done == 0) STOKER_RETURN_IF_ERROR(state_->failure);
  return done;
}

namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;
// Deflate expands one byte to about 1032 bytes at most, so a larger declared size is invalid.
constexpr uint64_t kMaxRatio = 1040;

constexpr const char* kDecompressIt = "decompress it first (gunzip, numpy.savez)";

Status differs(const std::string& source, uint64_t declared, const std::string& found) {
  return Status(StatusCode::kCorrupt, source + ": declares " + std::to_string(declared) +
                                          " decompressed bytes, " + found);
}

// Writes the decompressed bytes to `fd`.
Status pour(Inflater& inflater, const DecompressOptions& options, const std::string& source, int fd,
            const std::string& path, const ScanProgress& progress) {
  std::vector<std::byte> chunk(kChunkBytes);
  uLong sum = ::crc32(0, nullptr, 0);
  for (uint64_t total = 0;;) {
    STOKER_ASSIGN_OR_RETURN(const size_t got, inflater.read(chunk));
    total += got;
    if (total > options.bytes) return differs(source, options.bytes, "but there are more");
    sum = ::crc32(sum, reinterpret_cast<const Bytef*>(chunk.data()), static_cast<uInt>(got));
    STOKER_RETURN_IF_ERROR(default_file_system().write(fd, std::span(chunk).first(got), path));
    progress(total >> 20, "MiB decompressed");
    if (got == chunk.size()) continue;
    if (total != options.bytes)
      return differs(source, options.bytes, "but there are " + std::to_string(total));
    if (options.crc32 && *options.crc32 != sum)
      return Status(StatusCode::kCorrupt, source + ": CRC-32 mismatch after decompression");
    return {};
  }
}

}  // namespace

Status decompress_file(const FileReader& reader, const FileTable& files,
                       const DecompressOptions& options, const std::string& path,
                       const ScanProgress& progress, FileTable& made) {
  const std::string source = files.path(options.from.file);
  if (options.bytes / kMaxRatio > options.from.bytes) {
    return differs(source, options.bytes,
                   "which " + std::to_string(options.from.bytes) + " packed bytes cannot hold");
  }
  if (made.total_bytes() + options.bytes > kFreeExpansionBytes &&
      options.bytes / kMaxExpansion > options.from.bytes) {
    return Status(StatusCode::kCorrupt, source + ": would take " + format_mib(options.bytes) +
                                            " decompressed, more than " +
                                            std::to_string(kMaxExpansion) + " times its " +
                                            std::to_string(options.from.bytes) +
                                            " bytes; if that is right, " + kDecompressIt);
  }
  STOKER_RETURN_IF_ERROR(check_free_space(path, options.bytes, source + " decompressed",
                                          std::string(kDecompressIt) + " on a larger disk"));
  STOKER_ASSIGN_OR_RETURN(Inflater inflater, Inflater::open(reader, files, options.from));
  STOKER_RETURN_IF_ERROR(write_derived_file(path, [&](int fd, const std::string& name) {
    return pour(inflater, options, source, fd, name, progress);
  }));
  STOKER_RETURN_IF_ERROR(scan_file(path, made));
  log_info("file decompressed", {{"path", source}, {"bytes", options.bytes}, {"output", path}});
  return {};
}

}  // namespace stoker::data::files
