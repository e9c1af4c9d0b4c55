// open_tensor_file: the tensors of a file that somebody hands us, whatever it is: .safetensors, or
// written by torch.save. How it begins decides, not its name.
//
// Threads: functions of their arguments.
// Errors:  kCorrupt: it is neither, and those of SafetensorsFile and TorchFile. kNotFound, kIoError.
#pragma once

#include <memory>
#include <string>

#include "shared/base/status.h"
#include "shared/base/unique_fd.h"
#include "shared/checkpoint/tensor_source.h"

namespace stoker::checkpoint {

Result<std::unique_ptr<TensorSource>> open_tensor_file(const std::string& path);
Result<std::unique_ptr<TensorSource>> open_tensor_file_fd(UniqueFd fd,
                                                          const std::string& path_in_messages);

}  // namespace stoker::checkpoint
