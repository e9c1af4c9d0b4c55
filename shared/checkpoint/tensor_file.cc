#include "shared/checkpoint/tensor_file.h"

#include <fcntl.h>

#include <array>
#include <cstddef>
#include <utility>

#include "shared/base/file.h"
#include "shared/checkpoint/safetensors.h"
#include "shared/checkpoint/torch_file.h"

namespace stoker::checkpoint {
namespace {

constexpr size_t kBraceAt = 8;  // of a .safetensors file: behind the header's length

template <typename File>
Result<std::unique_ptr<TensorSource>> as_source(Result<std::unique_ptr<File>> file) {
  if (!file.ok()) return file.status();
  return std::unique_ptr<TensorSource>(*std::move(file));
}

}  // namespace

Result<std::unique_ptr<TensorSource>> open_tensor_file_fd(UniqueFd fd, const std::string& path) {
  std::array<std::byte, kBraceAt + 1> start{};
  STOKER_ASSIGN_OR_RETURN(const size_t got,
                          default_file_system().read_at(fd.get(), 0, start, path));
  if (is_torch_file(std::span(start).first(got)))
    return as_source(TorchFile::open_fd(std::move(fd), path));
  if (got == start.size() && start[kBraceAt] == std::byte{'{'})
    return as_source(SafetensorsFile::open_fd(std::move(fd), path));
  return Status(StatusCode::kCorrupt,
                path + ": is neither a .safetensors file nor one that torch.save has written");
}

Result<std::unique_ptr<TensorSource>> open_tensor_file(const std::string& path) {
  // O_NONBLOCK: a FIFO in its place must not hang us.
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, default_file_system().open(path, O_RDONLY | O_NONBLOCK));
  return open_tensor_file_fd(std::move(fd), path);
}

}  // namespace stoker::checkpoint
