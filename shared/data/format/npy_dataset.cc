// Format `numpy`: NumPy arrays, one row per sample, from one or more .npy files or .npz archives.
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <memory>
#include <ranges>
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
#include "shared/data/record/class_labels.h"
#include "shared/data/record/record_dataset.h"
#include "shared/data/sample_range.h"
#include "shared/data/transform/random_transforms.h"

namespace stoker::data::format {
namespace {

constexpr NpyType kFloat32{.kind = 'f', .bytes = 4};

// NpyReader: reads rows of NumPy arrays as records, from an array of inputs and one of labels or
// targets. With sequence.max_length, a row of the input has room for the longest sequence, and its
// length is the number of valid time steps. A row with as many labels as steps has one label per
// step.
//
// Threads: as RecordReader.
class NpyReader final : public record::RecordReader {
 public:
  NpyReader(NpyIndex index, std::vector<std::string> class_names,
            std::vector<std::string> other_names)
      : has_target_(index.has_target()),
        files_(std::move(index.data)),
        reader_(files_),
        input_(files_, reader_, std::move(index.input)),
        target_(files_, reader_, std::move(index.target_array)),
        classes_(index.classes),
        class_names_(std::move(class_names)),
        lengths_(std::move(index.lengths)),
        bad_rows_(std::move(index.bad_rows)),
        form_(npy_tensor_form(input_.layout().type, input_.layout().row)),
        is_input_as_stored_(form_.is_image && !is_sequence() ? !form_.is_interleaved
                                                             : input_.layout().type == kFloat32),
        is_target_as_stored_(classes_ == 0 && target_.layout().type == kFloat32),
        other_names_(std::move(other_names)) {
    for (NpyLayout& other : index.others) others_.emplace_back(files_, reader_, std::move(other));
  }

  record::SampleSpec spec() const {
    record::SampleSpec spec;
    spec.fields = {input_field()};
    if (has_target_) spec.fields.push_back(target_field());
    for (size_t i = 0; i < others_.size(); ++i) spec.fields.push_back(other_field(i));
    if (!is_sequence()) return spec;
    spec.max_length = input_.layout().row.front();
    if (spec.has_target(record::FieldRole::kLabels) && !has_label_per_step())
      spec.max_label_length = target_.layout().row_elements();
    return spec;
  }

  // kInvalidArgument: a transform would move an input away from its target.
  Status check_target(const DatasetRequest& request) const {
    const bool is_image = form_.is_image && !is_sequence() && classes_ == 0;
    for (const NpyRows& other : others_)
      if (form_.is_image && !is_sequence())
        STOKER_RETURN_IF_ERROR(transform::check_target(request, other.layout().row, form_.shape));
    return is_image && has_target_
               ? transform::check_target(request, target_.layout().row, form_.shape)
               : Status();
  }

  uint64_t size() const override { return input_.layout().rows() - bad_rows_.size(); }
  uint64_t classes() const override { return classes_; }
  std::vector<std::string> class_names() const override { return class_names_; }
  uint64_t length(uint64_t record) const override { return lengths_[row_of(record)]; }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    if (!has_one_label()) return RecordReader::read_labels(first, labels);
    while (!labels.empty()) {
      const uint64_t row = row_of(first);
      const auto bad = std::ranges::lower_bound(bad_rows_, row);
      const uint64_t good = bad == bad_rows_.end() ? labels.size() : *bad - row;
      const auto part = labels.first(std::min<uint64_t>(labels.size(), good));
      STOKER_RETURN_IF_ERROR(read_npy_labels(target_, row, part));
      labels = labels.subspan(part.size());
      first += part.size();
    }
    return {};
  }

