// Kind `images`: a folder per class, JPEG and PNG files in it, decoded and resized while they are
// read.
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
#include "shared/dataset/source.h"
#include "shared/image/decoder.h"

namespace stoker::dataset {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;
constexpr int64_t kMaxSide = 16384;  // of the result
constexpr size_t kProbes = 16;       // files that are looked at when the set is indexed

// What a reading thread keeps from one picture to the next, whichever set they are of.
struct Scratch {
  std::vector<std::byte> file;
  image::Decoder decoder;
};
Scratch& scratch() {
  thread_local Scratch scratch;
  return scratch;
}

image::PictureShape shape_of(const config::DatasetConfig& config) {
  return {.channels = static_cast<uint32_t>(config.channels),
          .height = static_cast<uint32_t>(config.size[0]),
          .width = static_cast<uint32_t>(config.size[1])};
}

class ImagesDataset final : public Dataset {
 public:
  ImagesDataset(Index index, ClassSplit samples, const image::PictureShape& shape)
      : fingerprint_(index.fingerprint()),
        files_(std::move(index.files)),
        reader_(files_),
        samples_(std::move(samples)),
        shape_(shape),
        spec_{{.name = "input",
               .dtype = DType::kU8,
               .shape = {shape.channels, shape.height, shape.width}},
              {.name = "label", .dtype = DType::kI64, .shape = {}}} {}

  uint64_t size() const override { return samples_.size(); }
  const std::vector<TensorSpec>& spec() const override { return spec_; }
  uint64_t classes() const override { return samples_.classes(); }
  std::vector<std::string> class_names() const override { return samples_.names(); }
  const std::string& fingerprint() const override { return fingerprint_; }
  Origin origin(uint64_t sample) const override {
    return {.file = files_.path(samples_.place(sample).file), .offset = 0};
  }

  Status read(uint64_t sample, const DrawKey&,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(outputs.size() == 2 && outputs[0].size() == shape_.bytes());
    const ClassSplit::Place place = samples_.place(sample);
    Scratch& own = scratch();
    STOKER_RETURN_IF_ERROR(reader_.read_whole(place.file, kMaxFileBytes, own.file));
    const Status decoded = own.decoder.decode(own.file, shape_, outputs[0]);
    if (!decoded.ok()) return decoded.with_context(files_.path(place.file));
    const auto label = static_cast<int64_t>(place.of_class);
    std::memcpy(outputs[1].data(), &label, sizeof label);
    return {};
  }

 private:
  const std::string fingerprint_;
  const FileTable files_;
  const FileReader reader_;
  const ClassSplit samples_;
  const image::PictureShape shape_;
  const std::vector<TensorSpec> spec_;
};

Result<std::string> images_settings(const SetRequest& set) {
  STOKER_ASSIGN_OR_RETURN(const Split split, Split::of(set));
  const auto& size = set.config.size;
  const auto fits = [](int64_t side) { return side >= 1 && side <= kMaxSide; };
  if (size.size() != 2 || !std::all_of(size.begin(), size.end(), fits)) {
    return set.wrong("size",
                     "must be [height, width], each between 1 and " + std::to_string(kMaxSide));
  }
  if (set.config.channels != 1 && set.config.channels != 3)
    return set.wrong("channels", "must be 3 (RGB) or 1 (grey)");
  return "kind=images " + split.to_text() + " size=" + std::to_string(size[0]) + "x" +
         std::to_string(size[1]) + " channels=" + std::to_string(set.config.channels);
}

Result<FileTable> scan_images(const SetRequest& set, const ScanProgress& progress) {
  STOKER_ASSIGN_OR_RETURN(const FolderScan found,
                          scan_source_folder(set, set.config.glob, progress));
  if (!found.barren.empty()) {
    return Status(Code::kNotFound,
                  set.key("path") + ": " + join_path(found.files.root(), found.barren.front()) +
                      ": a class folder without any file that matches '" + set.config.glob +
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
    log_warn("dataset files outside class folders left out",
             {{"path", files.root()}, {"files", outside}});
  if (files.size() == 0) {
    return Status(Code::kNotFound,
                  set.key("path") + ": " + set.config.path +
                      " holds no folder with pictures; a folder per class is needed");
  }
  return files;
}

// A folder of something else should be told at the start, not as a thousand bad samples: a few
// files are looked at.
Result<std::vector<uint64_t>> inspect_images(const SetRequest& set, const FileTable& files) {
  const FileReader reader(files);
  const size_t probes = std::min(files.size(), kProbes);
  for (size_t probe = 0; probe < probes; ++probe) {
    const size_t file = probe * files.size() / probes;
    std::array<std::byte, image::kFormatBytes> head{};
    const size_t bytes = std::min<uint64_t>(head.size(), files.stamp(file).size);
    STOKER_RETURN_IF_ERROR(
        reader.read(file, 0, std::span(head).first(bytes)).with_context(set.key("path")));
    if (image::format_of(std::span(head).first(bytes)) != image::Format::kUnknown)
      return std::vector<uint64_t>();
  }
  return Status(Code::kCorrupt, set.key("path") + ": none of " + std::to_string(probes) +
                                    " files looked at is a JPEG or PNG, such as " + files.path(0) +
                                    "; narrow the glob to the pictures");
}

Result<std::unique_ptr<Dataset>> open_images(const SetRequest& set, Index index) {
  STOKER_ASSIGN_OR_RETURN(const Split split, Split::of(set));
  ClassSplit samples(index.files, split);
  if (samples.size() == 0) {
    return set.wrong("split", "takes none of the " + std::to_string(index.files.size()) +
                                  " pictures: each class is cut by itself");
  }
  if (const uint64_t empty = samples.classes_without_samples(); empty > 0) {
    log_warn("dataset classes without samples",
             {{"set", set.name}, {"classes", empty}, {"of", samples.classes()}});
  }
  return std::unique_ptr<Dataset>(
      std::make_unique<ImagesDataset>(std::move(index), std::move(samples), shape_of(set.config)));
}

}  // namespace

const Kind& images_kind() {
  static constexpr Kind kKind{.name = "images",
                              .settings = images_settings,
                              .scan = scan_images,
                              .inspect = inspect_images,
                              .open = open_images};
  return kKind;
}

}  // namespace stoker::dataset
