#include "shared/dataset/augmented_dataset.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "shared/dataset/crop_rule.h"
#include "shared/dataset/dataset_decorator.h"
#include "shared/dataset/picture_spec.h"
#include "shared/dataset/stage_time.h"

namespace stoker::dataset {
namespace {

class AugmentedDataset final : public DatasetDecorator {
 public:
  AugmentedDataset(std::unique_ptr<Dataset> dataset, const image::PictureShape& shape,
                   const Augmentation& augmentation)
      : DatasetDecorator(*dataset),
        dataset_(std::move(dataset)),
        shape_(shape),
        augmentation_(augmentation) {}

  std::string describe_draws(uint64_t sample, const DrawKey& draw) const override {
    std::string text = dataset_->describe_draws(sample, draw);
    for (const std::string& part : augmentation_.describe(draw))
      text += (text.empty() ? "" : " ") + part;
    return text;
  }

  Status read(uint64_t sample, const DrawKey& draw,
              std::span<const std::span<std::byte>> outputs) const override {
    STOKER_RETURN_IF_ERROR(dataset_->read(sample, draw, outputs));
    const InStage transforming(Stage::kTransform);
    augmentation_.apply(shape_, draw, outputs[0]);
    return {};
  }
  RowsRead read_rows(std::span<const SampleRead> samples,
                     std::span<const std::span<std::byte>> rows) const override {
    RowsRead read = dataset_->read_rows(samples, rows);
    const InStage transforming(Stage::kTransform);
    const size_t bytes = rows[0].size() / samples.size();
    for (size_t i = 0; i < read.good; ++i)
      augmentation_.apply(shape_, samples[i].draw, rows[0].subspan(i * bytes, bytes));
    return read;
  }

 private:
  const std::unique_ptr<Dataset> dataset_;
  const image::PictureShape shape_;
  const Augmentation augmentation_;
};

Status check_random_crop(const SetRequest& set, const Augmentation& augmentation,
                         const image::PictureShape& shape) {
  const std::string sides =
      '[' + std::to_string(shape.height) + ", " + std::to_string(shape.width) + ']';
  const std::vector<int64_t> size{shape.height, shape.width};
  if (!augmentation.size().empty() && augmentation.size() != size)
    return set.wrong("transforms", "random_crop.size must be that of the images, " + sides);
  if (augmentation.pad() >= std::min(shape.height, shape.width)) {
    return set.wrong("transforms", "random_crop.padding is " + std::to_string(augmentation.pad()) +
                                       "; it must be less than the images' sides, " + sides);
  }
  return {};
}

}  // namespace

Status check_transforms(const SetRequest& set) {
  const config::Transforms* const transforms = set.config.transforms();
  if (transforms == nullptr || has_encoded_pictures(set.config)) return {};
  const bool resizes = config::find_transform<config::Resize>(*transforms) != nullptr ||
                       config::find_transform<config::CenterCrop>(*transforms) != nullptr ||
                       config::find_transform<config::RandomResizedCrop>(*transforms) != nullptr;
  if (!resizes) return {};
  return set.wrong("transforms",
                   "resize, center_crop and random_resized_crop are for encoded images, which this "
                   "dataset does not have; remove them");
}

Result<std::unique_ptr<Dataset>> augmented(const SetRequest& set,
                                           std::unique_ptr<Dataset> dataset) {
  const config::Transforms* const transforms = set.config.transforms();
  if (transforms == nullptr || transforms->empty()) return dataset;
  const TensorSpec& input = dataset->spec().front();
  if (!is_picture(input))
    return set.wrong("transforms", "need uint8 images; the input is " + to_string(input));
  STOKER_ASSIGN_OR_RETURN(const Augmentation augmentation, Augmentation::of(set));
  const image::PictureShape shape{.channels = static_cast<uint32_t>(input.shape[0]),
                                  .height = static_cast<uint32_t>(input.shape[1]),
                                  .width = static_cast<uint32_t>(input.shape[2])};
  STOKER_RETURN_IF_ERROR(check_random_crop(set, augmentation, shape));
  if (augmentation.none()) return dataset;
  return std::unique_ptr<Dataset>(
      std::make_unique<AugmentedDataset>(std::move(dataset), shape, augmentation));
}

}  // namespace stoker::dataset