  SampleSource source(uint64_t record) const override { return input_.source(row_of(record)); }
  Status read(uint64_t number, record::RecordValues& values) const override {
    const uint64_t record = row_of(number);
    const uint64_t inputs = input_numbers(record);
    assert(!is_input_as_stored_ ||
           inputs * input_.layout().type.bytes <= values.input_tensor.size());
    STOKER_ASSIGN_OR_RETURN(
        record::FieldArray input,
        read_numbers(input_, record,
                     is_input_as_stored_
                         ? values.input_tensor.first(inputs * input_.layout().type.bytes)
                         : buffer<0>(inputs * input_.layout().type.bytes)));
    if (form_.is_interleaved && !is_sequence())
      input.interleaved_channels = static_cast<uint64_t>(form_.shape[0]);
    values.fields[0] = input;
    for (size_t i = 0; i < others_.size(); ++i) {
      thread_local std::vector<std::vector<std::byte>> buffers;
      if (buffers.size() <= i) buffers.resize(i + 1);
      buffers[i].resize(others_[i].layout().row_bytes());
      STOKER_ASSIGN_OR_RETURN(values.fields[values.fields.size() - others_.size() + i],
                              read_numbers(others_[i], record, buffers[i]));
    }
    if (!has_target_) return {};
    if (has_one_label()) {
      STOKER_ASSIGN_OR_RETURN(values.label, read_npy_class(target_, record, classes_));
      return {};
    }
    const uint64_t targets = target_numbers(record) * target_.layout().type.bytes;
    assert(!is_target_as_stored_ || targets == values.target_tensor.size());
    STOKER_ASSIGN_OR_RETURN(
        values.fields[1],
        read_numbers(target_, record,
                     is_target_as_stored_ ? values.target_tensor : buffer<1>(targets)));
    return {};
  }
  void prefetch(uint64_t number, files::PrefetchedBytes& bytes) const override {
    const uint64_t record = row_of(number);
    input_.prefetch(record, input_numbers(record), bytes);
    for (const NpyRows& other : others_) other.prefetch(record, bytes);
    if (has_target_) target_.prefetch(record, target_numbers(record), bytes);
  }
  // Labels of a list can be invalid, and numbers not finite.
  Status in_record(uint64_t number, const record::RecordValues& values,
                   const Status& status) const override {
    const uint64_t record = row_of(number);
    if (classes_ > 0 && !has_one_label())
      STOKER_RETURN_IF_ERROR(check_npy_labels(target_, record, classes_,
                                              std::get<record::FieldArray>(values.fields[1])));
    const auto is_bad = [&values](size_t field) {
      const auto* const array = std::get_if<record::FieldArray>(&values.fields[field]);
      return array != nullptr && !record::is_finite(*array);
    };
    for (size_t i = 0; i < others_.size(); ++i)
      if (is_bad(values.fields.size() - others_.size() + i))
        return status.with_context(others_[i].describe(record));
    return status.with_context((has_target_ && is_bad(1) ? target_ : input_).describe(record));
  }

 private:
  // The row of a record. Before the i-th bad row there are bad_rows_[i] - i good ones.
  uint64_t row_of(uint64_t record) const {
    if (bad_rows_.empty()) return record;
    const auto all = std::views::iota(size_t{0}, bad_rows_.size());
    const auto first_behind =
        std::ranges::partition_point(all, [&](size_t i) { return bad_rows_[i] - i <= record; });
    return record + static_cast<uint64_t>(first_behind - all.begin());
  }
  record::FieldSpec other_field(size_t i) const {
    const NpyLayout& layout = others_[i].layout();
    return {.role = record::FieldRole::kOther,
            .dtype = layout.type.is_integer() ? DType::kI64 : DType::kF32,
            .shape = {layout.row.begin(), layout.row.end()},
            .name = other_names_[i]};
  }
  bool is_sequence() const { return !lengths_.empty(); }
  bool has_one_label() const { return classes_ > 0 && target_.layout().row_elements() == 1; }
  bool has_label_per_step() const {
    return classes_ > 0 && is_sequence() && !has_one_label() &&
           target_.layout().row_elements() == input_.layout().row.front();
  }
  uint64_t values_per_step() const {
    return input_.layout().row_elements() / input_.layout().row.front();
  }
  // Number of elements to read for a record.
  uint64_t input_numbers(uint64_t record) const {
    return is_sequence() ? lengths_[record] * values_per_step() : input_.layout().row_elements();
  }
  uint64_t target_numbers(uint64_t record) const {
    return has_label_per_step() ? lengths_[record] : target_.layout().row_elements();
  }

  record::FieldSpec input_field() const {
    record::FieldSpec field;
    if (!is_sequence()) {
      field.dtype = form_.is_image ? DType::kU8 : DType::kF32;
      field.shape = form_.shape;
      return field;
    }
    const auto& row = input_.layout().row;
    field.shape = row.size() == 1 ? std::vector<int64_t>{1}
                                  : std::vector<int64_t>(row.begin() + 1, row.end());
    return field;
  }
  record::FieldSpec target_field() const {
    const auto numbers = static_cast<int64_t>(target_.layout().row_elements());
    if (classes_ == 0) return {.role = record::FieldRole::kTarget, .shape = {numbers}};
    record::FieldSpec labels{.role = record::FieldRole::kLabel, .dtype = DType::kI64, .shape = {}};
    if (has_one_label()) return labels;
    labels.role = record::FieldRole::kLabels;
    if (!has_label_per_step()) labels.shape = {numbers};
    return labels;
  }

