#include "shared/data/stream/byte_input.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "shared/data/record/field_value.h"

namespace stoker::data::stream {

Status stopped_reading(std::string_view name) {
  return Status(StatusCode::kCancelled, "reading " + std::string(name) + " was stopped");
}

Result<size_t> ByteInput::read(std::span<std::byte> out, const std::stop_token& stop) {
  if (stop.stop_requested()) return stopped_reading(name_);
  waiting_.count_poll();
  return read_available(out, stop);
}

Result<uint64_t> ByteInput::skip(uint64_t count, const std::stop_token& stop) {
  constexpr uint64_t kChunk = uint64_t{1} << 20;
  std::vector<std::byte> chunk(std::min(count, kChunk));
  uint64_t skipped = 0;
  while (skipped < count) {
    const auto part = std::span(chunk).first(std::min<uint64_t>(count - skipped, chunk.size()));
    STOKER_ASSIGN_OR_RETURN(const size_t got, read(part, stop));
    if (got == 0) break;
    skipped += got;
  }
  return skipped;
}

Status ByteInput::check_identity(uint64_t offset, uint64_t saved) const {
  if (identity() == saved) return {};
  return Status(StatusCode::kCorrupt,
                name_ +
                    ": is not what was read before: it was replaced, or its bytes before offset " +
                    std::to_string(offset) + " have changed; restore it, or start a new run");
}

namespace {

class DescriptorInput final : public ByteInput {
 public:
  explicit DescriptorInput(std::shared_ptr<const InputDescriptor> descriptor,
                           std::optional<ByteHistory> maybe_history = std::nullopt,
                           uint64_t offset = 0)
      : ByteInput(descriptor->name),
        descriptor_(std::move(descriptor)),
        maybe_history_(maybe_history),
        at_(offset) {}

 private:
  Result<size_t> read_available(std::span<std::byte> out, const std::stop_token& stop) override {
    if (!maybe_history_) return read_descriptor(out, stop);
    const ByteHistory::Range known = maybe_history_->range();
    if (at_ < known.end) {
      out = out.first(std::min<uint64_t>(out.size(), known.end - at_));
      if (!maybe_history_->copy(at_, out))
        return Status(StatusCode::kInternal,
                      name() + ": offset " + std::to_string(at_) + " is not in the history");
      at_ += out.size();
      return out.size();
    }
    STOKER_ASSIGN_OR_RETURN(const size_t got, read_descriptor(out, stop));
    at_ += got;
    return got;
  }

  // As ::read().
  ssize_t read_and_append(std::span<std::byte> out) const {
    if (!maybe_history_) return ::read(descriptor_->fd.get(), out.data(), out.size());
    maybe_history_->set_reading(true);
    const ssize_t got = ::read(descriptor_->fd.get(), out.data(), out.size());
    const int error = errno;
    if (got > 0) maybe_history_->append(out.first(static_cast<size_t>(got)));
    maybe_history_->set_reading(false);
    errno = error;
    return got;
  }

  Result<size_t> read_descriptor(std::span<std::byte> out, const std::stop_token& stop) {
    const int fd = descriptor_->fd.get();
    while (!stop.stop_requested()) {
      // Without a wait, a FIFO without a writer would end immediately.
      if (!is_readable(fd) && !waiting_.wait(fd)) continue;
      const ssize_t got = read_and_append(out);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno == ECONNRESET)
        return Status(StatusCode::kIoError, name() +
                                                ": the producer closed the connection without "
                                                "reading what it was sent");
      if (errno != EINTR && errno != EAGAIN) return Status::from_errno(errno, "read " + name());
    }
    return stopped_reading(name());
  }

  const std::shared_ptr<const InputDescriptor> descriptor_;
  const std::optional<ByteHistory> maybe_history_;
  uint64_t at_;  // with a history
};

// "gen" of process 4711, or nothing. The size of the file is 0, as of all in /proc.
std::string process_name(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/comm";
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 64> name;
  const ssize_t size = fd.valid() ? ::read(fd.get(), name.data(), name.size()) : 0;
  if (size <= 0) return "";
  return std::string(record::trimmed(std::string_view(name.data(), static_cast<size_t>(size))));
}

}  // namespace

Result<SocketPeer> peer_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return Status::from_errno(errno, "SO_PEERCRED");
  const std::string name = process_name(peer.pid);
  return SocketPeer{
      .uid = peer.uid,
      .process = "process " + std::to_string(peer.pid) + (name.empty() ? "" : ", " + name)};
}

std::unique_ptr<ByteInput> make_descriptor_input(
    std::shared_ptr<const InputDescriptor> descriptor) {
  return std::make_unique<DescriptorInput>(std::move(descriptor));
}

std::unique_ptr<ByteInput> make_descriptor_input(InputDescriptor descriptor) {
  return make_descriptor_input(std::make_shared<const InputDescriptor>(std::move(descriptor)));
}

std::unique_ptr<ByteInput> make_recorded_input(std::shared_ptr<const InputDescriptor> descriptor,
                                               const ByteHistory& history, uint64_t offset) {
  return std::make_unique<DescriptorInput>(std::move(descriptor), history, offset);
}

Result<InputDescriptor> open_stdin() {
  UniqueFd fd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  if (!fd.valid()) return Status::from_errno(errno, "standard input");
  return InputDescriptor{.fd = std::move(fd), .name = "stdin"};
}

Result<InputDescriptor> open_fifo(const std::string& path) {
  // Without O_NONBLOCK, open() would wait for a writer.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd.valid()) return Status::from_errno(errno, "open " + path);
  return InputDescriptor{.fd = std::move(fd), .name = path};
}

}  // namespace stoker::data::stream
