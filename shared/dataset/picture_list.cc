// Format `image_list`: pictures and their labels as a table names them, a .csv, .tsv or .jsonl file.
#include <cassert>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "shared/base/file.h"
#include "shared/dataset/class_labels.h"
#include "shared/dataset/file_reader.h"
#include "shared/dataset/kind.h"
#include "shared/dataset/list_rows.h"
#include "shared/dataset/picture_input.h"
#include "shared/dataset/picture_pack.h"
#include "shared/dataset/scan.h"
#include "shared/dataset/source.h"
#include "shared/dataset/split.h"
#include "shared/dataset/whole_files.h"

namespace stoker::dataset {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kProgressRows = 1 << 13;  // between two calls of progress
constexpr size_t kHead = 1;                  // of the facts: classes; then a class a picture

class ListDataset final : public Dataset {
 public:
  ListDataset(Index index, Part part, const PictureInput& input)
      : fingerprint_(index.fingerprint()),
        files_(std::move(index.files)),
        bytes_(files_, index.facts),
        facts_(std::move(index.facts)),
        part_(part),
        input_(input),
        spec_{input.spec(), {.name = "label", .dtype = DType::kI64, .shape = {}}} {}

  uint64_t size() const override { return part_.size(); }
  const std::vector<TensorSpec>& spec() const override { return spec_; }
  uint64_t classes() const override { return facts_.numbers[0]; }
  std::vector<std::string> class_names() const override { return facts_.names; }
  const std::string& fingerprint() const override { return fingerprint_; }
  Origin origin(uint64_t sample) const override {
    return {.file = files_.path(file_of(sample)), .offset = 0};
  }

  std::string describe_draws(uint64_t sample, const DrawKey& draw) const override {
    std::vector<std::byte> file;
    const Status read = bytes_.read(file_of(sample), kMaxPictureFile, file);
    return read.ok() ? input_.describe_draws(file, draw) : std::string();
  }

  Status read(uint64_t sample, const DrawKey& draw,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size() && outputs.size() == 2);
    thread_local std::vector<std::byte> file;
    STOKER_RETURN_IF_ERROR(bytes_.read(file_of(sample), kMaxPictureFile, file));
    const Status decoded = input_.read(file, draw, outputs[0]);
    if (!decoded.ok()) return decoded.with_context(files_.path(file_of(sample)));
    const int64_t label = label_of(sample);
    std::memcpy(outputs[1].data(), &label, sizeof label);
    return {};
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    for (int64_t& label : labels) label = label_of(first++);
    return {};
  }
  void prefetch(uint64_t sample, PrefetchedBytes& bytes) const override {
    bytes_.prefetch(file_of(sample), kMaxPictureFile, bytes);
  }

 private:
  // The list is the first file.
  size_t file_of(uint64_t sample) const { return part_.begin + sample + 1; }
  int64_t label_of(uint64_t sample) const {
    return static_cast<int64_t>(facts_.numbers[kHead + part_.begin + sample]);
  }

  const std::string fingerprint_;
  const FileTable files_;
  const WholeFiles bytes_;
  const Facts facts_;
  const Part part_;
  const PictureInput input_;
  const std::vector<TensorSpec> spec_;
};

