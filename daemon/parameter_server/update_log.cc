#include "daemon/parameter_server/update_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <span>
#include <type_traits>
#include <utility>

#include "shared/base/hash.h"
#include "shared/base/log.h"

namespace stoker::parameter_server {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::array<char, 8> kMagic{'S', 'T', 'K', 'U', 'P', 'D', 'A', 'T'};
constexpr uint32_t kFormat = 1;
constexpr uint32_t kMaxServers = 1 << 16;
constexpr uint64_t kMaxBytes = uint64_t{1} << 36;
constexpr size_t kDigestBytes = 64;

// At the start of the file.
struct LogHeader {
  std::array<char, 8> magic;
  uint32_t format;
  uint32_t server;
  uint32_t num_servers;
  uint32_t placement;  // 0: round_robin, 1: bytes
  uint64_t first_step;
  std::array<char, kDigestBytes> config_digest, data_fingerprint, model_digest;  // padded with 0
  uint64_t start_id;
  uint32_t reserved;  // 0
  uint32_t crc32c;    // of the bytes before
};
static_assert(std::is_trivially_copyable_v<LogHeader>);
static_assert(sizeof(LogHeader) == 240 && offsetof(LogHeader, crc32c) == 236);

// A record: ticket (u64), the read steps of all servers (u64 each), worker (u32), and the CRC-32C of the
// step of the record (u64) and these.
size_t record_bytes(uint32_t num_servers) { return 16 + 8 * size_t{num_servers}; }

uint32_t checksum(uint64_t step, std::span<const std::byte> fields) {
  return crc32c(fields, crc32c(std::as_bytes(std::span(&step, 1))));
}

template <class T>
void put(std::vector<std::byte>& bytes, const T& value) {
  const auto added = std::as_bytes(std::span(&value, 1));
  bytes.insert(bytes.end(), added.begin(), added.end());
}

template <class T>
T take(std::span<const std::byte>& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes = bytes.subspan(sizeof(T));
  return value;
}

std::array<char, kDigestBytes> padded(const std::string& text) {
  assert(text.size() <= kDigestBytes);
  std::array<char, kDigestBytes> bytes{};
  std::ranges::copy(text.substr(0, kDigestBytes), bytes.begin());
  return bytes;
}

std::string unpadded(const std::array<char, kDigestBytes>& bytes) {
  return {bytes.begin(), std::ranges::find(bytes, '\0')};
}

uint32_t checksum(const LogHeader& header) {
  return crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(LogHeader, crc32c)));
}

LogHeader make_header(const UpdateLogIdentity& identity, uint64_t first_step) {
  LogHeader header{.magic = kMagic,
                   .format = kFormat,
                   .server = identity.server,
                   .num_servers = identity.num_servers,
                   .placement = identity.placement == config::VariablePlacement::kBytes ? 1U : 0U,
                   .first_step = first_step,
                   .config_digest = padded(identity.config_digest),
                   .data_fingerprint = padded(identity.data_fingerprint),
                   .model_digest = padded(identity.model_digest),
                   .start_id = identity.start_id,
                   .reserved = 0,
                   .crc32c = 0};
  header.crc32c = checksum(header);
  return header;
}

UpdateLogIdentity identity_of(const LogHeader& header) {
  return {.start_id = header.start_id,
          .server = header.server,
          .num_servers = header.num_servers,
          .placement = header.placement == 1 ? config::VariablePlacement::kBytes
                                             : config::VariablePlacement::kRoundRobin,
          .config_digest = unpadded(header.config_digest),
          .data_fingerprint = unpadded(header.data_fingerprint),
          .model_digest = unpadded(header.model_digest)};
}

// Of the bytes at the start of the file.
Result<LogHeader> parse_header(std::span<const std::byte> bytes, const std::string& path) {
  LogHeader header{};
  if (bytes.size() >= sizeof(header)) std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kMagic) return Status(StatusCode::kCorrupt, path + ": is not an update log");
  if (header.format != kFormat)
    return Status(StatusCode::kCorrupt, path + ": has format " + std::to_string(header.format) +
                                            "; this version reads format " +
                                            std::to_string(kFormat));
  const bool is_valid = header.crc32c == checksum(header) && header.num_servers > 0 &&
                        header.num_servers <= kMaxServers && header.placement <= 1;
  if (!is_valid) return Status(StatusCode::kCorrupt, path + ": the header is corrupt");
  return header;
}

