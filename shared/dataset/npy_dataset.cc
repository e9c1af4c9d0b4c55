// Kind `npy`: arrays as numpy saves them, a row a sample: npy files, npz archives, or several of them.
#include <cassert>
#include <utility>

#include "shared/dataset/kind.h"
#include "shared/dataset/npy_arrays.h"
#include "shared/dataset/npy_index.h"
#include "shared/dataset/npy_sequences.h"
#include "shared/dataset/npy_tensor.h"
#include "shared/dataset/npy_values.h"
#include "shared/dataset/shard_files.h"
#include "shared/dataset/source.h"
#include "shared/dataset/split.h"

namespace stoker::dataset {
namespace {

class NpyDataset final : public NpyArrays {
 public:
  NpyDataset(std::string fingerprint, const NpyIndex& index, Part part)
      : NpyArrays(std::move(fingerprint), index, part),
        form_(npy_tensor_form(input().layout().type, input().layout().row)),
        spec_{{.name = "input",
               .dtype = form_.is_picture ? DType::kU8 : DType::kF32,
               .shape = form_.shape},
              answer_spec()} {}

  const std::vector<TensorSpec>& spec() const override { return spec_; }

  Status read(uint64_t sample, const DrawKey&,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size() && outputs.size() == 2);
    const uint64_t row = row_of(sample);
    STOKER_RETURN_IF_ERROR(read_input(row, outputs[0]));
    return classes() > 0 ? read_npy_class(answer(), row, classes(), outputs[1])
                         : read_npy_floats(answer(), row, outputs[1]);
  }
  void prefetch(uint64_t sample, PrefetchedBytes& bytes) const override {
    input().prefetch(row_of(sample), bytes);
    answer().prefetch(row_of(sample), bytes);
  }

 private:
  TensorSpec answer_spec() const {
    if (classes() > 0) return {.name = "label", .dtype = DType::kI64, .shape = {}};
    return {.name = "target",
            .dtype = DType::kF32,
            .shape = {static_cast<int64_t>(answer().layout().row_elements())}};
  }

  Status read_input(uint64_t row, std::span<std::byte> out) const {
    if (!form_.is_picture) return read_npy_floats(input(), row, out);
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

Result<std::string> npy_settings(const SetRequest& set) {
  const config::DatasetConfig& config = set.config;
  STOKER_ASSIGN_OR_RETURN(const Split split, Split::of(set));
  if (config.input.size() > 1) return set.wrong("input", "must be one array");
  if (config.target.size() > 1) return set.wrong("target", "must be one array");
  if (!config.label.empty() && !config.target.empty())
    return set.wrong("target", "goes without a label; remove one of them");
  std::string text = "kind=npy " + split.to_text();
  if (!config.input.empty()) text += " input=" + named(config.input[0]);
  if (!config.label.empty()) text += " label=" + named(config.label);
  if (!config.target.empty()) text += " target=" + named(config.target[0]);
  if (config.is_padded()) text += " longest=" + std::to_string(config.longest);
  // Of arrays of an archive; a file is known by the table of files.
  if (!config.lengths.empty())
    text += " lengths=" + (config.labels.empty() ? named(config.lengths) : std::string("file"));
  return text + " classes=" + std::to_string(config.classes);
}

// The files that another setting than `path` names.
Result<FileTable> scan_more(const SetRequest& set, std::string_view setting,
                            const std::string& path, const ScanProgress& progress) {
  config::DatasetConfig config = set.config;
  config.path = path;
  auto found = scan_shards({.name = set.name, .config = config}, progress);
  if (!found) return found.status().with_context(set.key(setting));
  return found;
}

// The files of `path`, behind them those of `labels`, and of `lengths`, all by their paths. Without
// files of labels, lengths are arrays of the archives that have these.
Result<FileTable> scan_npy(const SetRequest& set, const ScanProgress& progress) {
  FileTable files;
  const auto append = [&files](const FileTable& found) {
    for (size_t file = 0; file < found.size(); ++file)
      files.add(found.path(file), found.stamp(file));
  };
  STOKER_ASSIGN_OR_RETURN(const FileTable inputs, scan_shards(set, progress));
  append(inputs);
  if (set.config.labels.empty()) return files;
  STOKER_ASSIGN_OR_RETURN(const FileTable labels,
                          scan_more(set, "labels", set.config.labels, progress));
  append(labels);
  if (set.config.lengths.empty()) return files;
  STOKER_ASSIGN_OR_RETURN(const FileTable lengths,
                          scan_more(set, "lengths", set.config.lengths, progress));
  append(lengths);
  return files;
}

// Whose files they are.
Result<NpyIndex::Files> count_files(const SetRequest& set, const FileTable& files) {
  NpyIndex::Files parts{.inputs = files.size()};
  const auto take = [&](std::string_view setting, const std::string& path) -> Result<size_t> {
    STOKER_ASSIGN_OR_RETURN(const FileTable found, scan_more(set, setting, path, {}));
    if (found.size() >= parts.inputs)
      return set.wrong(setting, path + " has changed while it was looked at");
    parts.inputs -= found.size();
    return found.size();
  };
  if (set.config.labels.empty()) return parts;
  STOKER_ASSIGN_OR_RETURN(parts.answers, take("labels", set.config.labels));
  if (set.config.lengths.empty()) return parts;
  STOKER_ASSIGN_OR_RETURN(const size_t lengths, take("lengths", set.config.lengths));
  (void)lengths;  // the rest
  return parts;
}

Result<Facts> inspect_npy(const SetRequest& set, const FileTable& files,
                          const ScanProgress& progress) {
  Facts facts;
  STOKER_ASSIGN_OR_RETURN(const NpyIndex::Files parts, count_files(set, files));
  STOKER_ASSIGN_OR_RETURN(const NpyIndex index,
                          NpyIndex::make(set, files, parts, progress, facts.made));
  facts.numbers = index.to_numbers();
  return facts;
}

Result<std::unique_ptr<Dataset>> open_npy(const SetRequest& set, Index index) {
  auto arrays = NpyIndex::of(index);
  if (!arrays) return arrays.status().with_context("data." + set.name);
  STOKER_ASSIGN_OR_RETURN(const Part part, part_of_samples(set, arrays->input.rows()));
  if (set.config.is_padded() == arrays->lengths.empty())
    return Status(Code::kCorrupt, "data." + set.name + ": its index is not one of sequences");
  if (set.config.is_padded())
    return make_npy_sequences(index.fingerprint(), *std::move(arrays), part);
  return std::unique_ptr<Dataset>(std::make_unique<NpyDataset>(index.fingerprint(), *arrays, part));
}

}  // namespace

const Kind& npy_kind() {
  static constexpr Kind kKind{.name = "npy",
                              .settings = npy_settings,
                              .scan = scan_npy,
                              .inspect = inspect_npy,
                              .open = open_npy,
                              .has_rows = true};
  return kKind;
}

}  // namespace stoker::dataset
