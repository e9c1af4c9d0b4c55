// Format `image_folder`: one folder per class with JPEG, PNG and WebP files, which are decoded and
// resized when they are read.
#include <algorithm>
#include <array>
#include <cassert>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/base/utf8.h"
#include "shared/data/cache/packed_images.h"
#include "shared/data/dataset_files.h"
#include "shared/data/files/file_reader.h"
#include "shared/data/files/file_table.h"
#include "shared/data/format/format.h"
#include "shared/data/format/image_reader.h"
#include "shared/data/record/record_dataset.h"
#include "shared/data/sample_range.h"
#include "shared/data/sample_split.h"
#include "shared/data/transform/image_decoder_input.h"
#include "shared/image/image_types.h"

namespace stoker::data::format {
namespace {

// ClassSplit: numbers the files of one folder per class as samples and applies the split to each
// class separately.
//
// Files are sorted by folder, so a split by position over all files would drop entire classes.
//
// Threads: immutable after construction.
class ClassSplit {
 public:
  // Each name in `files` is "class/…"; the names are sorted by class.
  ClassSplit(const files::FileTable& files, const SplitFraction& split);

  struct Location {
    uint64_t file = 0;
    uint64_t of_class = 0;
  };
  uint64_t size() const { return classes_.empty() ? 0 : classes_.back().samples_end; }
  Location location(uint64_t sample) const;
  // All classes, including those without samples in this split.
  std::vector<std::string> names() const;
  uint64_t classes() const { return classes_.size(); }

 private:
  struct Class {
    std::string name;
    uint64_t files_begin = 0;  // first file of the split
    uint64_t samples_end = 0;
  };
  std::vector<Class> classes_;
};

std::string_view class_of(std::string_view name) { return name.substr(0, name.find('/')); }

ClassSplit::ClassSplit(const files::FileTable& files, const SplitFraction& split) {
  uint64_t samples = 0;
  for (size_t begin = 0, end = 0; begin < files.size(); begin = end) {
    const std::string_view name = class_of(files.name(begin));
    while (end < files.size() && class_of(files.name(end)) == name) ++end;
    const SampleRange range = split.of_count(end - begin);
    samples += range.size();
    classes_.push_back(
        {.name = std::string(name), .files_begin = begin + range.begin, .samples_end = samples});
  }
}

ClassSplit::Location ClassSplit::location(uint64_t sample) const {
  assert(sample < size());
  const auto found =
      std::upper_bound(classes_.begin(), classes_.end(), sample,
                       [](uint64_t wanted, const Class& in) { return wanted < in.samples_end; });
  const uint64_t before = found == classes_.begin() ? 0 : std::prev(found)->samples_end;
  return {.file = found->files_begin + (sample - before),
          .of_class = static_cast<uint64_t>(found - classes_.begin())};
}

std::vector<std::string> ClassSplit::names() const {
  std::vector<std::string> names;
  for (const Class& one : classes_) names.push_back(escape_invalid_utf8(one.name));
  return names;
}

constexpr size_t kProbes = 16;  // number of files to check when the dataset is indexed

class ImageFolderReader final : public ImageReader {
 public:
  ImageFolderReader(files::Index index, ClassSplit samples)
      : ImageReader(std::move(index)), samples_(std::move(samples)) {}

  uint64_t size() const override { return samples_.size(); }
  uint64_t classes() const override { return samples_.classes(); }
  std::vector<std::string> class_names() const override { return samples_.names(); }
  uint64_t label(uint64_t record) const override { return samples_.location(record).of_class; }

 private:
  size_t file_of(uint64_t record) const override { return samples_.location(record).file; }

