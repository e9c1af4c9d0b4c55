#include "shared/dataset/decoded_dataset.h"

#include <string>
#include <utility>
#include <vector>

#include "shared/base/log.h"
#include "shared/base/sha256.h"
#include "shared/dataset/cache_place.h"
#include "shared/dataset/crop_rule.h"
#include "shared/dataset/dataset_decorator.h"
#include "shared/dataset/picture_pack.h"
#include "shared/dataset/sample_file.h"
#include "shared/dataset/taken_part.h"
#include "shared/image/decoder.h"

namespace stoker::dataset {
namespace {

class DecodedDataset final : public DatasetDecorator {
 public:
  // `part`: the samples that the file has places for.
  DecodedDataset(std::unique_ptr<Dataset> dataset, std::unique_ptr<SampleFile> file,
                 const Part& part)
      : DatasetDecorator(*dataset),
        dataset_(std::move(dataset)),
        file_(std::move(file)),
        part_(part) {}

  Status read(uint64_t sample, const DrawKey& draw,
              std::span<const std::span<std::byte>> outputs) const override {
    if (!has_place(sample)) return dataset_->read(sample, draw, outputs);
    if (file_->take(sample - part_.begin, outputs)) return {};
    STOKER_RETURN_IF_ERROR(dataset_->read(sample, draw, outputs));
    file_->put(sample - part_.begin, outputs);
    return {};
  }
  void prefetch(uint64_t sample, PrefetchedBytes& bytes) const override {
    if (!has_place(sample) || !file_->prefetch(sample - part_.begin, bytes))
      dataset_->prefetch(sample, bytes);
  }
  std::vector<int> writes_to() const override {
    std::vector<int> descriptors = dataset_->writes_to();
    descriptors.push_back(file_->descriptor());
    return descriptors;
  }

 private:
  bool has_place(uint64_t sample) const { return sample >= part_.begin && sample < part_.end; }

  const std::unique_ptr<Dataset> dataset_;
  const std::unique_ptr<SampleFile> file_;
  const Part part_;
};

bool is_wanted(const SetRequest& set) {
  return set.config.cache() && set.config.cache()->type == config::CacheType::kDecoded;
}

CachePlace place_of(const SetRequest& set, const SampleFile::Form& form) {
  return {set, "samples", form.identity};
}

// A picture is what its decoder makes of it, so another version's are other samples.
SampleFile::Form form_of(const Dataset& dataset, const Part& part) {
  SampleFile::Form form{.samples = part.size(), .tensor_bytes = {}, .identity = {}};
  std::string identity = image::decoder_versions() + '\n' + dataset.fingerprint() + '\n' +
                         std::to_string(part.begin) + '\n';
  for (const TensorSpec& tensor : dataset.spec()) {
    form.tensor_bytes.push_back(tensor.bytes());
    identity += to_string(tensor) + '\n';
  }
  form.identity = sha256_hex(identity);
  return form;
}

}  // namespace

Status check_cache(const SetRequest& set) {
  const config::DatasetFormat format = set.config.format();
  if (is_packed(set) && format != config::DatasetFormat::kImageFolder &&
      format != config::DatasetFormat::kImageList) {
    return set.wrong(
        "cache.type",
        "packed is for image_folder and image_list; this format's samples lie together "
        "already");
  }
  if (!is_wanted(set)) return {};
  if (set.config.cache()->jpeg_restart_markers)
    return set.wrong("cache.jpeg_restart_markers", "requires type: packed");
  if (set.config.has_variable_length())
    return set.wrong("cache.type",
                     "decoded cannot be combined with sequence.max_length: a sample has as many "
                     "bytes as its batch");
  if (has_random_resized_crop(set.config)) {
    return set.wrong(
        "cache.type",
        "decoded cannot be combined with random_resized_crop, which makes another "
        "image of each file every time; set type: packed with jpeg_restart_markers, or "
        "transforms to resize and random_crop");
  }
  return {};
}

Status make_decoded_file(const SetRequest& set, const Dataset& dataset,
                         const ScanProgress& progress) {
  remove_unless_kept(set, "samples", {.type = config::CacheType::kDecoded, .dir = {}});
  if (!is_wanted(set)) return {};
  STOKER_ASSIGN_OR_RETURN(const Part part, samples_taken(set, dataset.size()));
  const SampleFile::Form form = form_of(dataset, part);
  const CachePlace place = place_of(set, form);
  STOKER_ASSIGN_OR_RETURN(const FileLock lock, place.lock(progress));
  return SampleFile::make(place.path(), form).with_context(set.key("cache"));
}

Result<std::unique_ptr<Dataset>> with_decoded_file(const SetRequest& set,
                                                   std::unique_ptr<Dataset> dataset) {
  if (!is_wanted(set)) return dataset;
  STOKER_ASSIGN_OR_RETURN(const Part part, samples_taken(set, dataset->size()));
  SampleFile::Form form = form_of(*dataset, part);
  auto file = SampleFile::open(place_of(set, form).path(), form);
  if (file.ok())
    return std::unique_ptr<Dataset>(
        std::make_unique<DecodedDataset>(std::move(dataset), *std::move(file), part));
  log_warn("decoded cache disabled", {{"dataset", set.name}, {"reason", file.status().message()}});
  return dataset;
}

}  // namespace stoker::dataset
