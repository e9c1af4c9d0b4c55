// TorchFile: reads the tensors of a file written by torch.save() (.pt, .pth, .bin), a zip archive
// of a pickle and tensor data. The pickle is parsed by read_pickle(), which never executes code.
//
// The tensors are those of the dict of name -> tensor under "state_dict", "model_state_dict" or
// "model" of the root object, or otherwise of the root object itself.
//
// Threads:  one object per thread.
// Blocking: the first read of a tensor verifies the checksum of its storage.
// Errors:   kCorrupt with path and location for anything that torch.save would not write, and for
//           what it can write but is not supported: the format before PyTorch 1.6, compressed
//           members, big-endian data, objects other than tensors and plain values. All of it is
//           detected before memory is allocated for a tensor. kIoError, kNotFound.
// Format:   docs/checkpoint-format.md.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/checkpoint/tensor_source.h"

namespace stoker::checkpoint {

class TorchFile final : public TensorSource {
 public:
  static Result<std::unique_ptr<TorchFile>> open(const std::string& path);
  static Result<std::unique_ptr<TorchFile>> open_fd(UniqueFd fd,
                                                    const std::string& path_in_messages);
  ~TorchFile() override;

  const std::vector<TensorSpec>& tensors() const override;
  const TensorSpec* find(const std::string& name) const override;
  // A tensor can be a view that repeats a few bytes many times. Compare its spec with the expected
  // one before allocating spec.bytes().
  Status read(const std::string& name, std::span<std::byte> out) const override;

  const std::vector<std::string>& non_tensor_keys() const override;

 private:
  struct State;
  explicit TorchFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// True if the file starts like one of torch.save: as a zip archive, or with the pickles of the
// format before PyTorch 1.6 (which TorchFile rejects with a specific message).
bool is_torch_file(std::span<const std::byte> start);

// open_tensor_file: opens a .safetensors or torch.save file of untrusted origin. The format is
// detected from the first bytes, not from the name.
//
// Errors:   kCorrupt: neither format, and the errors of SafetensorsFile and TorchFile. kNotFound,
//           kIoError.
Result<std::unique_ptr<TensorSource>> open_tensor_file(const std::string& path);
Result<std::unique_ptr<TensorSource>> open_tensor_file_fd(UniqueFd fd,
                                                          const std::string& path_in_messages);

}  // namespace stoker::checkpoint
