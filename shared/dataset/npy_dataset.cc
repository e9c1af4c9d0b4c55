// Format `numpy`: arrays as numpy saves them, a row a sample: npy files, npz archives, or several of them.
#include <cassert>
#include <utility>

#include "shared/dataset/format.h"
#include "shared/dataset/npy_arrays.h"
#include "shared/dataset/npy_index.h"
#include "shared/dataset/npy_sequences.h"
#include "shared/dataset/npy_tensor.h"
#include "shared/dataset/npy_values.h"
#include "shared/dataset/shard_files.h"
#include "shared/dataset/source.h"
#include "shared/dataset/split_fraction.h"

namespace stoker::dataset {
namespace {

class NpyDataset final : public NpyArrays {
 public:
  NpyDataset(std::string fingerprint, const NpyIndex& index, SampleRange range)
      : NpyArrays(std::move(fingerprint), index, range),
        form_(npy_tensor_form(input().layout().type, input().layout().row)),
        spec_{{.name = "input",
               .dtype = form_.is_image ? DType::kU8 : DType::kF32,
               .shape = form_.shape},
              answer_spec()} {}

  const std::vector<TensorSpec>& spec() const override { return spec_; }

  Status read(uint64_t sample, const RandomKey&,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size() && outputs.size() == 2);
    const uint64_t row = row_index(sample);
    STOKER_RETURN_IF_ERROR(read_input(row, outputs[0]));
    return classes() > 0 ? read_npy_class(target_array(), row, classes(), outputs[1])
                         : read_npy_floats(target_array(), row, outputs[1]);
  }
  void prefetch(uint64_t sample, PrefetchedBytes& bytes) const override {
    input().prefetch(row_index(sample), bytes);
    target_array().prefetch(row_index(sample), bytes);
  }

 private:
  TensorSpec answer_spec() const {
    if (classes() > 0) return {.name = "label", .dtype = DType::kI64, .shape = {}};
    return {.name = "target",
            .dtype = DType::kF32,
            .shape = {static_cast<int64_t>(target_array().layout().row_elements())}};
  }

  Status read_input(uint64_t row, std::span<std::byte> out) const {
    if (!form_.is_image) return read_npy_floats(input(), row, out);
    if (!form_.is_interleaved) return input().read(row, out);
    thread_local std::vector<std::byte> bytes;
    bytes.resize(input().layout().row_bytes());
    STOKER_RETURN_IF_ERROR(input().read(row, bytes));
    deinterleave(bytes, static_cast<size_t>(form_.shape[0]), out);
    return {};
  }

  const NpyTensorForm form_;
  const std::vector<TensorSpec> spec_;
};

std::string named(const std::string& name) { return std::to_string(name.size()) + ':' + name; }

Result<std::string> numpy_fingerprint_text(const DatasetRequest& request) {
  const auto& numpy = request.as<config::NumpyDataset>();
  const config::FieldNames& fields = numpy.fields;
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, SplitFraction::of(request));
  if (fields.input.size() > 1) return request.config_error("fields.input", "must be one array");
  if (fields.target.size() > 1) return request.config_error("fields.target", "must be one array");
  const int target_arrays = (fields.label.empty() ? 0 : 1) + (fields.labels.empty() ? 0 : 1) +
                            (fields.target.empty() ? 0 : 1);
  if (target_arrays > 1)
    return request.config_error(fields.target.empty() ? "fields.labels" : "fields.target",
                                "cannot be combined with another of label, labels and target");
  if (!fields.length.empty() && !numpy.lengths_path.empty())
    return request.config_error("fields.length", "cannot be combined with lengths_path");
  std::string text = "format=numpy " + split.to_text();
  if (!fields.input.empty()) text += " input=" + named(fields.input[0]);
  if (!fields.label.empty()) text += " label=" + named(fields.label);
  if (!fields.labels.empty()) text += " labels=" + named(fields.labels);
  if (!fields.target.empty()) text += " target=" + named(fields.target[0]);
  if (numpy.sequence.max_length)
    text += " max_length=" + std::to_string(*numpy.sequence.max_length);
  // Of arrays of an archive; a file is known by the table of files.
  if (!fields.length.empty()) text += " length=" + named(fields.length);
  if (!numpy.labels_path.empty()) text += " labels_path";
  if (!numpy.lengths_path.empty()) text += " lengths_path";
  return text + " num_classes=" + std::to_string(numpy.num_classes.value_or(0));
}