  const ClassSplit samples_;
};

Result<std::string> image_folder_fingerprint_text(const DatasetRequest& request) {
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, SplitFraction::of(request));
  STOKER_ASSIGN_OR_RETURN(const transform::ImageDecoderInput input,
                          transform::ImageDecoderInput::of(request));
  return "format=image_folder " + split.to_text() + ' ' + input.to_text();
}

constexpr auto kSplitNames =
    std::to_array<std::string_view>({"train", "training", "val", "valid", "validation", "test",
                                     "testing", "dev", "eval", "evaluation", "holdout"});

bool is_split_name(std::string_view folder) {
  std::string lower(folder);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::find(kSplitNames, lower) != kSplitNames.end();
}

// The folder above train/ and val/ has two classes, "train" and "val".
void warn_about_splits(const DatasetRequest& request, const files::FileTable& files) {
  std::vector<std::string> splits;
  for (size_t file = 0; file < files.size(); ++file) {
    const std::string_view folder = class_of(files.name(file));
    if (is_split_name(folder) && (splits.empty() || splits.back() != folder))
      splits.emplace_back(folder);
  }
  if (splits.size() < 2) return;
  log_warn("class folders look like splits",
           {{"dataset", request.name},
            {"path", files.root()},
            {"folders", join(splits, ", ")},
            {"hint", "the folders below path are the classes; set path to one of these"}});
}

Result<files::FileTable> scan_images(const DatasetRequest& request,
                                     const files::ScanProgress& progress) {
  const std::string& glob = request.as<config::ImageFolderDataset>().glob;
  STOKER_ASSIGN_OR_RETURN(const files::FolderScan found,
                          scan_source_folder(request, glob, progress));
  if (!found.barren.empty()) {
    return Status(StatusCode::kNotFound,
                  request.key("path") + ": " + join_path(found.files.root(), found.barren.front()) +
                      ": a class folder without any file that matches '" + glob +
                      "'; remove it, or narrow the glob to the folders that are classes");
  }
  files::FileTable files(found.files.root());
  uint64_t outside = 0;
  for (size_t file = 0; file < found.files.size(); ++file) {
    const std::string_view name = found.files.name(file);
    if (name.find('/') == std::string_view::npos) {
      ++outside;
    } else {
      files.add(name, found.files.stamp(file));
    }
  }
  warn_about_splits(request, files);
  if (outside > 0)
    log_warn("files outside class folders ignored", {{"path", files.root()}, {"count", outside}});
  if (files.size() == 0) {
    return Status(StatusCode::kNotFound,
                  request.key("path") + ": " + request.config.path() +
                      " holds no folder with images; a folder per class is needed");
  }
  return files;
}

// The hash of the folder below the class folder, for data.NAME.split_by: "daisy/garden/1.jpg" and
// "rose/garden/2.jpg" are of one group.
Result<std::vector<uint64_t>> groups_of(const DatasetRequest& request,
                                        const files::FileTable& files) {
  std::vector<uint64_t> groups;
  if (!request.config.splits_samples() || request.config.split_by != config::SplitBy::kGroup)
    return groups;
  groups.reserve(files.size());
  for (size_t file = 0; file < files.size(); ++file) {
    const std::string_view name = files.name(file);
    const size_t begin = name.find('/') + 1, end = name.rfind('/');
    if (end < begin)
      return request.config_error("split_by",
                                  "group requires a folder for each group below the "
                                  "class folders, which " +
                                      files.path(file) + " is not in");
    groups.push_back(name_hash(name.substr(begin, end - begin)));
  }
  return groups;
}

Result<files::IndexMetadata> pack_with_groups(const DatasetRequest& request,
                                              const files::FileTable& files,
                                              const files::ScanProgress& progress) {
  files::IndexMetadata metadata;
  STOKER_ASSIGN_OR_RETURN(metadata.groups, groups_of(request, files));
  return cache::pack_images(request, files, std::move(metadata), progress);
}

// Checks a few files, so that a folder with other contents is reported at startup and not as a
// thousand sample errors.
Result<files::IndexMetadata> build_image_folder_metadata(const DatasetRequest& request,
                                                         const files::FileTable& files,
                                                         const files::ScanProgress& progress) {
  const files::FileReader reader(files);
  const size_t probes = std::min(files.size(), kProbes);
  for (size_t probe = 0; probe < probes; ++probe) {
    const size_t file = probe * files.size() / probes;
    std::array<std::byte, image::kFormatBytes> head{};
    const size_t bytes = std::min<uint64_t>(head.size(), files.stamp(file).size);
    STOKER_RETURN_IF_ERROR(
        reader.read(file, 0, std::span(head).first(bytes)).with_context(request.key("path")));
    if (image::detect_format(std::span(head).first(bytes)) != image::Format::kUnknown)
      return pack_with_groups(request, files, progress);
  }
  return Status(StatusCode::kCorrupt, request.key("path") + ": none of " + std::to_string(probes) +
                                          " inspected files is a JPEG, PNG or WebP, such as " +
                                          files.path(0) + "; narrow the glob to the images");
}

Result<std::unique_ptr<Dataset>> open_images(const DatasetRequest& request, files::Index index) {
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, SplitFraction::of(request));
  STOKER_ASSIGN_OR_RETURN(const transform::ImageDecoderInput input,
                          transform::ImageDecoderInput::of(request));
  if (!cache::PackedFiles::fits(index.files, index.metadata))
    return Status(StatusCode::kCorrupt,
                  "data." + request.name + ": its index does not describe images");
  ClassSplit samples(index.files, split);
  if (samples.size() == 0) {
    return request.config_error("split", "takes none of the " + std::to_string(index.files.size()) +
                                             " images: each class is cut by itself");
  }
  std::string fingerprint = index.fingerprint();
  const SampleRange all{.begin = 0, .end = samples.size()};  // ClassSplit has applied the split
  return record::make_record_dataset(
      record::SampleSpec::labeled(input), std::move(fingerprint),
      std::make_unique<ImageFolderReader>(std::move(index), std::move(samples)), all);
}

}  // namespace

const DatasetFormatOps& image_folder_format() {
  static constexpr DatasetFormatOps kFormatOps{.name = "image_folder",
                                               .fingerprint_text = image_folder_fingerprint_text,
                                               .scan = scan_images,
                                               .build_metadata = build_image_folder_metadata,
                                               .open = open_images};
  return kFormatOps;
}

}  // namespace stoker::data::format
