#include "shared/dataset/transformed_dataset.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "shared/dataset/dataset_decorator.h"
#include "shared/dataset/image_geometry.h"
#include "shared/dataset/image_spec.h"
#include "shared/dataset/stage_timer.h"

namespace stoker::dataset {
namespace {

class AugmentedDataset final : public DatasetDecorator {
 public:
  AugmentedDataset(std::unique_ptr<Dataset> dataset, const image::ImageShape& shape,
                   const RandomTransforms& augmentation)
      : DatasetDecorator(*dataset),
        dataset_(std::move(dataset)),
        shape_(shape),
        augmentation_(augmentation) {}

  std::string describe_transforms(uint64_t sample, const RandomKey& random_key) const override {
    std::string text = dataset_->describe_transforms(sample, random_key);
    for (const std::string& part : augmentation_.describe(random_key))
      text += (text.empty() ? "" : " ") + part;
    return text;
  }

  Status read(uint64_t sample, const RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    STOKER_RETURN_IF_ERROR(dataset_->read(sample, random_key, outputs));
    const StageScope transforming(Stage::kTransform);
    augmentation_.apply(shape_, random_key, outputs[0]);
    return {};
  }
  BatchReadResult read_batch(std::span<const SampleReadRequest> samples,
                             std::span<const std::span<std::byte>> rows) const override {
    BatchReadResult read = dataset_->read_batch(samples, rows);
    const StageScope transforming(Stage::kTransform);
    const size_t bytes = rows[0].size() / samples.size();
    for (size_t i = 0; i < read.good; ++i)
      augmentation_.apply(shape_, samples[i].random_key, rows[0].subspan(i * bytes, bytes));
    return read;
  }

 private:
  const std::unique_ptr<Dataset> dataset_;
  const image::ImageShape shape_;
  const RandomTransforms augmentation_;
};

Status check_random_crop(const DatasetRequest& request, const RandomTransforms& augmentation,
                         const image::ImageShape& shape) {
  const std::string sides =
      '[' + std::to_string(shape.height) + ", " + std::to_string(shape.width) + ']';
  const std::vector<int64_t> size{shape.height, shape.width};
  if (!augmentation.size().empty() && augmentation.size() != size)
    return request.config_error("transforms",
                                "random_crop.size must be that of the images, " + sides);
  if (augmentation.pad() >= std::min(shape.height, shape.width)) {
    return request.config_error("transforms",
                                "random_crop.padding is " + std::to_string(augmentation.pad()) +
                                    "; it must be less than the images' sides, " + sides);
  }
  return {};
}

}  // namespace

Status check_transforms(const DatasetRequest& request) {
  const config::Transforms* const transforms = request.config.transforms();
  if (transforms == nullptr || has_encoded_pictures(request.config)) return {};
  const bool resizes = config::find_transform<config::Resize>(*transforms) != nullptr ||
                       config::find_transform<config::CenterCrop>(*transforms) != nullptr ||
                       config::find_transform<config::RandomResizedCrop>(*transforms) != nullptr;
  if (!resizes) return {};
  return request.config_error(
      "transforms",
      "resize, center_crop and random_resized_crop are for encoded images, which this "
      "dataset does not have; remove them");
}

Result<std::unique_ptr<Dataset>> with_transforms(const DatasetRequest& request,
                                                 std::unique_ptr<Dataset> dataset) {
  const config::Transforms* const transforms = request.config.transforms();
  if (transforms == nullptr || transforms->empty()) return dataset;
  const TensorSpec& input = dataset->spec().front();
  if (!is_image(input))
    return request.config_error("transforms",
                                "need uint8 images; the input is " + to_string(input));
  STOKER_ASSIGN_OR_RETURN(const RandomTransforms augmentation, RandomTransforms::of(request));
  const image::ImageShape shape{.channels = static_cast<uint32_t>(input.shape[0]),
                                .height = static_cast<uint32_t>(input.shape[1]),
                                .width = static_cast<uint32_t>(input.shape[2])};
  STOKER_RETURN_IF_ERROR(check_random_crop(request, augmentation, shape));
  if (augmentation.none()) return dataset;
  return std::unique_ptr<Dataset>(
      std::make_unique<AugmentedDataset>(std::move(dataset), shape, augmentation));
}

}  // namespace stoker::dataset
