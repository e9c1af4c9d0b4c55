// The inputs that are files.
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <initializer_list>
#include <utility>
#include <variant>
#include <vector>

#include "shared/base/hash.h"
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
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, "stat " + path);
  if (!S_ISREG(info.st_mode))
    return Status(StatusCode::kInvalidArgument, path + ": is not a regular file");
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

Status was_truncated(const std::string& name, uint64_t size, uint64_t position) {
  return Status(StatusCode::kCorrupt, name + ": was truncated: it has " + std::to_string(size) +
                                          " bytes, but " + std::to_string(position) +
                                          " were read before");
}

// Never 0, which is the identity of inputs that cannot be read again.
uint64_t mix_identity(std::initializer_list<uint64_t> parts) {
  uint64_t mixed = 0;
  for (const uint64_t part : parts) mixed = mix64(mixed + (part + 1) * kGolden64);
  return std::max<uint64_t>(mixed, 1);
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

  Result<uint64_t> identity(uint64_t /*offset*/) const override { return shard_identity(stamp_); }

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

  Result<uint64_t> identity(uint64_t /*offset*/) const override { return packed_->identity(0); }
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

// ---- GrowingFile

// Appended bytes are noticed by polling: inotify would need another system call in the sandbox, and is
// silent if another host of a network file system appends.
class GrowingFile final : public ByteInput {
 public:
  GrowingFile(UniqueFd fd, const struct stat& info, const std::string& path)
      : ByteInput(path), fd_(std::move(fd)), inode_(static_cast<uint64_t>(info.st_ino)) {}

  Result<uint64_t> skip(uint64_t count, const std::stop_token& stop) override {
    STOKER_ASSIGN_OR_RETURN(const struct stat info, stat_of(fd_.get(), name()));
    const auto size = static_cast<uint64_t>(info.st_size);
    const uint64_t present = std::min(count, size - std::min(size, at_));
    at_ += present;
    tail_.resize(std::min<uint64_t>(kTail, at_));
    STOKER_RETURN_IF_ERROR(read_exactly(fd_.get(), at_ - tail_.size(), tail_, name()));
    // What was not appended yet.
    STOKER_ASSIGN_OR_RETURN(const uint64_t rest, ByteInput::skip(count - present, stop));
    return present + rest;
  }

  Result<uint64_t> identity(uint64_t offset) const override {
    std::array<std::byte, kTail> bytes;
    const auto before = std::span(bytes).first(std::min<uint64_t>(kTail, offset));
    STOKER_ASSIGN_OR_RETURN(const size_t got,
                            read_at(fd_.get(), offset - before.size(), before, name()));
    if (got == before.size()) return mix_identity({inode_, crc32c(before)});
    STOKER_ASSIGN_OR_RETURN(const struct stat info, stat_of(fd_.get(), name()));
    return was_truncated(name(), static_cast<uint64_t>(info.st_size), offset);
  }

 private:
  enum class State { kGrowing, kRemoved, kRotated };
  static constexpr size_t kTail = 64;

  Result<size_t> read_available(std::span<std::byte> out, const std::stop_token& stop) override {
    for (;;) {
      STOKER_ASSIGN_OR_RETURN(const size_t got, read_at(fd_.get(), at_, out, name()));
      if (got > 0) return take(out.first(got));
      // The state is determined before the last bytes are read: afterwards no more are expected.
      const State state = find_state();
      STOKER_ASSIGN_OR_RETURN(const size_t last, read_at(fd_.get(), at_, out, name()));
      if (last > 0) return take(out.first(last));
      STOKER_RETURN_IF_ERROR(check_not_truncated());
      if (state == State::kRemoved) return size_t{0};
      if (state == State::kRotated)
        return Status(StatusCode::kCorrupt,
                      name() + ": was rotated after " + std::to_string(at_) +
                          " bytes: another file has its name, or it was renamed; a growing file "
                          "must keep its name (use spool for a sequence of files)");
      if (stop.stop_requested()) return stopped_reading(name());
      has_waited_ = true;
      waiting_.wait(-1);
    }
  }

  // Bytes at `at_` that were read.
  Result<size_t> take(std::span<const std::byte> bytes) {
    if (has_waited_) STOKER_RETURN_IF_ERROR(check_tail());
    has_waited_ = false;
    at_ += bytes.size();
    tail_.insert(tail_.end(), bytes.end() - static_cast<ptrdiff_t>(std::min(kTail, bytes.size())),
                 bytes.end());
    if (tail_.size() > kTail)
      tail_.erase(tail_.begin(), tail_.end() - static_cast<ptrdiff_t>(kTail));
    return bytes.size();
  }

  // A file that was truncated and has grown past `at_` again has other bytes before it.
  Status check_tail() const {
    std::array<std::byte, kTail> before;
    const auto tail = std::span(before).first(tail_.size());
    STOKER_ASSIGN_OR_RETURN(const size_t got, read_at(fd_.get(), at_ - tail_.size(), tail, name()));
    if (got == tail.size() && std::ranges::equal(tail, tail_)) return {};
    return Status(StatusCode::kCorrupt, name() + ": was overwritten: the bytes before offset " +
                                            std::to_string(at_) +
                                            " have changed since they were read");
  }

  Status check_not_truncated() const {
    STOKER_ASSIGN_OR_RETURN(const struct stat info, stat_of(fd_.get(), name()));
    const auto size = static_cast<uint64_t>(info.st_size);
    return size < at_ ? was_truncated(name(), size, at_) : Status();
  }

  State find_state() const {
    struct stat mine {
    }, named{};
    if (::fstat(fd_.get(), &mine) != 0) return State::kGrowing;  // reading reports the error
    if (::stat(name().c_str(), &named) != 0) {
      if (errno != ENOENT) return State::kGrowing;  // not knowable now, such as on a network
      return mine.st_nlink == 0 ? State::kRemoved : State::kRotated;
    }
    const bool is_same = mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
    return is_same ? State::kGrowing : State::kRotated;
  }

  const UniqueFd fd_;
  const uint64_t inode_;
  uint64_t at_ = 0;
  std::vector<std::byte> tail_;  // the last bytes before `at_`
  bool has_waited_ = false;      // since the last read
};

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

// Without the inode, so that a copied dataset is the same, as in FileTable::add_to().
uint64_t shard_identity(const files::FileStamp& stamp) {
  return mix_identity({stamp.size, static_cast<uint64_t>(stamp.mtime_ns)});
}

Result<std::unique_ptr<ByteInput>> open_growing_file(const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, open_regular(path));
  STOKER_ASSIGN_OR_RETURN(const struct stat info, stat_of(fd.get(), path));
  return std::unique_ptr<ByteInput>(std::make_unique<GrowingFile>(std::move(fd), info, path));
}

}  // namespace stoker::data::stream
