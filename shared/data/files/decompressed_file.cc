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
#include "shared/data/files/derived_file.h"

namespace stoker::data::files {
namespace {

constexpr size_t kInputBytes = size_t{1} << 18;
constexpr int kGzipBits = 15 + 16, kRawBits = -15;  // for inflateInit2(): the largest window

}  // namespace

struct Inflater::State {
  State(const FileReader& reader_given, std::string path_given, const Packed& packed_given)
      : reader(reader_given), path(std::move(path_given)), packed(packed_given) {}
  ~State() {
    if (ready) inflateEnd(&stream);
  }

  Status corrupt(const std::string& what) const {
    const uint64_t at = packed.offset + taken - stream.avail_in;
    return Status(StatusCode::kCorrupt, path + ": " + what + " at offset " + std::to_string(at));
  }

  bool input_left() const { return stream.avail_in > 0 || taken < packed.bytes; }

  Status refill() {
    if (stream.avail_in > 0 || taken == packed.bytes) return {};
    input.resize(std::min<uint64_t>(kInputBytes, packed.bytes - taken));
    STOKER_RETURN_IF_ERROR(reader.read(packed.file, packed.offset + taken, input));
    taken += input.size();
    stream.next_in = reinterpret_cast<Bytef*>(input.data());
    stream.avail_in = static_cast<uInt>(input.size());
    return {};
  }

  // Called at the end of a stream: starts the next gzip member, if there is one.
  Status next_member() {
    if (!input_left()) return finished = true, Status();
    if (packed.format == Packed::Format::kDeflate) return corrupt("bytes after the packed data");
    if (inflateReset(&stream) != Z_OK) return corrupt("cannot be unpacked further");
    return {};
  }

  // One call of zlib. At the end of a member, continues with the next.
  Status step() {
    STOKER_RETURN_IF_ERROR(refill());
    if (stream.avail_in == 0) return corrupt("the packed data is truncated");
    const int result = inflate(&stream, Z_NO_FLUSH);
    if (result == Z_STREAM_END) return next_member();
    if (result == Z_MEM_ERROR) return Status(StatusCode::kOutOfMemory, path + ": unpacking");
    if (result == Z_OK || result == Z_BUF_ERROR) return {};
    const char* const why = stream.msg != nullptr ? stream.msg : "not packed data";
    return corrupt(std::string("corrupt (") + why + ")");
  }

  const FileReader& reader;
  const std::string path;
  const Packed packed;
  std::vector<std::byte> input;
  uint64_t taken = 0;  // bytes of the compressed range that were read into `input`
  z_stream stream{};
  bool ready = false;
  bool finished = false;
};

Inflater::Inflater(std::unique_ptr<State> state) : state_(std::move(state)) {}
Inflater::Inflater(Inflater&&) noexcept = default;
Inflater::~Inflater() = default;

Result<Inflater> Inflater::open(const FileReader& reader, const FileTable& files,
                                const Packed& packed) {
  auto state = std::make_unique<State>(reader, files.path(packed.file), packed);
  const int bits = packed.format == Packed::Format::kGzip ? kGzipBits : kRawBits;
  if (inflateInit2(&state->stream, bits) != Z_OK)
    return Status(StatusCode::kOutOfMemory, state->path + ": unpacking");
  state->ready = true;
  return Inflater(std::move(state));
}

Result<size_t> Inflater::read(std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size() && !state_->finished) {
    const size_t room = std::min<size_t>(out.size() - done, std::numeric_limits<uInt>::max());
    state_->stream.next_out = reinterpret_cast<Bytef*>(out.data() + done);
    state_->stream.avail_out = static_cast<uInt>(room);
    STOKER_RETURN_IF_ERROR(state_->step());
    done += room - state_->stream.avail_out;
  }
  return done;
}

namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;
// Deflate expands one byte to about 1032 bytes at most, so a larger declared size is invalid.
constexpr uint64_t kMaxRatio = 1040;

Status differs(const std::string& source, uint64_t promised, const std::string& found) {
  return Status(StatusCode::kCorrupt,
                source + ": declares " + std::to_string(promised) + " unpacked bytes, " + found);
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
    progress(total >> 20, "MiB unpacked");
    if (got == chunk.size()) continue;
    if (total != options.bytes)
      return differs(source, options.bytes, "but there are " + std::to_string(total));
    if (options.crc32 && *options.crc32 != sum)
      return Status(StatusCode::kCorrupt,
                    source + ": its unpacked bytes have another CRC-32 than it says");
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
  STOKER_ASSIGN_OR_RETURN(Inflater inflater, Inflater::open(reader, files, options.from));
  STOKER_RETURN_IF_ERROR(write_derived_file(path, [&](int fd, const std::string& name) {
    return pour(inflater, options, source, fd, name, progress);
  }));
  STOKER_RETURN_IF_ERROR(scan_file(path, made));
  log_info("file decompressed", {{"path", source}, {"bytes", options.bytes}, {"output", path}});
  return {};
}

}  // namespace stoker::data::files
