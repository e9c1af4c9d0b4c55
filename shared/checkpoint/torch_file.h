// TorchFile: the tensors of a file that torch.save() has written (.pt, .pth, .bin): a zip archive of
// a pickle and of the tensors' bytes. The pickle is read by PickleReader: nothing in it can run.
//
// What is read is the dict of name -> tensor that the file holds: what its root has under
// "state_dict", "model_state_dict" or "model", else the root itself.
//
// Threads:  one object per thread.
// Blocking: reading checks the checksum of a tensor's storage the first time.
// Errors:   kCorrupt with the file and the place for all that torch.save would not have written, and
//           for what it may write and is not read here: the format of before PyTorch 1.6, packed
//           members, big-endian bytes, other objects than tensors and plain values. All of it is
//           found before memory is allocated for a tensor. kIoError, kNotFound.
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
  // A tensor may be a view that repeats few bytes many times: compare its spec with what is needed
  // before allocating spec.bytes().
  Status read(const std::string& name, std::span<std::byte> out) const override;

  const std::vector<std::string>& others() const override;

 private:
  struct State;
  explicit TorchFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Whether a file begins as torch.save's do: as a zip archive, or as the pickles of before
// PyTorch 1.6 (which TorchFile refuses with a line of its own).
bool is_torch_file(std::span<const std::byte> start);

// open_tensor_file: the tensors of a file that somebody hands us, whatever it is: .safetensors, or
// written by torch.save. How it begins decides, not its name.
//
// Errors:  kCorrupt: it is neither, and those of SafetensorsFile and TorchFile. kNotFound, kIoError.
Result<std::unique_ptr<TensorSource>> open_tensor_file(const std::string& path);
Result<std::unique_ptr<TensorSource>> open_tensor_file_fd(UniqueFd fd,
                                                          const std::string& path_in_messages);

}  // namespace stoker::checkpoint
