#include "shared/data/cache/decoded_cache.h"

#include <string>
#include <utility>
#include <vector>

#include "shared/base/hash.h"
#include "shared/base/log.h"
#include "shared/data/cache/cache_location.h"
#include "shared/data/cache/decoded_cache_file.h"
#include "shared/data/cache/packed_images.h"
#include "shared/data/dataset_decorator.h"
#include "shared/data/sample_range.h"
#include "shared/data/transform/image_geometry.h"
#include "shared/image/decoder.h"

namespace stoker::data::cache {
namespace {

class DecodedDataset final : public DatasetDecorator, public SampleFiles {
 public:
  // `range`: the samples that have a slot in the file.
  DecodedDataset(std::unique_ptr<Dataset> dataset, std::unique_ptr<DecodedCacheFile> file,
                 const SampleRange& range)
      : DatasetDecorator(*dataset),
        dataset_(std::move(dataset)),
        file_(std::move(file)),
        range_(range),
        info_(dataset_->info()) {
    if (file_->is_writable()) info_.writable_fds.push_back(file_->descriptor());
    info_.maybe_files = this;
  }

  const DatasetInfo& info() const override { return info_; }

  Status read(uint64_t sample, const RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    if (!has_position(sample)) return dataset_->read(sample, random_key, outputs);
    if (file_->take(sample - range_.begin, outputs)) return {};
    STOKER_RETURN_IF_ERROR(dataset_->read(sample, random_key, outputs));
    file_->put(sample - range_.begin, outputs);
    return {};
  }
  void prefetch(uint64_t sample, files::PrefetchedBytes& bytes) const override {
    if (!has_position(sample) || !file_->prefetch(sample - range_.begin, bytes))
      dataset_->info().maybe_files->prefetch(sample, bytes);
  }

 private:
  bool has_position(uint64_t sample) const { return sample >= range_.begin && sample < range_.end; }

  const std::unique_ptr<Dataset> dataset_;
  const std::unique_ptr<DecodedCacheFile> file_;
  const SampleRange range_;
  DatasetInfo info_;
};

bool is_wanted(const DatasetRequest& request) {
  return request.config.cache() && request.config.cache()->type == config::CacheType::kDecoded;
}

CacheLocation location_of(const DatasetRequest& request, const DecodedCacheFile::Form& form) {
  return {request, "samples", form.identity};
}

// The pixels depend on the decoder, so the cache of another decoder version is not valid.
DecodedCacheFile::Form input_form(const Dataset& dataset, const SampleRange& range) {
  DecodedCacheFile::Form form{.samples = range.size(), .tensor_bytes = {}, .identity = {}};
  std::string identity = image::decoder_versions() + '\n' + dataset.fingerprint() + '\n' +
                         std::to_string(range.begin) + '\n';
  for (const TensorSpec& tensor : dataset.spec()) {
    form.tensor_bytes.push_back(tensor.bytes());
    identity += to_string(tensor) + '\n';
  }
  form.identity = sha256_hex(identity);
  return form;
}

}  // namespace

Status validate_cache(const DatasetRequest& request) {
  const config::DatasetFormat format = request.config.format();
  if (is_packed(request) && format != config::DatasetFormat::kImageFolder &&
      format != config::DatasetFormat::kImageList) {
    return request.config_error(
        "cache.type",
        "packed is for image_folder and image_list; this format's samples lie together "
        "already");
  }
  if (!is_wanted(request)) return {};
  if (request.config.cache()->jpeg_restart_markers)
    return request.config_error("cache.jpeg_restart_markers", "requires type: packed");
  if (request.config.has_variable_length())
    return request.config_error(
        "cache.type",
        "decoded cannot be combined with sequence.max_length: a sample has as many "
        "bytes as its batch");
  if (transform::has_random_resized_crop(request.config)) {
    return request.config_error(
        "cache.type",
        "decoded cannot be combined with random_resized_crop, which makes another "
        "image of each file every time; set type: packed with jpeg_restart_markers, or "
        "transforms to resize and random_crop");
  }
  return {};
}

Status create_decoded_cache(const DatasetRequest& request, const Dataset& dataset,
                            const files::ScanProgress& progress) {
  remove_unused_cache(request, "samples", {.type = config::CacheType::kDecoded, .dir = {}});
  if (!is_wanted(request)) return {};
  STOKER_ASSIGN_OR_RETURN(const SampleRange range, selected_range(request, dataset.size()));
  const DecodedCacheFile::Form form = input_form(dataset, range);
  return DecodedCacheFile::make(location_of(request, form), form, progress);
}

Result<std::unique_ptr<Dataset>> with_decoded_cache(const DatasetRequest& request,
                                                    std::unique_ptr<Dataset> dataset) {
  if (!is_wanted(request)) return dataset;
  STOKER_ASSIGN_OR_RETURN(const SampleRange range, selected_range(request, dataset->size()));
  DecodedCacheFile::Form form = input_form(*dataset, range);
  auto file = DecodedCacheFile::open(location_of(request, form), form);
  if (file.ok())
    return std::unique_ptr<Dataset>(
        std::make_unique<DecodedDataset>(std::move(dataset), *std::move(file), range));
  log_warn("decoded cache disabled",
           {{"dataset", request.name}, {"reason", file.status().message()}});
  return dataset;
}

}  // namespace stoker::data::cache