Result<LogHeader> read_header(int fd, const std::string& path) {
  std::array<std::byte, sizeof(LogHeader)> bytes{};
  STOKER_ASSIGN_OR_RETURN(const size_t size, default_file_system().read_at(fd, 0, bytes, path));
  return parse_header(std::span(bytes).first(size), path);
}

std::string_view bytes_of(const LogHeader& header) {
  return {reinterpret_cast<const char*>(&header), sizeof(header)};
}

bool is_same_run(UpdateLogIdentity one, const UpdateLogIdentity& other) {
  one.start_id = other.start_id;
  return one == other;
}

std::string replayed_log_path(const std::string& directory, uint32_t server) {
  return join_path(directory, "replayed-" + std::to_string(server) + ".log");
}

Status remove_logs_from(FileSystem& files, const std::string& directory, uint32_t first,
                        std::string (*path_of)(const std::string&, uint32_t)) {
  for (uint32_t i = first;; ++i) {
    const Status removed = files.remove_file(path_of(directory, i));
    if (removed.code() == StatusCode::kNotFound) return {};
    STOKER_RETURN_IF_ERROR(removed);
  }
}

Result<uint64_t> size_of(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Status::from_errno(errno, "stat " + path);
  return static_cast<uint64_t>(info.st_size);
}

uint64_t offset_of(const LogHeader& header, uint64_t step) {
  return sizeof(LogHeader) + (step - header.first_step) * record_bytes(header.num_servers);
}

// Whether `record` is of the update to `step`.
bool is_valid_record(std::span<const std::byte> record, uint64_t step) {
  const auto fields = record.first(record.size() - sizeof(uint32_t));
  auto end = record.subspan(fields.size());
  return take<uint32_t>(end) == checksum(step, fields);
}

// Whether the log has the updates up to `step`: at least the record before is valid.
bool can_continue(int fd, const std::string& path, const LogHeader& header, uint64_t bytes,
                  uint64_t step) {
  if (step < header.first_step || bytes < sizeof(LogHeader)) return false;
  const uint64_t records = (bytes - sizeof(LogHeader)) / record_bytes(header.num_servers);
  if (step - header.first_step > records) return false;
  if (step == header.first_step) return true;
  std::vector<std::byte> last(record_bytes(header.num_servers));
  return read_exactly(fd, offset_of(header, step - 1), last, path).ok() &&
         is_valid_record(last, step);
}

Status cut(int fd, const std::string& path, const LogHeader& header, uint64_t step) {
  if (::ftruncate(fd, static_cast<off_t>(offset_of(header, step))) != 0)
    return Status::from_errno(errno, "truncate " + path);
  return {};
}

// Whether a replay would miss updates before `step` without the log, which can have any if its header cannot be
// read.
bool has_updates_before(const Result<LogHeader>& header, uint64_t bytes, uint64_t step) {
  if (!header.ok()) return step > 0 && bytes > sizeof(LogHeader);
  return header->first_step < step && bytes >= offset_of(*header, header->first_step + 1);
}

// Reports what is lost.
Status remove_log(FileSystem& files, const std::string& path, const Result<LogHeader>& header,
                  uint64_t bytes, uint64_t step, const std::string& reason) {
  const Status removed = files.remove_file(path);
  if (removed.code() == StatusCode::kNotFound) return {};
  STOKER_RETURN_IF_ERROR(removed);
  if (has_updates_before(header, bytes, step))
    log_warn("update log removed", {{"path", path}, {"step", step}, {"reason", reason}});
  return files.sync_directory(std::filesystem::path(path).parent_path().string());
}

// It could not be opened or cut: its updates after `step` are no longer those of the run.
Status remove_unusable(FileSystem& files, const std::string& path, uint64_t step,
                       const Status& reason) {
  struct stat info {};
  const bool is_file = ::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
  const auto bytes = is_file ? static_cast<uint64_t>(info.st_size) : 0;
  return remove_log(files, path, reason, bytes, step, reason.message());
}

std::string difference_of(const UpdateLogIdentity& log, const UpdateLogIdentity& run) {
  const auto of_another = [](const char* what) { return std::string("it is of another ") + what; };
  if (log.num_servers != run.num_servers) return of_another("number of parameter servers");
  if (log.placement != run.placement) return of_another("placement of the variables");
  if (log.config_digest != run.config_digest) return of_another("configuration");
  if (log.data_fingerprint != run.data_fingerprint) return of_another("dataset");
  if (log.model_digest != run.model_digest) return of_another("model");
  return of_another("parameter server");
}

