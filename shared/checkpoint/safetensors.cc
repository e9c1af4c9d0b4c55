#include "shared/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "shared/checkpoint/tensor_header.h"

namespace stoker::checkpoint {
namespace {

Status check_views(const TensorViews& tensors, const std::string& path) {
  std::unordered_set<std::string_view> names;
  for (const auto& [spec, bytes] : tensors) {
    STOKER_RETURN_IF_ERROR(check_tensor_name(spec.name).with_context(path));
    if (!names.insert(spec.name).second)
      return Status(StatusCode::kInvalidArgument,
                    path + ": tensor " + spec.name + " is given twice");
    const auto needed = checked_bytes(spec);
    if (!needed)
      return Status(StatusCode::kInvalidArgument, path + ": " + to_string(spec) + " is no shape");
    if (bytes.size() != *needed) {
      return Status(StatusCode::kInvalidArgument,
                    path + ": " + to_string(spec) + " needs " + std::to_string(*needed) +
                        " bytes, given are " + std::to_string(bytes.size()));
    }
  }
  return {};
}

std::vector<const TensorView*> in_file_order(const TensorViews& tensors) {
  std::vector<const TensorView*> order;
  for (const auto& view : tensors) order.push_back(&view);
  std::stable_sort(order.begin(), order.end(), [](const TensorView* a, const TensorView* b) {
    return dtype_bytes(a->spec.dtype) > dtype_bytes(b->spec.dtype);
  });
  return order;
}

}  // namespace

Result<SafetensorsContent> make_safetensors_layout(
    const std::string& name, const TensorViews& tensors,
    const std::map<std::string, std::string>& metadata) {
  STOKER_RETURN_IF_ERROR(check_views(tensors, name));
  const auto order = in_file_order(tensors);
  TensorHeader header{{}, metadata};
  uint64_t offset = 0;
  for (const TensorView* view : order) {
    header.tensors.push_back({view->spec, offset, offset + view->bytes.size()});
    offset += view->bytes.size();
  }
  const std::string head = format_tensor_header(header);
  if (head.size() - sizeof(uint64_t) > kMaxHeaderBytes) {
    return Status(StatusCode::kInvalidArgument, name + ": the header of " +
                                                    std::to_string(tensors.size()) +
                                                    " tensors is larger than the format allows");
  }
  // What we would refuse to read (text that is not UTF-8, say) is not written either.
  const auto read_back =
      parse_tensor_header(std::string_view(head).substr(sizeof(uint64_t)), offset);
  if (!read_back.ok())
    return Status(StatusCode::kInvalidArgument, name + ": " + read_back.status().message());
  SafetensorsContent laid_out;
  const auto bytes = std::as_bytes(std::span(head));
  laid_out.head.assign(bytes.begin(), bytes.end());
  laid_out.content.name = name;
  laid_out.content.pieces.emplace_back(laid_out.head);
  for (const TensorView* view : order) laid_out.content.pieces.push_back(view->bytes);
  return laid_out;
}

Result<WrittenFile> write_safetensors(FileSystem& files, const std::string& directory,
                                      const std::string& name, const TensorViews& tensors,
                                      const std::map<std::string, std::string>& metadata) {
  auto laid_out = make_safetensors_layout(name, tensors, metadata);
  if (!laid_out.ok()) return laid_out.status().with_context(directory);
  STOKER_ASSIGN_OR_RETURN(auto written,
                          write_hashed_files(files, directory, {&laid_out->content, 1}));
  return std::move(written.front());
}

// ---- Reading

struct SafetensorsFile::State {
  UniqueFd fd;
  std::string path;
  uint64_t data_begin = 0;
  std::vector<TensorSpec> specs;
  std::vector<uint64_t> begins;  // of specs[i], counted from data_begin
  std::unordered_map<std::string, size_t> index;
  std::map<std::string, std::string> metadata;
};

namespace {

Result<uint64_t> size_of(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Status::from_errno(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) return Status(StatusCode::kCorrupt, path + ": is not a regular file");
  return static_cast<uint64_t>(info.st_size);
}

Status read_exactly(int fd, uint64_t offset, std::span<std::byte> out, const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(const size_t got, default_file_system().read_at(fd, offset, out, path));
  if (got == out.size()) return {};
  return Status(StatusCode::kCorrupt, path + ": ends at byte " + std::to_string(offset + got) +
                                          "; " + std::to_string(offset + out.size()) + " are due");
}

Result<std::string> read_header(int fd, uint64_t file_bytes, const std::string& path) {
  uint64_t length = 0;
  if (file_bytes < sizeof length) {
    return Status(StatusCode::kCorrupt,
                  path + ": " + std::to_string(file_bytes) + " bytes are too few for a header");
  }
  STOKER_RETURN_IF_ERROR(read_exactly(fd, 0, std::as_writable_bytes(std::span(&length, 1)), path));
  if (length > std::min(kMaxHeaderBytes, file_bytes - sizeof length)) {
    return Status(StatusCode::kCorrupt, path + ": offset 0: a header of " + std::to_string(length) +
                                            " bytes, in a file of " + std::to_string(file_bytes) +
                                            " and with a limit of " +
                                            std::to_string(kMaxHeaderBytes));
  }
  std::string header(length, '\0');
  STOKER_RETURN_IF_ERROR(
      read_exactly(fd, sizeof length, std::as_writable_bytes(std::span(header)), path));
  return header;
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
SafetensorsFile::~SafetensorsFile() = default;

Result<std::unique_ptr<SafetensorsFile>> SafetensorsFile::open(const std::string& path) {
  // O_NONBLOCK: a FIFO in its place must not hang us.
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, default_file_system().open(path, O_RDONLY | O_NONBLOCK));
  return open_fd(std::move(fd), path);
}

Result<std::unique_ptr<SafetensorsFile>> SafetensorsFile::open_fd(
    UniqueFd fd, const std::string& path_in_messages) {
  STOKER_ASSIGN_OR_RETURN(const uint64_t file_bytes, size_of(fd.get(), path_in_messages));
  STOKER_ASSIGN_OR_RETURN(const std::string text,
                          read_header(fd.get(), file_bytes, path_in_messages));
  auto state = std::make_unique<State>();
  state->data_begin = sizeof(uint64_t) + text.size();
  auto header = parse_tensor_header(text, file_bytes - state->data_begin);
  if (!header.ok()) return header.status().with_context(path_in_messages);
  state->fd = std::move(fd);
  state->path = path_in_messages;
  state->metadata = std::move(header->metadata);
  for (auto& [spec, begin, end] : header->tensors) {
    state->index.emplace(spec.name, state->specs.size());
    state->specs.push_back(std::move(spec));
    state->begins.push_back(begin);
  }
  return std::unique_ptr<SafetensorsFile>(new SafetensorsFile(std::move(state)));
}

const std::vector<TensorSpec>& SafetensorsFile::tensors() const { return state_->specs; }

const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return state_->metadata;
}

const TensorSpec* SafetensorsFile::find(const std::string& name) const {
  const auto found = state_->index.find(name);
  return found == state_->index.end() ? nullptr : &state_->specs[found->second];
}

Status SafetensorsFile::read(const std::string& name, std::span<std::byte> out) const {
  const TensorSpec* const spec = find(name);
  if (spec != nullptr && out.size() != spec->bytes()) {
    return Status(StatusCode::kInvalidArgument,
                  state_->path + ": " + to_string(*spec) + " has " + std::to_string(spec->bytes()) +
                      " bytes, asked for " + std::to_string(out.size()));
  }
  return read_part(name, 0, out);
}

Status SafetensorsFile::read_part(const std::string& name, uint64_t offset,
                                  std::span<std::byte> out) const {
  const auto found = state_->index.find(name);
  if (found == state_->index.end())
    return Status(StatusCode::kNotFound, state_->path + ": has no tensor " + name);
  const TensorSpec& spec = state_->specs[found->second];
  if (offset > spec.bytes() || out.size() > spec.bytes() - offset)
    return Status(StatusCode::kInvalidArgument,
                  state_->path + ": asked for bytes beyond " + to_string(spec));
  return read_exactly(state_->fd.get(), state_->data_begin + state_->begins[found->second] + offset,
                      out, state_->path);
}

}  // namespace stoker::checkpoint
