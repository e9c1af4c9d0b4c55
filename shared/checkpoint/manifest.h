// manifest: the metadata of a checkpoint (manifest.json), and the checksums of its files
// (SHA256SUMS) in the format of coreutils' sha256sum.
//
// Threads:  any; values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/dataset_schema.h"
#include "shared/base/status.h"
#include "shared/checkpoint/safetensors.h"

namespace stoker::checkpoint {

inline constexpr char kChecksumsName[] = "SHA256SUMS";
inline constexpr char kManifestName[] = "manifest.json";

struct Checksum {
  std::string sha256;
  std::string name;
};

std::string format_checksums(const std::vector<Checksum>& sums);
// kCorrupt, with the line number: text that format_checksums() does not produce, a duplicate name,
// an empty list.
Result<std::vector<Checksum>> parse_checksums(std::string_view text,
                                              const std::string& path_in_messages);

bool is_sha256(std::string_view text);
// A plain file name: letters, digits, '.', '_' and '-', not starting with '.'.
bool is_file_name(std::string_view name);

inline constexpr int kFormat = 2;         // of a checkpoint whose optimizer state is one file
inline constexpr int kShardedFormat = 3;  // one file for each rank; the newest that is read
inline constexpr int kMaxOptimizerShards = 4096;

// "optimizer-00002-of-00004.safetensors" for index 1.
std::string optimizer_shard_name(int index, int count);

// Version of data.train from the given ticket on, which starts an epoch.
struct DatasetVersion {
  uint64_t start_ticket = 0;
  uint64_t epoch = 0;
  uint64_t samples = 0;
  std::string fingerprint;
  bool operator==(const DatasetVersion&) const = default;
};

// Further names of tied parameters: name -> the name that the checkpoint has.
using TiedNames = std::map<std::string, std::string>;

// Of an adapter: the pretrained weights that it belongs to, and how it is added to them.
struct BaseWeights {
  std::string path;    // where they were read from, informational
  std::string sha256;  // over names, shapes and values of the tensors: model::base_digest()
  std::vector<std::string> tensors;  // their names in the model, sorted
  // As model.lora had them.
  int64_t r = 0;
  double lora_alpha = 0;
  double scaling() const { return lora_alpha / static_cast<double>(r); }
  bool operator==(const BaseWeights&) const = default;
};

// All class names of a manifest together.
inline constexpr size_t kMaxClassNameBytes = size_t{256} << 10;

struct Manifest {
  int format = kFormat;
  uint64_t step = 0;  // completed optimizer steps
  uint64_t epoch = 0;
  uint64_t next_ticket = 0;    // the next micro-batch to train on
  std::string created_at;      // ISO 8601, informational
  std::string stoker_version;  // version of stoker
  std::string torch_version;   // version of LibTorch
  // Of rank 0 when it wrote this, informational; empty or 0: not recorded.
  std::string processor, system, device;
  uint64_t num_threads = 0;
  int world_size = 1;
  int optimizer_shards = 0;  // files of the optimizer state in kShardedFormat; 0: it is one file
  // Samples per micro-batch and micro-batches per step. 0: not recorded, written by an earlier
  // release.
  uint64_t micro_batch_size = 0;
  uint64_t gradient_accumulation_steps = 0;
  std::string model_digest;  // names, shapes and dtypes of the parameters
  std::string model_file;    // SHA-256 of the file with the model code; empty for built-in models
  std::optional<BaseWeights> base_weights;  // if model.safetensors has an adapter only
  TiedNames tied_parameters;
  std::string tokenizer;  // SHA-256 of the tokenizer's file; empty without one
  std::string config_digest;
  std::string data_digest;  // fingerprint of data.train
  // Of data.train; nullopt: not recorded, written by an earlier release. Without the class names if
  // they are longer than kMaxClassNameBytes.
  std::optional<DatasetSchema> data_schema;
  // Of refreshed data: all versions up to this ticket; otherwise empty.
  std::vector<DatasetVersion> dataset_versions;
  std::vector<WrittenFile> files;
  // Directory name of the checkpoint that this run resumed from or saved before; can be empty.
  std::string parent_checkpoint;
  // Size of metrics/train.jsonl at this step; a resume truncates it to this size.
  uint64_t metrics_bytes = 0;
  // Number of sample errors in the tickets before `next_ticket`, over all starts of the run; nullopt:
  // not recorded, written by an earlier release. A resume truncates sample_errors.jsonl to the
  // steps up to `step`.
  std::optional<uint64_t> sample_errors;
  std::string live_settings;  // JSON object of the settings changed at runtime; "{}"

  bool operator==(const Manifest&) const = default;
};

std::string to_json(const Manifest& manifest);
// kCorrupt: not JSON, a field is missing or has the wrong type, a file name with '/'. kMismatch: a
// newer format.
Result<Manifest> parse_manifest(std::string_view json, const std::string& path_in_messages);

}  // namespace stoker::checkpoint
