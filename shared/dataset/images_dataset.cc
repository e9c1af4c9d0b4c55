// Format `image_folder`: a folder per class, JPEG, PNG and WebP files in it, decoded and resized while
// they are read.
#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/dataset/class_split.h"
#include "shared/dataset/file_reader.h"
#include "shared/dataset/kind.h"
#include "shared/dataset/picture_input.h"
#include "shared/dataset/picture_pack.h"
#include "shared/dataset/source.h"
#include "shared/dataset/whole_files.h"
#include "shared/image/picture.h"

namespace stoker::dataset {
namespace {

constexpr size_t kProbes = 16;  // files that are looked at when the set is indexed

class ImagesDataset final : public Dataset {
 public:
  ImagesDataset(Index index, ClassSplit samples, const PictureInput& input)
      : fingerprint_(index.fingerprint()),
        files_(std::move(index.files)),
        bytes_(files_, index.facts),
        samples_(std::move(samples)),
        input_(input),
        spec_{input.spec(), {.name = "label", .dtype = DType::kI64, .shape = {}}} {}

  uint64_t size() const override { return samples_.size(); }
  const std::vector<TensorSpec>& spec() const override { return spec_; }
  uint64_t classes() const override { return samples_.classes(); }
  std::vector<std::string> class_names() const override { return samples_.names(); }
  const std::string& fingerprint() const override { return fingerprint_; }
  Origin origin(uint64_t sample) const override {
    return {.file = files_.path(samples_.place(sample).file), .offset = 0};
  }

  std::string describe_draws(uint64_t sample, const DrawKey& draw) const override {
    std::vector<std::byte> file;
    const Status read = bytes_.read(samples_.place(sample).file, kMaxPictureFile, file);
    return read.ok() ? input_.describe_draws(file, draw) : std::string();
  }

  Status read(uint64_t sample, const DrawKey& draw,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(outputs.size() == 2);
    const ClassSplit::Place place = samples_.place(sample);
    thread_local std::vector<std::byte> file;
    STOKER_RETURN_IF_ERROR(bytes_.read(place.file, kMaxPictureFile, file));
    const Status decoded = input_.read(file, draw, outputs[0]);
    if (!decoded.ok()) return decoded.with_context(files_.path(place.file));
    const auto label = static_cast<int64_t>(place.of_class);
    std::memcpy(outputs[1].data(), &label, sizeof label);
    return {};
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    for (int64_t& label : labels) label = static_cast<int64_t>(samples_.place(first++).of_class);
    return {};
  }
  void prefetch(uint64_t sample, PrefetchedBytes& bytes) const override {
    bytes_.prefetch(samples_.place(sample).file, kMaxPictureFile, bytes);
  }

 private:
  const std::string fingerprint_;
  const FileTable files_;
  const WholeFiles bytes_;
  const ClassSplit samples_;
  const PictureInput input_;
  const std::vector<TensorSpec> spec_;
};

Result<std::string> images_settings(const SetRequest& set) {
  STOKER_ASSIGN_OR_RETURN(const Split split, Split::of(set));
  STOKER_ASSIGN_OR_RETURN(const PictureInput input, PictureInput::of(set));
  return "format=image_folder " + split.to_text() + ' ' + input.to_text();
}

Result<FileTable> scan_images(const SetRequest& set, const ScanProgress& progress) {
  const std::string& glob = set.as<config::ImageFolderDataset>().glob;
  STOKER_ASSIGN_OR_RETURN(const FolderScan found, scan_source_folder(set, glob, progress));
  if (!found.barren.empty()) {
    return Status(Code::kNotFound,
                  set.key("path") + ": " + join_path(found.files.root(), found.barren.front()) +
                      ": a class folder without any file that matches '" + glob +
                      "'; remove it, or narrow the glob to the folders that are classes");
  }
  FileTable files(found.files.root());
  uint64_t outside = 0;
  for (size_t file = 0; file < found.files.size(); ++file) {
    const std::string_view name = found.files.name(file);
    if (name.find('/') == std::string_view::npos) {
      ++outside;
    } else {
      files.add(name, found.files.stamp(file));
    }
  }
  if (outside > 0)
    log_warn("files outside class folders ignored", {{"path", files.root()}, {"count", outside}});
  if (files.size() == 0) {
    return Status(Code::kNotFound,
                  set.key("path") + ": " + set.config.path() +
                      " holds no folder with pictures; a folder per class is needed");
  }
  return files;
}

// A folder of something else should be told at the start, not as a thousand bad samples: a few
// files are looked at.
Result<Facts> inspect_images(const SetRequest& set, const FileTable& files,
                             const ScanProgress& progress) {
  const FileReader reader(files);
  const size_t probes = std::min(files.size(), kProbes);
  for (size_t probe = 0; probe < probes; ++probe) {
    const size_t file = probe * files.size() / probes;
    std::array<std::byte, image::kFormatBytes> head{};
    const size_t bytes = std::min<uint64_t>(head.size(), files.stamp(file).size);
    STOKER_RETURN_IF_ERROR(
        reader.read(file, 0, std::span(head).first(bytes)).with_context(set.key("path")));
    if (image::format_of(std::span(head).first(bytes)) != image::Format::kUnknown)
      return pack_pictures(set, files, Facts(), progress);
  }
  return Status(Code::kCorrupt, set.key("path") + ": none of " + std::to_string(probes) +
                                    " files looked at is a JPEG, PNG or WebP, such as " +
                                    files.path(0) + "; narrow the glob to the pictures");
}

Result<std::unique_ptr<Dataset>> open_images(const SetRequest& set, Index index) {
  STOKER_ASSIGN_OR_RETURN(const Split split, Split::of(set));
  STOKER_ASSIGN_OR_RETURN(const PictureInput input, PictureInput::of(set));
  if (!WholeFiles::fits(index.files, index.facts))
    return Status(Code::kCorrupt, "data." + set.name + ": its index does not describe pictures");
  ClassSplit samples(index.files, split);
  if (samples.size() == 0) {
    return set.wrong("split", "takes none of the " + std::to_string(index.files.size()) +
                                  " pictures: each class is cut by itself");
  }
  if (const uint64_t empty = samples.classes_without_samples(); empty > 0) {
    log_warn("classes without samples",
             {{"dataset", set.name}, {"empty_classes", empty}, {"num_classes", samples.classes()}});
  }
  return std::unique_ptr<Dataset>(
      std::make_unique<ImagesDataset>(std::move(index), std::move(samples), input));
}

}  // namespace

const Kind& image_folder_kind() {
  static constexpr Kind kKind{.name = "image_folder",
                              .settings = images_settings,
                              .scan = scan_images,
                              .inspect = inspect_images,
                              .open = open_images};
  return kKind;
}

}  // namespace stoker::dataset