// The files that another setting than `path` names.
Result<FileTable> scan_more(const DatasetRequest& request, std::string_view setting,
                            const std::string& path, const ScanProgress& progress) {
  config::DatasetConfig config = request.config;
  std::get<config::NumpyDataset>(config.source).path = path;
  auto found = scan_shards({.name = request.name, .config = config}, progress);
  if (!found) return found.status().with_context(request.key(setting));
  return found;
}

// The files of `path`, behind them those of `labels_path`, then of `lengths_path`, all by their paths.
// Without these, labels and lengths are arrays of the archives of `path`.
Result<FileTable> scan_npy(const DatasetRequest& request, const ScanProgress& progress) {
  const auto& numpy = request.as<config::NumpyDataset>();
  FileTable files;
  const auto append = [&files](const FileTable& found) {
    for (size_t file = 0; file < found.size(); ++file)
      files.add(found.path(file), found.stamp(file));
  };
  STOKER_ASSIGN_OR_RETURN(const FileTable inputs, scan_shards(request, progress));
  append(inputs);
  if (!numpy.labels_path.empty()) {
    STOKER_ASSIGN_OR_RETURN(const FileTable labels,
                            scan_more(request, "labels_path", numpy.labels_path, progress));
    append(labels);
  }
  if (!numpy.lengths_path.empty()) {
    STOKER_ASSIGN_OR_RETURN(const FileTable lengths,
                            scan_more(request, "lengths_path", numpy.lengths_path, progress));
    append(lengths);
  }
  return files;
}

// Whose files they are.
Result<NpyIndex::Files> count_files(const DatasetRequest& request, const FileTable& files) {
  const auto& numpy = request.as<config::NumpyDataset>();
  NpyIndex::Files parts{.inputs = files.size()};
  const auto take = [&](std::string_view setting, const std::string& path) -> Result<size_t> {
    STOKER_ASSIGN_OR_RETURN(const FileTable found, scan_more(request, setting, path, {}));
    if (found.size() >= parts.inputs)
      return request.config_error(setting, path + " has changed while it was looked at");
    parts.inputs -= found.size();
    return found.size();
  };
  if (!numpy.labels_path.empty()) {
    STOKER_ASSIGN_OR_RETURN(parts.target_arrays, take("labels_path", numpy.labels_path));
  }
  // The rest.
  if (!numpy.lengths_path.empty())
    STOKER_RETURN_IF_ERROR(take("lengths_path", numpy.lengths_path).status());
  return parts;
}

Result<IndexMetadata> build_numpy_metadata(const DatasetRequest& request, const FileTable& files,
                                           const ScanProgress& progress) {
  IndexMetadata metadata;
  STOKER_ASSIGN_OR_RETURN(const NpyIndex::Files parts, count_files(request, files));
  STOKER_ASSIGN_OR_RETURN(const NpyIndex index,
                          NpyIndex::make(request, files, parts, progress, metadata.made));
  metadata.numbers = index.to_numbers();
  return metadata;
}

Result<std::unique_ptr<Dataset>> open_npy(const DatasetRequest& request, Index index) {
  auto arrays = NpyIndex::of(index);
  if (!arrays) return arrays.status().with_context("data." + request.name);
  STOKER_ASSIGN_OR_RETURN(const SampleRange range, split_range(request, arrays->input.rows()));
  if (request.config.has_variable_length() == arrays->lengths.empty())
    return Status(StatusCode::kCorrupt,
                  "data." + request.name + ": its index is not one of sequences");
  if (request.config.has_variable_length())
    return make_npy_sequences(index.fingerprint(), *std::move(arrays), range);
  return std::unique_ptr<Dataset>(
      std::make_unique<NpyDataset>(index.fingerprint(), *arrays, range));
}

}  // namespace

const DatasetFormatOps& numpy_format() {
  static constexpr DatasetFormatOps kFormatOps{.name = "numpy",
                                               .fingerprint_text = numpy_fingerprint_text,
                                               .scan = scan_npy,
                                               .build_metadata = build_numpy_metadata,
                                               .open = open_npy,
                                               .has_rows = true};
  return kFormatOps;
}

}  // namespace stoker::dataset
