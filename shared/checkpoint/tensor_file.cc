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

Result<std::unique_ptr<TensorSource>> adopt_tensor_file(UniqueFd fd, const std::string& path) {
  std::array<std::byte, kBraceAt + 1> start{};
  STOKER_ASSIGN_OR_RETURN(const size_t got, real_files().read_at(fd.get(), 0, start, path));
  if (looks_like_torch_file(std::span(start).first(got)))
    return as_source(TorchFile::adopt(std::move(fd), path));
  if (got == start.size() && start[kBraceAt] == std::byte{'{'})
    return as_source(SafetensorsFile::adopt(std::move(fd), path));
  return Status(Code::kCorrupt,
                path + ": is neither a .safetensors file nor one that torch.save has written");
}

Result<std::unique_ptr<TensorSource>> open_tensor_file(const std::string& path) {
  // O_NONBLOCK: a FIFO in its place must not hang us.
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, real_files().open(path, O_RDONLY | O_NONBLOCK));
  return adopt_tensor_file(std::move(fd), path);
}

}  // namespace stoker::checkpoint
