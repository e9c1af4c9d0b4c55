// Format `numpy`: arrays as numpy saves them, a row a sample: npy files, npz archives, or several of them.
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shared/data/dataset.h"
#include "shared/data/dataset_files.h"
#include "shared/data/files/file_reader.h"
#include "shared/data/files/file_table.h"
#include "shared/data/format/format.h"
#include "shared/data/format/npy_index.h"
#include "shared/data/format/npy_rows.h"
#include "shared/data/format/npy_value.h"
#include "shared/data/record/sample_spec.h"
#include "shared/data/sample_range.h"

namespace stoker::data::format {
namespace {

// NpyArrays: what the data sets over numpy's arrays have in common: an array of inputs and one of
// answers, of which each row is a sample.
//
// Threads: as Dataset.
class NpyArrays : public Dataset {
 public:
  uint64_t size() const final { return range_.size(); }
  uint64_t classes() const final { return classes_; }
  const std::string& fingerprint() const final { return fingerprint_; }
  SampleSource source(uint64_t sample) const final { return input_.source(row_index(sample)); }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const final {
    const bool has_one = classes_ > 0 && target_array_.layout().row_elements() == 1;
    return has_one ? read_npy_labels(target_array_, row_index(first), labels)
                   : Dataset::read_labels(first, labels);
  }

 protected:
  NpyArrays(std::string fingerprint, const NpyIndex& index, SampleRange range)
      : fingerprint_(std::move(fingerprint)),
        files_(index.data),
        reader_(files_),
        input_(files_, reader_, index.input),
        target_array_(files_, reader_, index.target_array),
        classes_(index.classes),
        range_(range) {}

  uint64_t row_index(uint64_t sample) const { return range_.begin + sample; }
  const NpyRows& input() const { return input_; }
  const NpyRows& target_array() const { return target_array_; }

 private:
  const std::string fingerprint_;
  const files::FileTable files_;
  const files::FileReader reader_;
  const NpyRows input_;
  const NpyRows target_array_;
  const uint64_t classes_;  // 0: the answer is a target
  const SampleRange range_;
};

// NpySequences: rows of an array as sequences of various lengths: each has room for the longest, and is
// filled up to a length of its own.
//
//   `input` F32 [length, what a place has], `length` I64, and `label` I64, `labels` I64 or `target` F32
//   (sample_spec.h). Labels that are as many as the places of a row are one for each place.
//
// Threads: as Dataset.
class NpySequences final : public NpyArrays {
 public:
  NpySequences(std::string fingerprint, NpyIndex index, SampleRange range)
      : NpyArrays(std::move(fingerprint), index, range),
        lengths_(std::move(index.lengths)),
        spec_(spec_of_length(max_length())) {}

  const std::vector<TensorSpec>& spec() const override { return spec_; }
  uint64_t max_length() const override { return input().layout().row.front(); }
  uint64_t length(uint64_t sample) const override { return lengths_[row_index(sample)]; }
  std::vector<TensorSpec> spec_of_length(uint64_t length) const override {
    std::vector<int64_t> shape{static_cast<int64_t>(length)};
    const auto& row = input().layout().row;
    for (size_t i = 1; i < row.size(); ++i) shape.push_back(static_cast<int64_t>(row[i]));
    if (row.size() == 1) shape.push_back(1);
    return {{.name = "input", .dtype = DType::kF32, .shape = std::move(shape)},
            {.name = "length", .dtype = DType::kI64, .shape = {}},
            answer_spec(length)};
  }

  Status read(uint64_t sample, const RandomKey&,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size() && outputs.size() == 3);
    const uint64_t row = row_index(sample);
    const uint64_t own = lengths_[row];
    const auto filled = static_cast<size_t>(own * values_per_step() * sizeof(float));
    assert(filled <= outputs[0].size());
    STOKER_RETURN_IF_ERROR(read_npy_floats(input(), row, outputs[0].first(filled)));
    std::ranges::fill(outputs[0].subspan(filled), std::byte{0});
    const auto length = static_cast<int64_t>(own);
    std::memcpy(outputs[1].data(), &length, sizeof length);
    if (classes() == 0) return read_npy_floats(target_array(), row, outputs[2]);
    if (target_array().layout().row_elements() == 1)
      return read_npy_class(target_array(), row, classes(), outputs[2]);
    return read_step_labels(row, own, outputs[2]);
  }

  void prefetch(uint64_t sample, files::PrefetchedBytes& bytes) const override {
    const uint64_t row = row_index(sample);
    input().prefetch(row, lengths_[row] * values_per_step(), bytes);
    if (classes() > 0 && has_label_per_step())
      target_array().prefetch(row, lengths_[row], bytes);
    else
      target_array().prefetch(row, bytes);
  }