// What the paths of the list are relative to: `root`, or the folder that the list lies in.
std::string root_of(const config::ImageListDataset& list) {
  if (!list.root.empty()) return list.root;
  const std::string folder = fs::path(list.path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// A path as a name below the root, so that the set may be moved with it.
std::string name_below(const std::string& root, const fs::path& path) {
  std::error_code ignored;
  const fs::path whole = fs::absolute(root, ignored).lexically_normal();
  return fs::absolute(path, ignored).lexically_normal().lexically_relative(whole).string();
}

Status add_file(const std::string& path, std::string_view name, FileTable& files) {
  FileTable found;
  STOKER_RETURN_IF_ERROR(scan_file(path, found));
  files.add(name, found.stamp(0));
  return {};
}

Result<std::string> picture_list_settings(const SetRequest& set) {
  STOKER_ASSIGN_OR_RETURN(const Split split, Split::of(set));
  STOKER_ASSIGN_OR_RETURN(const PictureInput input, PictureInput::of(set));
  const auto& list = set.as<config::ImageListDataset>();
  if (!is_list_name(list.path))
    return set.wrong("path", "must be a file whose name ends in .csv, .tsv or .jsonl");
  std::string text = "format=image_list " + split.to_text() + ' ' + input.to_text();
  for (const std::string& name : list_columns(list))
    text += " column=" + std::to_string(name.size()) + ':' + name;
  return text + " num_classes=" + std::to_string(list.num_classes.value_or(0));
}

// The list itself is the first file, then the pictures in its order.
Result<FileTable> scan_picture_list(const SetRequest& set, const ScanProgress& progress) {
  const auto& config = set.as<config::ImageListDataset>();
  FileTable list;
  STOKER_RETURN_IF_ERROR(scan_source_file(set, "path", config.path, list));
  const std::string root = root_of(config);
  FileTable files(root);
  files.add(name_below(root, config.path), list.stamp(0));
  const FileReader reader(list);
  const Status read = read_list_rows(set, reader, list, [&](const ListRow& row) {
    const bool is_absolute = row.path.starts_with('/');
    const std::string name =
        is_absolute ? name_below(root, fs::path(row.path)) : std::string(row.path);
    if (files.size() % kProgressRows == 0) progress(files.size());
    return add_file(is_absolute ? std::string(row.path) : join_path(root, row.path), name, files);
  });
  if (!read.ok()) return read.with_context(set.key("path"));
  if (files.size() > 1) return files;
  return Status(Code::kNotFound, set.key("path") + ": " + config.path + " names no picture");
}

Result<Facts> inspect_picture_list(const SetRequest& set, const FileTable& files,
                                   const ScanProgress& progress) {
  const FileReader reader(files);
  ClassLabels labels;
  Facts facts;
  facts.numbers.push_back(0);
  const Status read = read_list_rows(set, reader, files, [&](const ListRow& row) -> Status {
    STOKER_ASSIGN_OR_RETURN(const uint64_t label, labels.add(row.label));
    facts.numbers.push_back(label);
    if (facts.numbers.size() % kProgressRows == 0) progress(facts.numbers.size(), "labels");
    return {};
  });
  if (!read.ok()) return read.with_context(set.key("path"));
  if (facts.numbers.size() != files.size())
    return Status(Code::kCorrupt,
                  set.key("path") + ": " + set.config.path() + " has changed just now");
  auto classes = labels.finish(static_cast<uint64_t>(set.config.num_classes().value_or(0)));
  if (!classes) return set.wrong("num_classes", classes.status().message());
  facts.numbers[0] = classes->count;
  for (size_t i = kHead; i < facts.numbers.size(); ++i)
    facts.numbers[i] = classes->of_label[facts.numbers[i]];
  facts.names = std::move(classes->names);
  return pack_pictures(set, files, std::move(facts), progress);
}

Result<std::unique_ptr<Dataset>> open_picture_list(const SetRequest& set, Index index) {
  STOKER_ASSIGN_OR_RETURN(const PictureInput input, PictureInput::of(set));
  const std::vector<uint64_t>& numbers = index.facts.numbers;
  bool fits = numbers.size() > kHead && numbers.size() == index.files.size() &&
              WholeFiles::fits(index.files, index.facts);
  for (size_t i = kHead; fits && i < numbers.size(); ++i) fits = numbers[i] < numbers[0];
  if (!fits)
    return Status(Code::kCorrupt,
                  "data." + set.name + ": its index does not describe a list of pictures");
  STOKER_ASSIGN_OR_RETURN(const Part part, part_of_samples(set, numbers.size() - kHead));
  return std::unique_ptr<Dataset>(std::make_unique<ListDataset>(std::move(index), part, input));
}

}  // namespace

const Kind& image_list_kind() {
  static constexpr Kind kKind{.name = "image_list",
                              .settings = picture_list_settings,
                              .scan = scan_picture_list,
                              .inspect = inspect_picture_list,
                              .open = open_picture_list};
  return kKind;
}

}  // namespace stoker::dataset