// Ends the log at `step`. Removes one that begins there or later, or does not lead to the state of this step.
Status cut_log(FileSystem& files, const std::string& path, uint64_t step, bool leads_here) {
  STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, files.open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK));
  const auto header = read_header(fd.get(), path);
  if (!header.ok()) return {};
  STOKER_ASSIGN_OR_RETURN(const uint64_t bytes, size_of(fd.get(), path));
  if (!leads_here || header->first_step >= step)
    return remove_log(files, path, header, bytes, step,
                      "these updates do not lead to the checkpoint");
  if (bytes <= offset_of(*header, step)) return {};
  STOKER_RETURN_IF_ERROR(cut(fd.get(), path, *header, step));
  return files.sync(fd.get(), path);
}

}  // namespace

void LoggedUpdates::reserve(size_t num_updates, size_t num_servers) {
  tickets_.reserve(num_updates);
  workers_.reserve(num_updates);
  read_steps_.reserve(num_updates * num_servers);
}

void LoggedUpdates::shrink_to_fit() {
  tickets_.shrink_to_fit();
  workers_.shrink_to_fit();
  read_steps_.shrink_to_fit();
}

void LoggedUpdates::push_back(uint64_t ticket, uint32_t worker,
                              std::span<const uint64_t> read_steps) {
  assert(size() == 0 || read_steps.size() == num_servers_);
  num_servers_ = read_steps.size();
  tickets_.push_back(ticket);
  workers_.push_back(worker);
  read_steps_.insert(read_steps_.end(), read_steps.begin(), read_steps.end());
}

std::string update_log_path(const std::string& directory, uint32_t server) {
  return join_path(directory, "ps-" + std::to_string(server) + ".log");
}

Result<UpdateLog> UpdateLog::open(FileSystem& files, const std::string& path,
                                  const UpdateLogIdentity& identity, uint64_t step) {
  auto log = open_at(files, path, identity, step);
  if (!log.ok()) (void)remove_unusable(files, path, step, log.status());
  return log;
}

Result<UpdateLog> UpdateLog::open_at(FileSystem& files, const std::string& path,
                                     const UpdateLogIdentity& identity, uint64_t step) {
  const std::string directory = std::filesystem::path(path).parent_path().string();
  STOKER_RETURN_IF_ERROR(make_directories(files, directory));
  if (identity.server == 0) {
    STOKER_RETURN_IF_ERROR(
        remove_logs_from(files, directory, identity.num_servers, update_log_path));
    STOKER_RETURN_IF_ERROR(remove_logs_from(files, directory, 0, replayed_log_path));
  }
  const auto fd = files.open(path, O_RDWR | O_NOFOLLOW);
  if (fd.ok()) {
    STOKER_ASSIGN_OR_RETURN(const uint64_t bytes, size_of(fd->get(), path));
    const auto header = read_header(fd->get(), path);
    const bool is_same = header.ok() && is_same_run(identity_of(*header), identity);
    if (is_same && can_continue(fd->get(), path, *header, bytes, step)) {
      STOKER_RETURN_IF_ERROR(cut(fd->get(), path, *header, step));
      const LogHeader next = make_header(identity, header->first_step);
      STOKER_RETURN_IF_ERROR(files.write(fd->get(), std::as_bytes(std::span(&next, 1)), path));
      return open_to_append(files, path, step);
    }
    const std::string reason = !header.ok() ? header.status().message()
                               : is_same    ? "it does not have the updates up to this step"
                                            : difference_of(identity_of(*header), identity);
    STOKER_RETURN_IF_ERROR(remove_log(files, path, header, bytes, step, reason));
  } else if (fd.status().code() != StatusCode::kNotFound) {
    return fd.status();
  }
  STOKER_RETURN_IF_ERROR(write_file_atomically(files, path, bytes_of(make_header(identity, step))));
  return open_to_append(files, path, step);
}

Result<UpdateLog> UpdateLog::open_to_append(FileSystem& files, const std::string& path,
                                            uint64_t step) {
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, files.open(path, O_WRONLY | O_APPEND | O_NOFOLLOW));
  return UpdateLog(files, path, std::move(fd), step);
}

Status UpdateLog::append(const LoggedUpdate& update) {
  std::vector<std::byte> record;
  put(record, update.ticket);
  for (const uint64_t step : update.read_steps) put(record, step);
  put(record, update.worker);
  put(record, checksum(++step_, record));
  return files_->write(fd_.get(), record, path_);
}

Status UpdateLog::sync() const { return files_->sync(fd_.get(), path_); }