 private:
  uint64_t values_per_step() const { return input().layout().row_elements() / max_length(); }
  bool has_label_per_step() const { return target_array().layout().row_elements() == max_length(); }

  TensorSpec answer_spec(uint64_t length) const {
    const auto numbers = static_cast<int64_t>(target_array().layout().row_elements());
    if (classes() == 0) return {.name = "target", .dtype = DType::kF32, .shape = {numbers}};
    if (numbers == 1) return {.name = "label", .dtype = DType::kI64, .shape = {}};
    const int64_t labels = has_label_per_step() ? static_cast<int64_t>(length) : numbers;
    return {.name = "labels", .dtype = DType::kI64, .shape = {labels}};
  }

  Status read_step_labels(uint64_t row, uint64_t own, std::span<std::byte> out) const {
    const size_t filled = has_label_per_step() ? own * sizeof(int64_t) : out.size();
    STOKER_RETURN_IF_ERROR(read_npy_classes(target_array(), row, classes(), out.first(filled)));
    for (size_t at = filled; at < out.size(); at += sizeof record::kPaddedLabel)
      std::memcpy(out.data() + at, &record::kPaddedLabel, sizeof record::kPaddedLabel);
    return {};
  }

  const std::vector<uint64_t> lengths_;
  const std::vector<TensorSpec> spec_;
};

// `index.lengths` has a length for each row.
std::unique_ptr<Dataset> make_npy_sequences(std::string fingerprint, NpyIndex index,
                                            SampleRange range) {
  return std::make_unique<NpySequences>(std::move(fingerprint), std::move(index), range);
}

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
  void prefetch(uint64_t sample, files::PrefetchedBytes& bytes) const override {
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
    record::deinterleave(bytes, static_cast<size_t>(form_.shape[0]), out);
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
Result<files::FileTable> scan_more(const DatasetRequest& request, std::string_view setting,
                                   const std::string& path, const files::ScanProgress& progress) {
  config::DatasetConfig config = request.config;
  std::get<config::NumpyDataset>(config.source).path = path;
  auto found = scan_shards({.name = request.name, .config = config}, progress);
  if (!found) return found.status().with_context(request.key(setting));
  return found;
}

// The files of `path`, behind them those of `labels_path`, then of `lengths_path`, all by their paths.
// Without these, labels and lengths are arrays of the archives of `path`.
Result<files::FileTable> scan_npy(const DatasetRequest& request,
                                  const files::ScanProgress& progress) {
  const auto& numpy = request.as<config::NumpyDataset>();
  files::FileTable files;
  const auto append = [&files](const files::FileTable& found) {
    for (size_t file = 0; file < found.size(); ++file)
      files.add(found.path(file), found.stamp(file));
  };
  STOKER_ASSIGN_OR_RETURN(const files::FileTable inputs, scan_shards(request, progress));
  append(inputs);
  if (!numpy.labels_path.empty()) {
    STOKER_ASSIGN_OR_RETURN(const files::FileTable labels,
                            scan_more(request, "labels_path", numpy.labels_path, progress));
    append(labels);
  }
  if (!numpy.lengths_path.empty()) {
    STOKER_ASSIGN_OR_RETURN(const files::FileTable lengths,
                            scan_more(request, "lengths_path", numpy.lengths_path, progress));
    append(lengths);
  }
  return files;
}

// Whose files they are.
Result<NpyIndex::Files> count_files(const DatasetRequest& request, const files::FileTable& files) {
  const auto& numpy = request.as<config::NumpyDataset>();
  NpyIndex::Files parts{.inputs = files.size()};
  const auto take = [&](std::string_view setting, const std::string& path) -> Result<size_t> {
    STOKER_ASSIGN_OR_RETURN(const files::FileTable found, scan_more(request, setting, path, {}));
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

Result<files::IndexMetadata> build_numpy_metadata(const DatasetRequest& request,
                                                  const files::FileTable& files,
                                                  const files::ScanProgress& progress) {
  files::IndexMetadata metadata;
  STOKER_ASSIGN_OR_RETURN(const NpyIndex::Files parts, count_files(request, files));
  STOKER_ASSIGN_OR_RETURN(const NpyIndex index,
                          NpyIndex::make(request, files, parts, progress, metadata.made));
  metadata.numbers = index.to_numbers();
  return metadata;
}

Result<std::unique_ptr<Dataset>> open_npy(const DatasetRequest& request, files::Index index) {
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

}  // namespace stoker::data::format
