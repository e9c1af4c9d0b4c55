// CompiledManifest: manifest.json of a folder written by stoker-export (python/): what the compiled
// programs of a Python module take and return, and where they run.
//
// Threads: pure functions; cpu_flags() reads /proc/cpuinfo.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"

namespace stoker::model {

inline constexpr int64_t kCompiledFormat = 2;
inline constexpr const char* kCompiledPackage = "model.pt2";
inline constexpr const char* kCompiledWeights = "model.safetensors";
inline constexpr const char* kCompiledSelfTest = "self_test.safetensors";

struct CompiledManifest {
  struct Parameter {
    TensorSpec spec;
    bool requires_grad = true;
  };
  struct Buffer {
    TensorSpec spec;
    bool is_persistent = true;  // in the module's state_dict
  };
  // The results of the programs for the batch in self_test.safetensors.
  struct SelfTest {
    double loss = 0;
    std::vector<double> gradient_norms;  // L2, of the parameters with requires_grad
    std::vector<double> output_norms;    // L2, in eval mode
    double eval_loss = 0;                // of these outputs
    double tolerance = 0;                // relative; of small gradients: to 1 % of the largest norm
  };

  std::string torch;                   // version, without the build: "2.11.0"
  std::vector<std::string> cpu_flags;  // instruction sets, names of /proc/cpuinfo
  bool is_bf16 = false;                // autocast to BF16 in training
  int64_t min_batch = 1, max_batch = 1;
  // Further names of parameters and buffers: name -> the one below.
  std::map<std::string, std::string> tied_parameters;
  int64_t seeds = 0;  // number of seeds that a training step takes
  std::vector<Parameter> parameters;
  std::vector<Buffer> buffers;
  // Shapes of one sample, without the batch. `inputs`: the input of the module, and the length if
  // it takes padded sequences.
  std::vector<TensorSpec> inputs, targets, outputs;
  SelfTest self_test;
  std::string package_sha256, weights_sha256, self_test_sha256;
};

// kCorrupt: not a manifest; names `path` and the field. kMismatch: of another format, or for another
// device than the CPU.
Result<CompiledManifest> parse_compiled_manifest(std::string_view json, const std::string& path);

// kMismatch: LibTorch has another version than the one that compiled the package, or the processor
// lacks instructions that it was compiled for.
Status validate_platform(const CompiledManifest& manifest, std::string_view torch_version,
                         const std::vector<std::string>& available_cpu_flags);
Result<std::vector<std::string>> cpu_flags();

// kMismatch: `samples`, the value of the setting `key`, is out of the range of batch sizes.
Status validate_batch_size(const CompiledManifest& manifest, std::string_view key, int64_t samples);

// kMismatch: the batches of the run have other inputs or targets than the package; names both sides.
Status validate_compiled_batch(const CompiledManifest& manifest,
                               const std::vector<TensorSpec>& inputs,
                               const std::vector<TensorSpec>& targets);

}  // namespace stoker::model