  // Reads the first elements of a row, as many as fit into `room`.
  static Result<record::FieldArray> read_numbers(const NpyRows& rows, uint64_t row,
                                                 std::span<std::byte> room) {
    STOKER_RETURN_IF_ERROR(rows.read(row, room));
    return record::FieldArray{.bytes = room, .type = rows.layout().type};
  }
  // Thread-local buffer for the bytes of a value that is converted after reading.
  template <size_t kValue>
  static std::span<std::byte> buffer(size_t bytes) {
    thread_local std::vector<std::byte> memory;
    memory.resize(bytes);
    return memory;
  }

  // Constant after construction.
  const bool has_target_;
  const files::FileTable files_;
  const files::FileReader reader_;
  const NpyRows input_;
  const NpyRows target_;
  const uint64_t classes_;  // 0: the target is numeric
  const std::vector<std::string> class_names_;
  const std::vector<uint64_t> lengths_;   // per row; empty: rows are not sequences
  const std::vector<uint64_t> bad_rows_;  // left out, in order
  const NpyTensorForm form_;              // of a row that is not a sequence
  // Whether the tensor has the same bytes as the row, which is then read directly into the tensor.
  const bool is_input_as_stored_;
  const bool is_target_as_stored_;
  std::vector<NpyRows> others_;
  const std::vector<std::string> other_names_;
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
  for (const std::string& other : fields.others) text += " other=" + named(other);
  if (numpy.sequence.max_length)
    text += " max_length=" + std::to_string(*numpy.sequence.max_length);
  // Only an array in an archive is identified by its name; the file table identifies files.
  if (!fields.length.empty()) text += " length=" + named(fields.length);
  if (!numpy.labels_path.empty()) text += " labels_path";
  if (!numpy.lengths_path.empty()) text += " lengths_path";
  return text + " num_classes=" + std::to_string(numpy.num_classes.value_or(0)) +
         record::class_names_text(numpy.class_names);
}

// The files of a key other than `path`.
Result<files::FileTable> scan_more(const DatasetRequest& request, std::string_view setting,
                                   const std::string& path, const files::ScanProgress& progress) {
  config::DatasetConfig config = request.config;
  std::get<config::NumpyDataset>(config.source).path = path;
  auto found = scan_shards({.name = request.name, .config = config}, progress);
  if (!found) return found.status().with_context(request.key(setting));
  return found;
}

// The files of `path`, then those of `labels_path`, then those of `lengths_path`, all with full
// paths. Without these keys, labels and lengths are arrays in the archives of `path`.
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

// Counts the files of each key.
Result<NpyIndex::Files> count_files(const DatasetRequest& request, const files::FileTable& files) {
  const auto& numpy = request.as<config::NumpyDataset>();
  NpyIndex::Files parts{.inputs = files.size()};
  const auto take = [&](std::string_view setting, const std::string& path) -> Result<size_t> {
    STOKER_ASSIGN_OR_RETURN(const files::FileTable found, scan_more(request, setting, path, {}));
    if (found.size() >= parts.inputs)
      return request.config_error(setting, path + " has changed while it was read");
    parts.inputs -= found.size();
    return found.size();
  };
  if (!numpy.labels_path.empty()) {
    STOKER_ASSIGN_OR_RETURN(parts.target_arrays, take("labels_path", numpy.labels_path));
  }
  // The remaining files belong to lengths_path.
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
  metadata.names = index.to_names();
  metadata.groups = index.groups;
  return metadata;
}

Result<std::unique_ptr<Dataset>> open_npy(const DatasetRequest& request, files::Index index) {
  const std::vector<std::string>& others = request.config.fields()->others;
  auto arrays = NpyIndex::of(index, others.size());
  if (!arrays) return arrays.status().with_context("data." + request.name);
  STOKER_ASSIGN_OR_RETURN(const SampleRange range,
                          split_range(request, arrays->input.rows() - arrays->bad_rows.size()));
  if (request.config.has_variable_length() == arrays->lengths.empty())
    return Status(StatusCode::kCorrupt,
                  "data." + request.name + ": its index is not one of sequences");
  auto records =
      std::make_unique<NpyReader>(*std::move(arrays), request.config.class_names(), others);
  STOKER_RETURN_IF_ERROR(records->check_target(request));
  record::SampleSpec spec = records->spec();
  return record::make_record_dataset(std::move(spec), index.fingerprint(), std::move(records),
                                     range);
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
