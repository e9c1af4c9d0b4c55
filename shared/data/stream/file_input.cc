// The inputs that are files.
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <initializer_list>
#include <utility>
#include <variant>

#include "shared/base/regular_file.h"
#include "shared/data/counter_rng.h"
#include "shared/data/files/decompressed_file.h"
#include "shared/data/files/file_table.h"
#include "shared/data/files/zstd_reader.h"
#include "shared/data/stream/byte_input.h"

namespace stoker::data::stream {
namespace {

Result<UniqueFd> open_regular(const std::string& path) {
  // O_NONBLOCK: if the file is a FIFO, open() must not wait for a writer.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd.valid()) return Status::from_errno(errno, "open " + path);
  STOKER_RETURN_IF_ERROR(regular_file(fd.get(), path).status());
  return fd;
}

Result<struct stat> stat_of(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Status::from_errno(errno, "stat " + path);
  return info;
}

Result<size_t> read_at(int fd, uint64_t offset, std::span<std::byte> out, const std::string& path) {
  for (;;) {
    const ssize_t got = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR)
      return Status::from_errno(errno, "read " + path + " at offset " + std::to_string(offset));
  }
}

// ---- ShardInput

class ShardInput final : public ByteInput {
 public:
  ShardInput(UniqueFd fd, const struct stat& info, std::string name)
      : ByteInput(std::move(name)), fd_(std::move(fd)), stamp_(files::stamp_of(info)) {}

  Result<uint64_t> skip(uint64_t count, const std::stop_token& /*stop*/) override {
    const uint64_t skipped = std::min(count, stamp_.size - at_);
    at_ += skipped;
    return skipped;
  }

  uint64_t identity() const override { return shard_identity(stamp_); }

 private:
  Result<size_t> read_available(std::span<std::byte> out,
                                const std::stop_token& /*stop*/) override {
    // Bytes that are appended meanwhile are not read; the check at the end reports them.
    const size_t wanted = std::min<uint64_t>(out.size(), stamp_.size - at_);
    if (wanted == 0) return check_unchanged();
    STOKER_ASSIGN_OR_RETURN(const size_t got, read_at(fd_.get(), at_, out.first(wanted), name()));
    if (got == 0)
      return Status(StatusCode::kCorrupt, name() + ": was truncated at offset " +
                                              std::to_string(at_) + " while it was read; it had " +
                                              std::to_string(stamp_.size) + " bytes");
    at_ += got;
    return got;
  }

  Result<size_t> check_unchanged() const {
    STOKER_ASSIGN_OR_RETURN(const struct stat info, stat_of(fd_.get(), name()));
    if (files::stamp_of(info) == stamp_) return size_t{0};
    return Status(StatusCode::kCorrupt,
                  name() +
                      ": changed while it was read; write a shard under another name and "
                      "rename it when it is complete");
  }

  const UniqueFd fd_;
  const files::FileStamp stamp_;
  uint64_t at_ = 0;
};

// ---- DecompressedInput

class DecompressedInput final : public ByteInput {
 public:
  explicit DecompressedInput(std::unique_ptr<ByteInput> packed)
      : ByteInput(packed->name()), packed_(std::move(packed)) {}

  Status open_gzip() {
    STOKER_ASSIGN_OR_RETURN(
        auto reader, files::Inflater::open(packed_bytes(), files::Packed::Format::kGzip, name()));
    reader_.emplace<files::Inflater>(std::move(reader));
    return {};
  }
  Status open_zstd() {
    STOKER_ASSIGN_OR_RETURN(auto reader, files::ZstdReader::open(packed_bytes(), name()));
    reader_.emplace<files::ZstdReader>(std::move(reader));
    return {};
  }

  uint64_t identity() const override { return packed_->identity(); }
  size_t held_bytes() const override { return held_bytes_.load(std::memory_order_relaxed); }

 private:
  Result<size_t> read_available(std::span<std::byte> out, const std::stop_token& stop) override {
    stop_ = stop;
    if (auto* const gzip = std::get_if<files::Inflater>(&reader_)) {
      held_bytes_.store(files::Inflater::kMemory, std::memory_order_relaxed);
      return gzip->read_available(out);
    }
    auto& zstd = std::get<files::ZstdReader>(reader_);
    const auto got = zstd.read_available(out);
    held_bytes_.store(zstd.held_bytes(), std::memory_order_relaxed);
    return got;
  }

  files::PackedInput packed_bytes() {
    return [this](std::span<std::byte> bytes) {
      waiting_.count_poll();  // much may be read before the first byte that is decompressed
      return packed_->read(bytes, stop_);
    };
  }

  const std::unique_ptr<ByteInput> packed_;
  std::stop_token stop_;  // of the read() in progress
  std::variant<std::monostate, files::Inflater, files::ZstdReader> reader_;
  std::atomic<size_t> held_bytes_{0};  // of reader_; no other data depends on it
};

bool has_suffix(const std::string& path, std::initializer_list<std::string_view> suffixes) {
  return std::ranges::any_of(suffixes,
                             [&path](std::string_view suffix) { return path.ends_with(suffix); });
}

}  // namespace

Result<std::unique_ptr<ByteInput>> open_shard(const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, open_regular(path));
  STOKER_ASSIGN_OR_RETURN(const struct stat info, stat_of(fd.get(), path));
  std::unique_ptr<ByteInput> shard = std::make_unique<ShardInput>(std::move(fd), info, path);
  const bool is_gzip = has_suffix(path, {".gz", ".tgz"});
  const bool is_zstd = has_suffix(path, {".zst", ".tzst"});
  if (!is_gzip && !is_zstd) return shard;
  auto unpacked = std::make_unique<DecompressedInput>(std::move(shard));
  STOKER_RETURN_IF_ERROR(is_gzip ? unpacked->open_gzip() : unpacked->open_zstd());
  return std::unique_ptr<ByteInput>(std::move(unpacked));
}

// Without the inode, so that a copied dataset is the same, as in FileTable::add_to(). Never 0, which is the identity of
// inputs that cannot be read again.
uint64_t shard_identity(const files::FileStamp& stamp) {
  uint64_t mixed = 0;
  for (const uint64_t part : {stamp.size, static_cast<uint64_t>(stamp.mtime_ns)})
    mixed = mix64(mixed + (part + 1) * kGolden64);
  return std::max<uint64_t>(mixed, 1);
}

}  // namespace stoker::data::stream
