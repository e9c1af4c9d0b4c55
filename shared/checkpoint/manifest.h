// Manifest and SHA256SUMS: what a checkpoint is, as JSON beside its files, and the hashes of these, as
// coreutils' sha256sum writes and checks them.
//
// Threads: any; values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
// kCorrupt, with the line: anything that format_checksums() does not write, a name twice, no line at all.
Result<std::vector<Checksum>> parse_checksums(std::string_view text,
                                              const std::string& path_in_messages);

bool is_sha256(std::string_view text);
// A plain file name: letters, digits, '.', '_' and '-', not beginning with '.'.
bool is_file_name(std::string_view name);

inline constexpr int kFormat = 2;

// What data.train was from a ticket on, which began an epoch.
struct DatasetVersion {
  uint64_t ticket = 0;
  uint64_t epoch = 0;
  uint64_t samples = 0;
  std::string fingerprint;
  bool operator==(const DatasetVersion&) const = default;
};

struct Manifest {
  int format = kFormat;
  uint64_t step = 0;  // optimizer steps done
  uint64_t epoch = 0;
  uint64_t ticket = 0;         // the next micro-batch to train on
  std::string created;         // ISO 8601, for people
  std::string stoker_version;  // stoker's version
  std::string torch_version;   // LibTorch's version
  int world_size = 1;
  // Samples a micro-batch, and micro-batches a step. 0: not said, by an earlier release.
  uint64_t batch = 0;
  uint64_t accumulate = 0;
  std::string model_digest;  // names, shapes and dtypes of the parameters
  std::string model_file;  // SHA-256 of the file with the model's code; empty: stoker has the code
  std::string config_digest;
  std::string data_digest;  // fingerprint of data.train
  std::vector<DatasetVersion>
      dataset_versions;  // of data that grows: up to this ticket; otherwise empty
  std::vector<WrittenFile> files;
  std::string parent;  // directory name of the checkpoint that this run resumed from or saved
                       // before; may be empty
  uint64_t metrics_bytes =
      0;  // length of metrics/train.jsonl at this step: a resume cuts it back to here
  // Samples that could not be read, of the tickets before `ticket`, over all starts of the run; nothing:
  // not said, by an earlier release. A resume cuts sample_errors.jsonl back to the steps up to `step`.
  std::optional<uint64_t> sample_errors;
  std::string
      live_settings;  // JSON object of the settings changed while running ({"lr": 1e-4}); "{}"

  bool operator==(const Manifest&) const = default;
};

std::string to_json(const Manifest& manifest);
// kCorrupt: not JSON, a field missing or of the wrong type, a file name with '/'. kMismatch: a
// newer format.
Result<Manifest> parse_manifest(std::string_view json, const std::string& path_in_messages);

}  // namespace stoker::checkpoint