Status remove_update_log(FileSystem& files, const std::string& path) {
  const Status removed = files.remove_file(path);
  if (removed.code() == StatusCode::kNotFound) return {};
  STOKER_RETURN_IF_ERROR(removed);
  return files.sync_directory(std::filesystem::path(path).parent_path().string());
}

Status cut_update_logs(FileSystem& files, const std::string& directory, uint64_t step,
                       bool leads_here) {
  const auto names = list_directory(directory);
  if (names.status().code() == StatusCode::kNotFound) return {};
  if (!names.ok()) return names.status();
  STOKER_RETURN_IF_ERROR(remove_logs_from(files, directory, 0, replayed_log_path));
  for (const std::string& name : *names) {
    if (!name.starts_with("ps-") || !name.ends_with(".log")) continue;
    const std::string path = join_path(directory, name);
    if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(path))) continue;
    if (const Status cut = cut_log(files, path, step, leads_here); !cut.ok())
      STOKER_RETURN_IF_ERROR(remove_unusable(files, path, step, cut));
  }
  return files.sync_directory(directory);
}

Result<ReadUpdateLog> read_update_log(const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxBytes));
  const auto bytes = std::as_bytes(std::span(text));
  STOKER_ASSIGN_OR_RETURN(const LogHeader header, parse_header(bytes, path));
  ReadUpdateLog log{
      .identity = identity_of(header), .first_step = header.first_step, .updates = {}};
  auto rest = bytes.subspan(sizeof(header));
  const size_t size = record_bytes(header.num_servers);
  log.updates.reserve(rest.size() / size, header.num_servers);
  std::vector<uint64_t> read_steps(header.num_servers);
  for (uint64_t step = header.first_step + 1; rest.size() >= size; ++step) {
    if (!is_valid_record(rest.first(size), step)) {
      const std::string offset = std::to_string(offset_of(header, step - 1));
      return Status(StatusCode::kCorrupt, path + ": the record of step " + std::to_string(step) +
                                              ", at offset " + offset +
                                              ", is corrupt; `truncate -s " + offset +
                                              "` keeps those before it");
    }
    auto record = rest.first(size);
    const auto ticket = take<uint64_t>(record);
    for (uint64_t& read : read_steps) read = take<uint64_t>(record);
    log.updates.push_back(ticket, take<uint32_t>(record), read_steps);
    rest = rest.subspan(size);
  }
  return log;
}

Status copy_replayed_logs(FileSystem& files, const std::string& replayed,
                          const std::string& directory, uint32_t num_servers) {
  STOKER_RETURN_IF_ERROR(make_directories(files, directory));
  for (uint32_t i = 0; i < num_servers; ++i) {
    STOKER_ASSIGN_OR_RETURN(const std::string text,
                            read_file(update_log_path(replayed, i), kMaxBytes));
    STOKER_RETURN_IF_ERROR(write_file_atomically(files, replayed_log_path(directory, i), text));
  }
  return {};
}

Status compare_replayed_logs(const std::string& replayed, const std::string& directory,
                             uint32_t num_servers, uint64_t step) {
  for (uint32_t i = 0; i < num_servers; ++i) {
    const std::string path = update_log_path(replayed, i);
    const std::string copy_path = replayed_log_path(directory, i);
    STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxBytes));
    const auto copy = read_file(copy_path, kMaxBytes);
    if (!copy.ok() && copy.status().code() != StatusCode::kNotFound) return copy.status();
    const auto same = [&]() -> Result<bool> {
      if (!copy.ok()) return false;
      STOKER_ASSIGN_OR_RETURN(const LogHeader header,
                              parse_header(std::as_bytes(std::span(text)), path));
      STOKER_ASSIGN_OR_RETURN(const LogHeader copied,
                              parse_header(std::as_bytes(std::span(*copy)), copy_path));
      const uint64_t end = step < header.first_step ? 0 : offset_of(header, step);
      return is_same_run(identity_of(header), identity_of(copied)) &&
             header.first_step == copied.first_step && text.size() >= end && copy->size() >= end &&
             (end == 0 || std::equal(text.begin() + sizeof(header),
                                     text.begin() + static_cast<std::ptrdiff_t>(end),
                                     copy->begin() + sizeof(header)));
    }();
    STOKER_RETURN_IF_ERROR(same.status());
    if (!*same)
      return Status(StatusCode::kMismatch,
                    path + ": the checkpoint of step " + std::to_string(step) +
                        " in this run directory is not of a replay of these updates; use "
                        "another --run-dir, or --fresh");
  }
  return {};
}

}  // namespace stoker::parameter_server
