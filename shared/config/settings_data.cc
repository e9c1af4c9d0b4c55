// The settings of a dataset, data.NAME: a list of descriptors per format.
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/config/schema.h"

namespace stoker::config {
namespace {

using namespace std::string_view_literals;

constexpr double kMaxSamples = 1e15;  // so that no product of two settings overflows
constexpr double kMaxClasses = 1e6;
constexpr double kMaxElements = 1e9;  // per dimension
constexpr double kMaxTokens = 1e6;    // per sample
constexpr double kMaxSide = 16384;    // pixels

// For settings that determine the samples.
Field sample_field(Field field) {
  field.affects_result = true;
  field.on_resume = OnResume::kData;
  return field;
}

// ---- transforms ---------------------------------------------------------------------------------

Field size_field(std::vector<int64_t>& size, std::string_view help, std::string_view details,
                 std::string_view example) {
  return sample_field({.name = "size",
                       .target = &size,
                       .help = help,
                       .details = details,
                       .min = 1,
                       .max = kMaxSide,
                       .accepts_scalar = true,
                       .is_required = true,
                       .example = example});
}

Field resize_interpolation_field(Interpolation& interpolation) {
  return sample_field(
      {.name = "interpolation",
       .target = choice(interpolation),
       .help = "Interpolation between pixels",
       .details =
           "As Pillow's, with antialiasing unless nearest. A JPEG that is reduced to half or "
           "less is first reduced by its decoder."});
}

Fields fields_of(Resize& resize) {
  return {size_field(resize.size, "Size after resizing, in pixels",
                     "[height, width], each 1 to 16384. The aspect ratio is not preserved. One "
                     "number is the length of the shorter side; it preserves the aspect ratio and "
                     "requires a center_crop after it.",
                     "[224, 224]"),
          resize_interpolation_field(resize.interpolation)};
}

Fields fields_of(CenterCrop& crop) {
  return {size_field(crop.size, "Size of the crop, in pixels",
                     "[height, width], or one number for a square. It must fit into the resized "
                     "image. resize: {size: 256} and center_crop: {size: 224} are executed as one "
                     "crop and one resize, of the pixels that torchvision's two have.",
                     "224")};
}

Fields fields_of(RandomResizedCrop& crop) {
  return {size_field(crop.size, "Size of the resized crop, in pixels",
                     "[height, width], or one number for a square; each 1 to 16384.", "224"),
          sample_field({.name = "scale",
                        .target = &crop.scale,
                        .help = "Minimum and maximum area of the crop, as fractions of the image",
                        .details = "Above 0, at most 1. The area is sampled uniformly. After ten "
                                   "attempts without a crop that fits, the largest central crop "
                                   "with an allowed ratio is used.",
                        .min = 0,
                        .max = 1,
                        .exclusive_min = true}),
          sample_field({.name = "ratio",
                        .target = &crop.ratio,
                        .help = "Minimum and maximum aspect ratio of the crop, width / height",
                        .details = "Above 0, at most 1000. The logarithm of the ratio is sampled "
                                   "uniformly.",
                        .min = 0,
                        .max = 1000,
                        .exclusive_min = true}),
          resize_interpolation_field(crop.interpolation)};
}

Fields fields_of(RandomCrop& crop) {
  return {size_field(crop.size, "Size of the incoming image, in pixels",
                     "[height, width], or one number for a square. The size does not change: the "
                     "image is padded, and a region of its former size is cropped at a random "
                     "position.",
                     "32"),
          sample_field({.name = "padding",
                        .target = &crop.padding,
                        .help = "Black pixels added on each side before the crop",
                        .details = "Less than the sides of the image. 4 is usual for CIFAR.",
                        .min = 0,
                        .max = kMaxSide - 1})};
}

Fields fields_of(RandomHorizontalFlip& flip) {
  return {sample_field({.name = "p",
                        .target = &flip.p,
                        .help = "Probability that the image is flipped horizontally; 0 to 1",
                        .min = 0,
                        .max = 1})};
}

Field jitter_field(std::string_view name, double& target, std::string_view help,
                   std::string_view details, double max) {
  return sample_field(
      {.name = name, .target = &target, .help = help, .details = details, .min = 0, .max = max});
}

Fields fields_of(ColorJitter& jitter) {
  constexpr double kMaxJitter = 100;
  constexpr auto kFactor =
      "0 to 100; 0 disables it. The factor is sampled from [max(0, 1 - x), 1 + x]."sv;
  return {
      jitter_field("brightness", jitter.brightness, "Amount of random brightness", kFactor,
                   kMaxJitter),
      jitter_field("contrast", jitter.contrast, "Amount of random contrast", kFactor, kMaxJitter),
      jitter_field("saturation", jitter.saturation,
                   "Amount of random saturation; no effect on gray images", kFactor, kMaxJitter),
      jitter_field("hue", jitter.hue, "Amount of random hue; no effect on gray images",
                   "0 to 0.5; 0 disables it. The shift is sampled from [-x, x].", 0.5)};
}

// ---- random transforms --------------------------------------------------------------------------

Field p_field(double& p, std::string_view help) {
  return sample_field({.name = "p", .target = &p, .help = help, .min = 0, .max = 1});
}

Field interpolation_field(Interpolation& interpolation) {
  return sample_field({.name = "interpolation",
                       .target = choice(interpolation),
                       .help = "Interpolation between pixels: nearest or bilinear"});
}

// `is_optional`: of a policy, whose default is torchvision's None.
Field fill_field(std::vector<double>& fill, bool is_optional = false) {
  return sample_field(
      {.name = "fill",
       .target = &fill,
       .help = "Levels of pixels that come from outside the image",
       .details = is_optional
                      ? "0 to 255; one number for all channels, or one per channel. null: black, "
                        "also between the pixels at the edge."
                      : "0 to 255; one number for all channels, or one per channel.",
       .min = 0,
       .max = 255,
       .accepts_null = is_optional,
       .accepts_scalar = true});
}

Field degrees_field(std::vector<double>& degrees) {
  return sample_field({.name = "degrees",
                       .target = &degrees,
                       .help = "Range of the angle, in degrees",
                       .details = "[from, to], or one number x for [-x, x]; -360 to 360. "
                                  "Positive angles turn as torchvision's: random_rotation "
                                  "counterclockwise, random_affine clockwise.",
                       .min = -360,
                       .max = 360,
                       .accepts_scalar = true,
                       .is_required = true,
                       .example = "[-15, 15]"});
}

Fields fields_of(RandomVerticalFlip& flip) {
  return {p_field(flip.p, "Probability that the image is flipped vertically; 0 to 1")};
}

Fields fields_of(RandomRotation& rotation) {
  return {degrees_field(rotation.degrees), interpolation_field(rotation.interpolation),
          fill_field(rotation.fill)};
}

Fields fields_of(RandomAffine& affine) {
  return {degrees_field(affine.degrees),
          sample_field({.name = "translate",
                        .target = &affine.translate,
                        .help = "Largest shift, as fractions of width and height; null: none",
                        .details = "Two numbers from 0 to 1. The shift is in whole pixels.",
                        .min = 0,
                        .max = 1,
                        .accepts_null = true,
                        .example = "[0.1, 0.1]"}),
          sample_field({.name = "scale",
                        .target = &affine.scale,
                        .help = "Minimum and maximum factor of the size; null: 1",
                        .min = 0,
                        .max = 100,
                        .exclusive_min = true,
                        .accepts_null = true,
                        .example = "[0.8, 1.2]"}),
          sample_field({.name = "shear",
                        .target = &affine.shear,
                        .help = "Range of the shear, in degrees; null: none",
                        .details = "One number x for [-x, x] or [from, to], along x; or [x from, x "
                                   "to, y from, y to]. -89 to 89.",
                        .min = -89,
                        .max = 89,
                        .accepts_null = true,
                        .accepts_scalar = true,
                        .example = "10"}),
          interpolation_field(affine.interpolation),
          fill_field(affine.fill)};
}

Fields fields_of(RandomPerspective& perspective) {
  return {sample_field({.name = "distortion_scale",
                        .target = &perspective.distortion_scale,
                        .help = "How far the corners move: 1 is up to half of the image",
                        .min = 0,
                        .max = 1}),
          p_field(perspective.p, "Probability of the transform; 0 to 1"),
          interpolation_field(perspective.interpolation), fill_field(perspective.fill)};
}

Fields fields_of(GaussianBlur& blur) {
  return {sample_field({.name = "kernel_size",
                        .target = &blur.kernel_size,
                        .help = "Side of the kernel, in pixels; odd",
                        .details = "1 to 255. Half of it must be less than the sides of the image.",
                        .min = 1,
                        .max = 255,
                        .is_required = true,
                        .example = "23"}),
          sample_field({.name = "sigma",
                        .target = &blur.sigma,
                        .help = "Range of the standard deviation, in pixels",
                        .details = "[from, to], or one number.",
                        .min = 0,
                        .max = 1000,
                        .exclusive_min = true,
                        .accepts_scalar = true})};
}

Fields fields_of(RandomGrayscale& grayscale) {
  return {p_field(grayscale.p, "Probability that the image becomes gray; 0 to 1")};
}

Fields fields_of(RandomInvert& invert) {
  return {p_field(invert.p, "Probability that the levels are inverted; 0 to 1")};
}

Fields fields_of(RandomPosterize& posterize) {
  return {sample_field({.name = "bits",
                        .target = &posterize.bits,
                        .help = "Bits of each level that are kept; 0 to 8",
                        .min = 0,
                        .max = 8,
                        .is_required = true,
                        .example = "4"}),
          p_field(posterize.p, "Probability of the transform; 0 to 1")};
}

Fields fields_of(RandomSolarize& solarize) {
  return {sample_field({.name = "threshold",
                        .target = &solarize.threshold,
                        .help = "Levels of at least this are inverted; 0 to 255",
                        .min = 0,
                        .max = 255,
                        .is_required = true,
                        .example = "128"}),
          p_field(solarize.p, "Probability of the transform; 0 to 1")};
}

Fields fields_of(RandomAdjustSharpness& sharpness) {
  return {sample_field({.name = "sharpness_factor",
                        .target = &sharpness.sharpness_factor,
                        .help = "Sharpness: 0 blurs, 1 changes nothing, 2 sharpens twice",
                        .min = 0,
                        .max = 100,
                        .is_required = true,
                        .example = "2"}),
          p_field(sharpness.p, "Probability of the transform; 0 to 1")};
}

Fields fields_of(RandomAutocontrast& autocontrast) {
  return {p_field(autocontrast.p, "Probability that the levels are stretched to 0 to 255; 0 to 1")};
}

Fields fields_of(RandomEqualize& equalize) {
  return {p_field(equalize.p, "Probability that the histogram is equalized; 0 to 1")};
}

// ---- policies -----------------------------------------------------------------------------------

constexpr double kMaxBins = 1000;

Field bins_field(int64_t& bins) {
  return sample_field({.name = "num_magnitude_bins",
                       .target = &bins,
                       .help = "Number of magnitudes between none and the largest",
                       .min = 2,
                       .max = kMaxBins});
}

Fields fields_of(RandAugment& policy) {
  return {sample_field({.name = "num_ops",
                        .target = &policy.num_ops,
                        .help = "Number of operators that are applied to an image",
                        .min = 0,
                        .max = 100}),
          sample_field({.name = "magnitude",
                        .target = &policy.magnitude,
                        .help = "Magnitude of all operators, from 0; below num_magnitude_bins",
                        .min = 0,
                        .max = kMaxBins - 1}),
          bins_field(policy.num_magnitude_bins), interpolation_field(policy.interpolation),
          fill_field(policy.fill, true)};
}

Fields fields_of(TrivialAugmentWide& policy) {
  return {bins_field(policy.num_magnitude_bins), interpolation_field(policy.interpolation),
          fill_field(policy.fill, true)};
}

Fields fields_of(AutoAugment& policy) {
  return {sample_field({.name = "policy",
                        .target = choice(policy.policy),
                        .help = "Data that the policy was learned on: imagenet, cifar10, svhn"}),
          interpolation_field(policy.interpolation), fill_field(policy.fill, true)};
}

Fields fields_of(AugMix& policy) {
  return {sample_field({.name = "severity",
                        .target = &policy.severity,
                        .help = "Bound of the magnitudes, 1 to 10",
                        .min = 1,
                        .max = 10}),
          sample_field({.name = "mixture_width",
                        .target = &policy.mixture_width,
                        .help = "Number of chains of operators",
                        .min = 1,
                        .max = 100}),
          sample_field({.name = "chain_depth",
                        .target = &policy.chain_depth,
                        .help = "Operators of a chain; null: 1 to 3, at random",
                        .details = "null is torchvision's -1.",
                        .min = 1,
                        .max = 100}),
          sample_field({.name = "alpha",
                        .target = &policy.alpha,
                        .help = "Parameter of the distributions of the weights",
                        .min = 1e-3,
                        .max = 1e3}),
          sample_field({.name = "all_ops",
                        .target = &policy.all_ops,
                        .help = "Use brightness, color, contrast and sharpness too"}),
          interpolation_field(policy.interpolation),
          fill_field(policy.fill, true)};
}

Fields fields_of(RandomErasing& erasing) {
  return {p_field(erasing.p, "Probability that a rectangle is erased; 0 to 1"),
          sample_field({.name = "scale",
                        .target = &erasing.scale,
                        .help = "Minimum and maximum area, as fractions of the image",
                        .min = 0,
                        .max = 1,
                        .exclusive_min = true}),
          sample_field({.name = "ratio",
                        .target = &erasing.ratio,
                        .help = "Minimum and maximum aspect ratio, height / width",
                        .min = 0,
                        .max = 1000,
                        .exclusive_min = true}),
          sample_field({.name = "value",
                        .target = &erasing.value,
                        .help = "Levels of the erased pixels",
                        .details =
                            "0 to 255; one number for all channels, or one per channel. Images are "
                            "erased before normalize: recipes that erase after it, with 0, erase "
                            "with 255 times the mean.",
                        .min = 0,
                        .max = 255,
                        .accepts_scalar = true,
                        .example = "[124, 116, 104]"})};
}

Fields fields_of(Normalize& normalize) {
  constexpr double kMaxPixel = 1e3;
  return {sample_field({.name = "mean",
                        .target = &normalize.mean,
                        .help = "Mean that is subtracted, of values in [0, 1]",
                        .details = "One number for all channels, or one per channel. A uint8 value "
                                   "x becomes (x / 255 - mean) / std.",
                        .min = -kMaxPixel,
                        .max = kMaxPixel,
                        .accepts_scalar = true,
                        .is_required = true,
                        .example = "[0.485, 0.456, 0.406]"}),
          sample_field({.name = "std",
                        .target = &normalize.std,
                        .help = "Standard deviation by which values are divided",
                        .details = "Above 0; as many numbers as mean has.",
                        .min = 0,
                        .max = kMaxPixel,
                        .exclusive_min = true,
                        .accepts_scalar = true,
                        .is_required = true,
                        .example = "[0.229, 0.224, 0.225]"})};
}

constexpr auto kTransformNames = std::to_array({"resize"sv,
                                                "center_crop"sv,
                                                "random_resized_crop"sv,
                                                "random_crop"sv,
                                                "random_horizontal_flip"sv,
                                                "random_vertical_flip"sv,
                                                "random_rotation"sv,
                                                "random_affine"sv,
                                                "random_perspective"sv,
                                                "color_jitter"sv,
                                                "gaussian_blur"sv,
                                                "random_grayscale"sv,
                                                "random_invert"sv,
                                                "random_posterize"sv,
                                                "random_solarize"sv,
                                                "random_adjust_sharpness"sv,
                                                "random_autocontrast"sv,
                                                "random_equalize"sv,
                                                "rand_augment"sv,
                                                "trivial_augment_wide"sv,
                                                "auto_augment"sv,
                                                "aug_mix"sv,
                                                "random_erasing"sv,
                                                "normalize"sv});
static_assert(kTransformNames.size() == std::variant_size_v<Transform>);

Fields transform_fields(Transform& transform) {
  return std::visit([](auto& each) { return fields_of(each); }, transform);
}

Field transforms_field(Transforms& transforms, std::string_view details, std::string_view example) {
  return sample_field({.name = "transforms",
                       .target = tagged_list<transform_fields>(transforms, kTransformNames),
                       .help = "Image transforms, those of torchvision.transforms.v2",
                       .details = details,
                       .example = example});
}

Field encoded_image_transforms(Transforms& transforms) {
  return transforms_field(
      transforms,
      "First resize, or resize and center_crop, or random_resized_crop, of which one is required "
      "for encoded images; then random transforms, in the order of the list; normalize last; each "
      "at most once. Parameters and defaults are those of torchvision; resizing uses "
      "antialiasing, unless nearest. Random choices depend only on "
      "run.seed, the epoch and the sample. normalize runs on the device; a dataset without it "
      "uses that of data.train, and without any, inputs are in [0, 1].",
      "[resize: {size: 256}, center_crop: {size: 224}]");
}

Field decoded_image_transforms(Transforms& transforms) {
  return transforms_field(
      transforms,
      "For uint8 images only. Random transforms, in the order of the list; normalize last; each at "
      "most once. Parameters and defaults are those of "
      "torchvision. Random choices depend only on run.seed, the epoch and the sample. normalize "
      "runs on the device; a dataset without it uses that of data.train, and without any, inputs "
      "are in [0, 1].",
      "[random_crop: {size: 32, padding: 4}, random_horizontal_flip]");
}

// ---- batch transforms ---------------------------------------------------------------------------

Field alpha_field(double& alpha, std::string_view details) {
  return sample_field({.name = "alpha",
                       .target = &alpha,
                       .help = "Parameter of the Beta(alpha, alpha) distribution; above 0",
                       .details = details,
                       .min = 0,
                       .max = 1e3,
                       .exclusive_min = true});
}

Fields fields_of(Mixup& mixup) {
  return {alpha_field(mixup.alpha,
                      "Each sample is averaged with the previous one in the batch, and its label "
                      "with that sample's label. The weight is sampled once per batch. 0.2 is "
                      "usual.")};
}

Fields fields_of(Cutmix& cutmix) {
  return {alpha_field(cutmix.alpha,
                      "A region of each image is replaced by that of the previous one in the "
                      "batch, and the same fraction of its label. 1.0 is usual.")};
}

constexpr auto kBatchTransformNames = std::to_array({"mixup"sv, "cutmix"sv, "random_choice"sv});
static_assert(kBatchTransformNames.size() == std::variant_size_v<BatchTransform>);

Fields choice_fields(std::variant<Mixup, Cutmix>& transform) {
  return std::visit([](auto& each) { return fields_of(each); }, transform);
}

Fields fields_of(RandomChoice& choice) {
  return {sample_field({.name = "",
                        .target = tagged_list<choice_fields>(
                            choice.transforms, std::span(kBatchTransformNames).first<2>()),
                        .help = "Transforms of which each batch gets one, with equal probability",
                        .is_required = true,
                        .example = "[mixup: {alpha: 0.2}, cutmix: {alpha: 1.0}]"})};
}

Fields batch_transform_fields(BatchTransform& transform) {
  return std::visit([](auto& each) { return fields_of(each); }, transform);
}

Field batch_transforms_field(std::vector<BatchTransform>& transforms) {
  return sample_field(
      {.name = "batch_transforms",
       .target = tagged_list<batch_transform_fields>(transforms, kBatchTransformNames),
       .help = "Transforms applied to batches, on the device: mixup, cutmix, random_choice",
       .details = "Those of torchvision.transforms.v2. Only in data.train and with task "
                  "classification; evaluation does not apply them. Random choices depend on "
                  "run.seed and the batch, so a resumed run mixes the same batches in the same "
                  "way. Use them with feed.shuffle: each sample is mixed with its neighbor in the "
                  "batch.",
       .example = "[random_choice: [mixup: {alpha: 0.2}, cutmix: {alpha: 1.0}]]"});
}

// ---- files --------------------------------------------------------------------------------------

Field path_field(std::string& path, std::string_view help, std::string_view details,
                 std::string_view example) {
  return {.name = "path",
          .target = &path,
          .help = help,
          .details = details,
          .is_required = true,
          .example = example};
}

// Of a format that can be streamed.
Field streamed_path_field(std::string& path, std::string_view help, std::string_view details,
                          std::string_view example) {
  Field field = path_field(path, help, details, example);
  field.replaced_by = "stream";
  return field;
}

constexpr auto kFilesAreFixed =
    "Files must not change during a run, except as refresh allows. A run is tied to their names, "
    "sizes and modification times, not to their location."sv;
Field glob_field(std::string& glob, std::string_view example = {}) {
  return sample_field(
      {.name = "glob",
       .target = &glob,
       .help = "Files that are read if path is a folder; relative to path",
       .details = "The default has the names of this format. * and ? match within a name, ** any "
                  "number of folders, [a-z] a character, {a,b} "
                  "alternatives, {000..146} a range of numbers. Names that start with a dot match "
                  "only patterns that start with one. If a range of shards is the only wildcard, "
                  "a missing shard is an error. Not used if path is a file.",
       .example = example});
}

Field refresh_field(Refresh& refresh) {
  return {.name = "refresh",
          .target = choice(refresh),
          .help = "When data that is appended during a run is added: never, epoch, immediate",
          .details =
              "epoch: when the next epoch starts. immediate: as soon as it is found; a new "
              "epoch then starts. Existing data must not change: files can be added, and "
              "those of text, tokens, csv and jsonl appended to by complete rows. Only for "
              "datasets used by training, without skip_samples, max_samples, "
              "sample_weights_path and cache, and with split only if split_by is random or group. "
              "feed.refresh_interval_seconds sets the time "
              "between scans."};
}

Field image_mode_field(ImageMode& mode) {
  return sample_field({.name = "image_mode",
                       .target = choice(mode),
                       .help = "Channels of decoded images: rgb (3) or gray (1)",
                       .details = "Images in other color modes are converted; alpha is dropped."});
}

Field max_image_pixels_field(int64_t& pixels) {
  return {.name = "max_image_pixels",
          .target = &pixels,
          .help = "Largest number of pixels of an encoded image",
          .details =
              "1 to 4294836225. Larger images are sample errors, before memory is allocated. "
              "Each pixel can need 10 bytes of feed.worker_memory_limit_mib.",
          .min = 1,
          .max = 65535.0 * 65535.0};
}

Field exif_orientation_field(bool& applies) {
  return sample_field(
      {.name = "apply_exif_orientation",
       .target = &applies,
       .help = "Turn images upright, as the EXIF data of their files says",
       .details = "As Pillow's ImageOps.exif_transpose(), before all transforms. The log has the "
                  "number of images that were turned."});
}

Field num_classes_field(std::optional<int64_t>& num_classes) {
  return sample_field({.name = "num_classes",
                       .target = &num_classes,
                       .help = "Number of classes; null: inferred from the labels",
                       .details = "1 to 1000000. Inferred, it is the largest label + 1, or the "
                                  "number of class names. A label that is too large is an error.",
                       .min = 1,
                       .max = kMaxClasses});
}

Field class_names_field(std::vector<std::string>& class_names) {
  return sample_field(
      {.name = "class_names",
       .target = &class_names,
       .help = "Names of the classes, in their order; null: inferred from the labels",
       .details = "Class 0 is the first. A label that is none of them is an error, except an index "
                  "from 0 if no name is an integer. Use it to fix the order, for labels of which "
                  "some are numbers and some are not, and for classes without samples.",
       .accepts_null = true,
       .example = "[cat, dog]"});
}

// ---- cache --------------------------------------------------------------------------------------

template <typename Cache>
Field cache_dir_field(Cache& cache) {
  return {.name = "dir",
          .target = &cache.dir,
          .help = "Folder of cached files, shared by runs; null: inside the run directory",
          .details =
              "Runs that read the same data share its files: the first one creates them. "
              "File names identify the content. Nothing is removed automatically."};
}

Fields image_cache_fields(CacheConfig& cache) {
  return {
      {.name = "type",
       .target = choice(cache.type),
       .help = "What is cached: packed (the files) or decoded (the samples)",
       .details = "packed: one file with all files of the dataset, written before the first "
                  "step. It needs their disk space once more, and helps with many small images "
                  "and with slow or remote storage. decoded: one file with each sample as it is "
                  "after decoding and resizing, height x width x channels bytes per image, so "
                  "that images are decoded in the first epoch only. decoded cannot be combined "
                  "with random_resized_crop."},
      {.name = "jpeg_restart_markers",
       .target = &cache.jpeg_restart_markers,
       .help = "Add restart markers to packed JPEGs, so that regions decode separately",
       .details = "Lossless, as jpegtran -restart. Random crops of photographs are decoded a "
                  "third faster, because only the region is decoded. Costs about 3 ms of CPU "
                  "time per photograph, once, and about 1 % of disk space. Slows resizing of "
                  "complete images by about 4 %. Only for type packed."},
      cache_dir_field(cache)};
}

Fields record_cache_fields(CacheConfig& cache) {
  return {{.name = "type",
           .target = choice(cache.type),
           .help = "What is cached: decoded (the samples)",
           .details = "One file with each sample as it is after decoding and resizing, so that "
                      "images are decoded in the first epoch only. Cannot be combined with "
                      "random_resized_crop. packed is not supported.",
           .is_required = true,
           .example = "decoded"},
          cache_dir_field(cache)};
}

template <auto fields_of_cache>
Field cache_field(std::optional<CacheConfig>& cache, std::string_view example) {
  return {.name = "cache",
          .target = mapping<fields_of_cache>(cache),
          .help = "Cached form of the images; null: read and decode them each time",
          .details =
              "A cache does not change the samples and can be enabled or disabled whenever "
              "a run is started.",
          .example = example};
}

Field image_cache_field(std::optional<CacheConfig>& cache) {
  return cache_field<image_cache_fields>(cache, "{type: packed, jpeg_restart_markers: true}");
}

Field record_cache_field(std::optional<CacheConfig>& cache) {
  return cache_field<record_cache_fields>(cache, "{type: decoded}");
}

// ---- sequences ----------------------------------------------------------------------------------

Field block_size_field(SequenceConfig& sequence) {
  return sample_field({.name = "block_size",
                       .target = &sequence.block_size,
                       .help = "Tokens per sample; null: model.context_length",
                       .details = "The stream of tokens is cut into blocks of this size. A sample "
                                  "has one more token, so that each token has a next one to "
                                  "predict. At most model.context_length. Cannot be combined with "
                                  "max_length.",
                       .min = 1,
                       .max = kMaxTokens});
}

Field max_length_field(SequenceConfig& sequence, std::string_view details) {
  return sample_field({.name = "max_length",
                       .target = &sequence.max_length,
                       .help = "Maximum length of variable-length samples; null: fixed size",
                       .details = details,
                       .min = 1,
                       .max = kMaxTokens});
}

Fields stream_fields(SequenceConfig& sequence) { return {block_size_field(sequence)}; }

Fields array_sequence_fields(SequenceConfig& sequence) {
  return {max_length_field(
      sequence,
      "The second dimension of the arrays; the dimensions after it are the shape of a time step. "
      "Each row is a sequence, as long as lengths_path or fields.length says. Samples are padded "
      "to "
      "max_length or to the boundary of their bucket (feed.bucket_boundaries), and have a tensor "
      "`length`.")};
}

Field max_captions_field(SequenceConfig& sequence) {
  return sample_field({.name = "max_captions",
                       .target = &sequence.max_captions,
                       .help = "Number of captions of an image that are trained on",
                       .details = "From 1 to 100; the first ones, for fields.caption. Those of an "
                                  "image are in one sample. Evaluation compares with all.",
                       .min = 1,
                       .max = 100});
}

// image_list
Fields caption_sequence_fields(SequenceConfig& sequence) {
  return {max_captions_field(sequence),
          sample_field({.name = "on_overflow",
                        .target = choice(sequence.on_overflow),
                        .help = "What to do with captions longer than max_label_length",
                        .details = "error: a sample error. truncate: use their first words. drop "
                                   "is not supported."}),
          sample_field({.name = "max_label_length",
                        .target = &sequence.max_label_length,
                        .help = "Maximum number of words of a caption, with its end",
                        .details = "null: model.max_length.",
                        .min = 1,
                        .max = kMaxTokens})};
}

Fields record_sequence_fields(SequenceConfig& sequence) {
  return {
      block_size_field(sequence),
      max_length_field(sequence,
                       "Time steps of an input, bytes of a text, or tokens; 1 to 1000000. "
                       "Samples are padded to it or to the boundary of their bucket "
                       "(feed.bucket_boundaries), and have a tensor `length`. Cannot be "
                       "combined with block_size."),
      sample_field({.name = "on_overflow",
                    .target = choice(sequence.on_overflow),
                    .help = "What to do with samples longer than max_length",
                    .details = "error: report the first one and their number, and do not "
                               "start. truncate: use the first max_length time steps and their "
                               "labels. drop: drop the samples. Truncated and dropped samples "
                               "are counted in the log."}),
      sample_field({.name = "packing",
                    .target = &sequence.packing,
                    .help = "Put several documents into a sample instead of padding",
                    .details = "For language models over text, messages or input_ids: each "
                               "sample is filled "
                               "with whole documents up to max_length. Attention, positions and "
                               "loss do not cross documents, so the loss per token is that of "
                               "documents alone. Requires max_length and model gpt, gpt2 or llama. "
                               "skip_samples, max_samples and split count documents; repeat, "
                               "train.micro_batch_size and eval.max_samples count samples. Cannot "
                               "be combined with feed.bucket_boundaries, sample_weights_path and "
                               "stream."}),
      sample_field({.name = "max_label_length",
                    .target = &sequence.max_label_length,
                    .help = "Maximum number of labels per sample, for CTC and captions",
                    .details = "null: one label per time step. A number: fields.labels has up "
                               "to that many labels, whatever the length of the sample; shorter "
                               "ones are padded with -100. Requires max_length and "
                               "fields.labels, or fields.caption: words of a caption and its "
                               "end; null: model.max_length.",
                    .min = 1,
                    .max = kMaxTokens})};
}

// tfrecord, webdataset
Fields shard_sequence_fields(SequenceConfig& sequence) {
  Fields fields = record_sequence_fields(sequence);
  fields.push_back(max_captions_field(sequence));
  return fields;
}

template <auto fields_of_sequence>
Field sequence_field(SequenceConfig& sequence, std::string_view help, std::string_view example) {
  return sample_field({.name = "sequence",
                       .target = mapping<fields_of_sequence>(sequence),
                       .help = help,
                       .example = example});
}

Field stream_field(SequenceConfig& sequence) {
  return sequence_field<stream_fields>(sequence, "How the stream of tokens is cut into samples",
                                       "{block_size: 128}");
}

Fields token_cache_fields(TokenCacheConfig& cache) { return {cache_dir_field(cache)}; }

// ---- tokenizer ----------------------------------------------------------------------------------

Fields tokenizer_fields(TokenizerConfig& tokenizer) {
  return {
      sample_field(
          {.name = "path",
           .target = &tokenizer.path,
           .help =
               "File: tokenizer.json, .tiktoken, SentencePiece, or for captions a word per line",
           .details =
               "Recognized by its content. Text: byte-level BPE, with the ids of Hugging Face's "
               "tokenizers or of tiktoken, or a model of SentencePiece. Captions: the token ids "
               "are 0 "
               "for the start of a caption, "
               "1 for its end, 2 for words that are not in the file, and from 3 the words; what "
               "follows a space is ignored. Captions are split into words as for the metrics: in "
               "lower case, without punctuation.",
           .is_required = true,
           .example = "tokenizer.json"}),
      sample_field({.name = "chat_template",
                    .target = choice(tokenizer.chat_template),
                    .help = "Text of a conversation (fields.messages): chatml, llama3, mistral",
                    .details = "Required with fields.messages; the file must have its special "
                               "tokens. chatml: <|im_start|>ROLE, a line end, the content, "
                               "<|im_end|> and a line end, without a default system message. "
                               "llama3: that of Llama 3, without the dates and tools of 3.1. "
                               "mistral: that of Mistral NeMo, without tools. "
                               "Templates of tokenizer_config.json are not executed."})};
}

Field tokenizer_field(std::optional<TokenizerConfig>& tokenizer) {
  return sample_field({.name = "tokenizer",
                       .target = mapping<tokenizer_fields>(tokenizer),
                       .help = "Tokens of text, or words of captions; null: that of data.train",
                       .details = "Text without a tokenizer in any dataset: its bytes are the "
                                  "tokens.",
                       .example = "{path: tokenizer.json}"});
}

// ---- fields of a record -------------------------------------------------------------------------

Field role_field(std::string_view name, std::string& target, std::string_view help,
                 std::string_view details = {}) {
  return sample_field(
      {.name = name, .target = &target, .help = help, .details = details, .accepts_null = true});
}

Field role_field(std::string_view name, std::vector<std::string>& target, std::string_view help,
                 std::string_view details = {}) {
  return sample_field({.name = name,
                       .target = &target,
                       .help = help,
                       .details = details,
                       .accepts_null = true,
                       .accepts_scalar = true});
}

Field label_role(FieldNames& names) {
  return role_field("label", names.label, "Class of the sample: an index or a name",
                    "If all labels are integers from 0 (also as 3.0), they are the class indices; "
                    "otherwise they are names, and the classes are the names in byte order. A few "
                    "names among indices are an error: correct them, or set class_names. At most "
                    "a million classes.");
}

Field target_role(FieldNames& names) {
  return role_field("target", names.target, "Numbers to predict, instead of a label",
                    "One name, or a list whose values are concatenated. float32 [num_targets]. For "
                    "regression, and, with values 0 and 1, for multilabel_classification.");
}

Field labels_role(FieldNames& names) {
  return role_field(
      "labels", names.labels, "List of class indices, one per time step, or for CTC",
      "Integers from 0, or -100, which is ignored in the loss. One per time step, or "
      "with sequence.max_label_length up to that many. Requires sequence.max_length.");
}

Field mask_role(FieldNames& names) {
  return role_field("mask", names.mask, "PNG of the class of each pixel",
                    "A palette index or a gray level, from 0; 255 is ignored in loss and metrics. "
                    "Cropped, resized and moved with the image, by the nearest pixel; pixels from "
                    "outside are ignored. Requires an image and num_classes.");
}

Field caption_role(FieldNames& names) {
  return role_field("caption", names.caption, "Captions of an image: one text or a list of texts",
                    "For task captioning. Each line of a text is a caption. Requires an image and "
                    "tokenizer.");
}

Field text_role(FieldNames& names) {
  return role_field(
      "text", names.text, "Text; its bytes are the tokens unless there is a tokenizer",
      "Replaces the other input. The texts of all records are one stream, with a byte "
      "0 after each. With sequence.max_length each text is a sample, which ends with "
      "a byte 0, or with a tokenizer its end token, unless it has a label or labels.");
}

Field messages_role(FieldNames& names) {
  return role_field("messages", names.messages, "Conversation: a list of messages",
                    "Replaces the other input. Objects with role and content, two texts. Only what "
                    "the assistant writes is learned: the messages with role assistant and the "
                    "token that ends them. Requires sequence.max_length, and tokenizer with a "
                    "chat_template.");
}

Field input_ids_role(FieldNames& names) {
  return role_field("input_ids", names.input_ids, "List of token ids",
                    "Replaces the other input. Integers from 0, int32. Requires "
                    "sequence.max_length.");
}

Field priority_role(FieldNames& names) {
  return role_field("priority", names.priority, "Priority of the record: an integer",
                    "From -2^63 to 2^63 - 1; the smallest is used first. For stream.queue "
                    "priority, which requires it.");
}

Field group_role(FieldNames& names) {
  return role_field(
      "group", names.group, "Group of the record: a text or an integer",
      "For split_by group, which requires it: records of one group, such as a patient "
      "or a speaker, are in the same part. It is no input.");
}

Field input_role(FieldNames& names, std::string_view help, std::string_view details) {
  return role_field("input", names.input, help, details);
}

Field others_role(FieldNames& names, std::string_view details) {
  return role_field("others", names.others,
                    "Further values, which a model with its own loss gets by their names", details);
}

constexpr auto kOtherNumbers =
    "One name, or a list. A number each, float32 []; the parameters of the model's forward() have "
    "these names. label or target can be missing then, or with task custom."sv;

Fields fields_of_list(ListConfig& list) {
  return {sample_field({.name = "name",
                        .target = &list.name,
                        .help = "Name of the tensor, a parameter of the model's forward()",
                        .is_required = true,
                        .example = "boxes"}),
          sample_field({.name = "field",
                        .target = &list.field,
                        .help = "Name of the value in a record; null: that of the tensor",
                        .accepts_null = true,
                        .example = "json:objects.boxes"}),
          sample_field({.name = "dtype",
                        .target = choice(list.dtype),
                        .help = "Type of the tensor: float32, int64",
                        .details = "int64: other numbers are sample errors."}),
          sample_field({.name = "shape",
                        .target = &list.shape,
                        .help = "Shape of the list, or with max_length of one of its elements",
                        .details = "The number of elements must match exactly; nested lists are "
                                   "read in order.",
                        .min = 1,
                        .max = kMaxElements,
                        .example = "[4]"}),
          sample_field({.name = "max_length",
                        .target = &list.max_length,
                        .help = "Maximum number of elements; null: the shape is that of the list",
                        .details = "The tensor has this length in all samples, then the shape. "
                                   "Longer lists are sample errors.",
                        .min = 1,
                        .max = kMaxElements}),
          sample_field({.name = "padding_value",
                        .target = &list.padding_value,
                        .help = "Number behind the last element of a shorter list",
                        .details = "With max_length only. -100 in lists of classes, which losses "
                                   "of PyTorch ignore.",
                        .min = -16777216,
                        .max = 16777216})};
}

Field lists_role(FieldNames& names) {
  return sample_field({.name = "lists",
                       .target = list<fields_of_list>(names.lists),
                       .help = "Further values that are lists of numbers",
                       .details = "For a model with its own loss, as others. A list without "
                                  "elements counts as missing.",
                       .example = "[{name: boxes, shape: [4], max_length: 20}]"});
}

constexpr auto kInputDetails =
    "One name, or a list whose values are concatenated. The values must have exactly as many "
    "elements as input_shape. Bytes become uint8, numbers float32; NaN and infinity are sample "
    "errors."sv;

// tfrecord, webdataset
Fields shard_roles(FieldNames& names) {
  return {role_field("image", names.image, "Encoded image: JPEG, PNG or WebP",
                     "uint8 [channels, height, width]. Requires a resizing transform. Cannot be "
                     "combined with input, text and input_ids."),
          input_role(names, "Input that is not an encoded image", kInputDetails),
          label_role(names),
          target_role(names),
          labels_role(names),
          mask_role(names),
          caption_role(names),
          text_role(names),
          input_ids_role(names),
          priority_role(names),
          others_role(names, kOtherNumbers),
          lists_role(names),
          group_role(names)};
}

Fields json_roles(FieldNames& names) {
  return {input_role(names, "Input: numbers, or lists of numbers", kInputDetails),
          label_role(names),
          target_role(names),
          labels_role(names),
          text_role(names),
          messages_role(names),
          input_ids_role(names),
          priority_role(names),
          others_role(names, kOtherNumbers),
          lists_role(names),
          group_role(names)};
}

Fields column_roles(FieldNames& names) {
  return {
      input_role(
          names, "Columns of the input",
          "[] uses all columns except the label, the targets, the others and the group. Values are "
          "numbers, such as 2.5 or 4e-2, and become float32. Anything else is a sample "
          "error."),
      label_role(names), target_role(names), others_role(names, kOtherNumbers), group_role(names)};
}

Fields list_roles(FieldNames& names) {
  return {sample_field(
              {.name = "image",
               .target = &names.image,
               .help = "Column of the paths",
               .details = "Paths are relative to root. A row without a path is a bad record."}),
          sample_field({.name = "label",
                        .target = &names.label,
                        .help = "Column of the classes: indices or names",
                        .details =
                            "If all labels are integers from 0 (also as 3.0), they are the class "
                            "indices; otherwise they are names, and the classes are the names "
                            "in byte order. A few names among indices are an error: correct "
                            "them, or set class_names. A row without a label is a bad record."}),
          role_field("caption", names.caption, "Column of the captions, instead of a label",
                     "A text, or in .jsonl a list of texts. For task captioning. Requires "
                     "tokenizer."),
          group_role(names)};
}

Fields array_roles(FieldNames& names) {
  return {
      input_role(names, "Array of the inputs",
                 "[] uses x, images, input, data or arr_0. uint8 rows of two or three "
                 "dimensions are images; other rows become float32."),
      role_field("label", names.label, "Array of the class indices",
                 "One integer from 0 per row. If label, target and labels are null, y, labels, "
                 "label, target, targets or arr_1 is used."),
      role_field("target", names.target, "Array of the numbers to predict",
                 "float32. Replaces label, also for arrays of integers."),
      role_field("labels", names.labels, "Array of class indices per time step",
                 "Integers from 0, or -100, which is ignored in the loss. As many per row as "
                 "time steps, or the padded target of CTC. Requires sequence.max_length."),
      role_field("length", names.length, "Array of the number of valid time steps",
                 "One integer from 1 per row. Requires sequence.max_length. null: all rows have "
                 "the full length."),
      others_role(names,
                  "One name, or a list, of an .npz. Integers become int64, floats float32, of the "
                  "row's shape; the parameters of the model's forward() have these names."),
      role_field("group", names.group, "Array of the groups of the rows",
                 "One integer per row. For split_by group, which requires it: rows of one group "
                 "are in the same part.")};
}

template <auto fields_of_roles>
Field roles_field(FieldNames& names, std::string_view help, std::string_view details,
                  std::string_view example) {
  return sample_field({.name = "fields",
                       .target = mapping<fields_of_roles>(names),
                       .help = help,
                       .details = details,
                       .example = example});
}

// ---- records ------------------------------------------------------------------------------------

Field input_shape_field(RecordConfig& record, std::string_view details, std::string_view example) {
  return sample_field({.name = "input_shape",
                       .target = &record.input_shape,
                       .help = "Shape of fields.input",
                       .details = details,
                       .min = 1,
                       .max = kMaxElements,
                       .example = example});
}

constexpr auto kShapeDetails =
    "Required with fields.input; the number of elements must match exactly. With "
    "sequence.max_length it is the shape of one time step, and [] is [1]."sv;

Field num_targets_field(RecordConfig& record) {
  return sample_field({.name = "num_targets",
                       .target = &record.num_targets,
                       .help = "Numbers in a target; null: the number of names in fields.target",
                       .details = "1 to 1000000. Set it if a value of fields.target is a list of "
                                  "several numbers.",
                       .min = 1,
                       .max = kMaxClasses});
}

Field on_missing_field_field(RecordConfig& record, std::string_view details) {
  return sample_field({.name = "on_missing_field",
                       .target = choice(record.on_missing_field),
                       .help = "What to do with records that lack a field: error, drop",
                       .details = details});
}

Field max_bad_record_rate_field(double& rate) {
  return sample_field(
      {.name = "max_bad_record_rate",
       .target = &rate,
       .help = "Fraction of records that cannot be used above which training does not start",
       .details = "From 0 to 1. Up to it, records that are corrupt, have another number of values "
                  "or an invalid label are left out; index/NAME.bad_records.jsonl in the run "
                  "directory lists them. 0: the first is an error.",
       .min = 0,
       .max = 1});
}

constexpr auto kMissingDetails =
    "error: report the first one and their number, and do not start. drop: drop the records and "
    "log their number. An empty sequence counts as missing."sv;

Fields shard_record_fields(RecordConfig& record, Field roles) {
  return {
      std::move(roles),
      input_shape_field(record, kShapeDetails, "[3, 32, 32]"),
      num_targets_field(record),
      num_classes_field(record.num_classes),
      class_names_field(record.class_names),
      on_missing_field_field(record, kMissingDetails),
      max_bad_record_rate_field(record.max_bad_record_rate),
      sequence_field<shard_sequence_fields>(record.sequence, "Sequences of tokens or time steps",
                                            "{max_length: 400, on_overflow: truncate}"),
      tokenizer_field(record.tokenizer)};
}

void append(Fields& fields, Fields more) {
  for (Field& field : more) fields.push_back(std::move(field));
}

// ---- formats ------------------------------------------------------------------------------------

Fields fields_of(TextDataset& text) {
  return {
      streamed_path_field(text.path, "File or folder with the text", kFilesAreFixed, "corpus.txt"),
      glob_field(text.glob),
      stream_field(text.sequence),
      tokenizer_field(text.tokenizer),
      {.name = "cache",
       .target = mapping<token_cache_fields>(text.token_cache),
       .help = "Where the tokens of the text are stored; null: inside the run directory",
       .example = "{dir: /var/cache/stoker}"},
      refresh_field(text.refresh)};
}

Fields fields_of(TokensDataset& tokens) {
  return {streamed_path_field(
              tokens.path, "File or folder with the token ids",
              "Flat binary files without a header. All *.bin files of a folder are read, at "
              "any depth, sorted by path. Files must not change during a run, except as "
              "refresh allows.",
              "train.bin"),
          sample_field({.name = "dtype",
                        .target = choice(tokens.dtype),
                        .help = "Type of a token id in the files, little-endian: uint16, uint32"}),
          stream_field(tokens.sequence), refresh_field(tokens.refresh)};
}

Fields fields_of(ImageFolderDataset& images) {
  return {
      path_field(images.path, "Folder with a subfolder of images for each class",
                 "Classes are numbered by name. Images can be in deeper folders; a class folder "
                 "without a matching file is an error. JPEG, PNG and WebP are detected by "
                 "content. Files must not change during a run, except as refresh allows.",
                 "flowers"),
      glob_field(images.glob, "\"**/*.{jpg,png,webp}\""),
      image_mode_field(images.image_mode),
      max_image_pixels_field(images.max_image_pixels),
      exif_orientation_field(images.apply_exif_orientation),
      encoded_image_transforms(images.transforms),
      image_cache_field(images.cache),
      refresh_field(images.refresh)};
}

Fields fields_of(ImageListDataset& list) {
  return {path_field(list.path, "List of images and labels: a .csv, .tsv or .jsonl file",
                     "One row per image, with a header in .csv and .tsv. Neither the list nor the "
                     "images may change during a run.",
                     "flowers/train.csv"),
          {.name = "root",
           .target = &list.root,
           .help = "Folder that the paths in the list are relative to; null: that of the list",
           .accepts_null = true},
          roles_field<list_roles>(list.fields, "Columns of the list", {},
                                  "{image: file_name, label: species}"),
          num_classes_field(list.num_classes),
          class_names_field(list.class_names),
          max_bad_record_rate_field(list.max_bad_record_rate),
          sequence_field<caption_sequence_fields>(list.sequence, "Captions as tokens",
                                                  "{max_label_length: 20}"),
          tokenizer_field(list.tokenizer),
          image_mode_field(list.image_mode),
          max_image_pixels_field(list.max_image_pixels),
          exif_orientation_field(list.apply_exif_orientation),
          encoded_image_transforms(list.transforms),
          image_cache_field(list.cache)};
}

Fields fields_of(IdxDataset& idx) {
  return {path_field(idx.path, "File with the images, in MNIST's format",
                     "A file compressed with gzip is decompressed once, next to the index of the "
                     "run. Files must not change during a run.",
                     "train-images-idx3-ubyte"),
          {.name = "labels_path",
           .target = &idx.labels_path,
           .help = "File with the labels of path",
           .details = "The numbers of images and labels must agree.",
           .is_required = true,
           .example = "train-labels-idx1-ubyte"},
          class_names_field(idx.class_names),
          decoded_image_transforms(idx.transforms)};
}

Fields fields_of(CifarDataset& cifar) {
  return {path_field(cifar.path, "File or folder of CIFAR's binary version",
                     "Of a folder, data_batch_*.bin (cifar10) or train.bin (cifar100) is read; for "
                     "the test images name the file. cifar100 has the fine labels. Files must not "
                     "change during a run.",
                     "cifar-10-batches-bin"),
          decoded_image_transforms(cifar.transforms)};
}

Fields fields_of(NumpyDataset& numpy) {
  return {
      path_field(numpy.path, "File or folder with the inputs: .npy files, or an .npz archive",
                 "One sample per row. uint8 rows of two or three dimensions are images; all other "
                 "rows become float32. Files of a folder are concatenated. Deflated members of an "
                 "archive are decompressed once, next to the index of the run. Files must not "
                 "change during a run.",
                 "x_train.npy"),
      glob_field(numpy.glob),
      {.name = "labels_path",
       .target = &numpy.labels_path,
       .help = "File or folder with the labels or targets, one row per sample",
       .details =
           "Rows of one integer are class indices; floats and several numbers per row are a "
           "target, or, with sequence.max_length and integers, labels. null: they are in the "
           "archive.",
       .accepts_null = true,
       .example = "y_train.npy"},
      {.name = "lengths_path",
       .target = &numpy.lengths_path,
       .help = "File or folder with the number of valid time steps of each row",
       .details = "Integers from 1. Requires sequence.max_length. null: all rows have the full "
                  "length, or fields.length names an array of the archive.",
       .accepts_null = true,
       .example = "lengths.npy"},
      roles_field<array_roles>(numpy.fields, "Arrays of an .npz archive",
                               "Only if path is an archive.", "{input: x_train, label: y_train}"),
      num_classes_field(numpy.num_classes),
      class_names_field(numpy.class_names),
      max_bad_record_rate_field(numpy.max_bad_record_rate),
      sequence_field<array_sequence_fields>(numpy.sequence, "Rows as variable-length sequences",
                                            "{max_length: 400}"),
      decoded_image_transforms(numpy.transforms)};
}

// The fields shared by tfrecord and webdataset.
Fields fields_of_shards(auto& dataset, Field path, std::string_view glob, Field roles) {
  Fields fields = {std::move(path), glob_field(dataset.glob, glob)};
  append(fields, shard_record_fields(dataset.record, std::move(roles)));
  append(fields,
         {image_mode_field(dataset.image_mode), max_image_pixels_field(dataset.max_image_pixels),
          exif_orientation_field(dataset.apply_exif_orientation),
          encoded_image_transforms(dataset.transforms), record_cache_field(dataset.cache),
          refresh_field(dataset.refresh)});
  return fields;
}

Fields fields_of(TfrecordDataset& records) {
  return fields_of_shards(
      records,
      streamed_path_field(
          records.path, "File or folder with the TFRecord files",
          "Files of tf.train.Example or tf.train.SequenceExample, not compressed. Files must "
          "not change during a run, except as refresh allows.",
          "imagenet"),
      "\"train-{00000..01023}-of-01024\"",
      roles_field<shard_roles>(
          records.record.fields, "Features that form a sample",
          "A sample has image, input, text or input_ids, and label, target or labels; text and "
          "input_ids can be alone, for language_modeling.",
          "{image: image/encoded, label: image/class/label}"));
}

Fields fields_of(WebdatasetDataset& shards) {
  return fields_of_shards(
      shards,
      streamed_path_field(
          shards.path, "File or folder with the tar files",
          "Consecutive members with the same name up to the first dot form a sample. "
          "Compressed archives are an error. Files must not change during a run, except as "
          "refresh allows.",
          "shards"),
      "\"train-{000..146}.tar\"",
      roles_field<shard_roles>(
          shards.record.fields, "Members that form a sample, by their extension",
          "jpg;png;webp is the first that a sample has; json:KEY is a value in a JSON member, with "
          "dots into objects; npy is an array. A sample has image, input, text or input_ids, and "
          "label, target or labels; text and input_ids can be alone, for language_modeling.",
          "{image: jpg;png;webp, label: cls}"));
}

Fields fields_of(CsvDataset& csv) {
  return {
      path_field(csv.path, "File or folder with the tables", kFilesAreFixed, "iris.csv"),
      glob_field(csv.glob),
      roles_field<column_roles>(csv.record.fields, "Columns that form a sample",
                                "label or target is required.",
                                "{input: [rooms, area], target: price}"),
      input_shape_field(csv.record,
                        "The number of elements must be the number of columns of the input. "
                        "[]: a vector.",
                        "[1, 28, 28]"),
      num_classes_field(csv.record.num_classes),
      class_names_field(csv.record.class_names),
      on_missing_field_field(csv.record,
                             "error: report the first row with an empty value and their "
                             "number, and do not start. drop: drop these rows and log their "
                             "number."),
      max_bad_record_rate_field(csv.record.max_bad_record_rate),
      sample_field({.name = "na_values",
                    .target = &csv.na_values,
                    .help = "Cells that are missing values; null: those of pandas",
                    .details = "null: NA, N/A, n/a, NaN, nan, NULL, null, None, <NA>, #N/A and "
                               "others of pandas.read_csv, in columns of the input and "
                               "the targets. A list replaces them, and applies to labels too. An "
                               "empty cell is always missing; [\"\"]: no other is.",
                    .accepts_null = true,
                    .example = "[NA, \"-999\"]"}),
      sample_field({.name = "column_names",
                    .target = &csv.column_names,
                    .help = "Names of the columns; null: the first row of each file",
                    .details = "Set it for files without a header.",
                    .accepts_null = true,
                    .example = "[rooms, area, price]"}),
      sample_field({.name = "delimiter",
                    .target = &csv.delimiter,
                    .help = "Character between two values",
                    .details = "One character, not a quote. \"\\t\" is a tab."}),
      refresh_field(csv.refresh)};
}

Fields fields_of(JsonlDataset& jsonl) {
  Fields fields = {
      streamed_path_field(jsonl.path, "File or folder with the JSON lines",
                          "One JSON object per line, UTF-8. Files must not change during a run, "
                          "except as refresh allows.",
                          "reviews.jsonl"),
      glob_field(jsonl.glob, "\"*.jsonl\"")};
  RecordConfig& record = jsonl.record;
  append(
      fields,
      {roles_field<json_roles>(
           record.fields, "Keys that form a sample; dots reach into objects",
           "A sample has input, text or input_ids, and label, target or labels; text and "
           "input_ids can be alone, for language_modeling.",
           "{input: [length, meta.score], label: verdict}"),
       input_shape_field(record,
                         "The number of elements must match exactly. []: a vector with a number "
                         "for each name. With sequence.max_length it is the shape of one time "
                         "step, and [] is [1].",
                         "[13]"),
       num_targets_field(record), num_classes_field(record.num_classes),
       class_names_field(record.class_names),
       on_missing_field_field(record,
                              "error: report the first one and their number, and do not start. "
                              "drop: drop the records and log their number. null and an empty "
                              "sequence count as missing."),
       max_bad_record_rate_field(record.max_bad_record_rate),
       sequence_field<record_sequence_fields>(record.sequence, "Sequences of tokens or time steps",
                                              "{max_length: 400, on_overflow: truncate}"),
       tokenizer_field(record.tokenizer), refresh_field(jsonl.refresh)});
  return fields;
}

Fields fields_of(SyntheticDataset& synthetic) {
  return {sample_field({.name = "num_samples",
                        .target = &synthetic.num_samples,
                        .help = "Number of samples, before split",
                        .min = 1,
                        .max = kMaxSamples,
                        .is_required = true,
                        .example = "10000"}),
          sample_field({.name = "input_shape",
                        .target = &synthetic.input_shape,
                        .help = "Shape of the input",
                        .min = 1,
                        .max = kMaxElements,
                        .is_required = true,
                        .example = "[3, 32, 32]"}),
          sample_field({.name = "num_classes",
                        .target = &synthetic.num_classes,
                        .help = "Number of classes; null: a regression",
                        .details = "With classes, the input is the mean of its class plus noise. "
                                   "Without, the target is that of a fixed linear model plus "
                                   "noise.",
                        .min = 1,
                        .max = kMaxClasses,
                        .example = "10"}),
          sample_field({.name = "label_rule",
                        .target = choice(synthetic.label_rule),
                        .help = "What determines the label: class_mean, sum_positive",
                        .details = "class_mean: num_classes, as above. sum_positive: the numbers "
                                   "of the input are approximately standard normal, without noise, "
                                   "and the label is 1 if their sum is above 0, otherwise 0; "
                                   "num_classes is 2.",
                        .example = "sum_positive"}),
          sample_field({.name = "num_targets",
                        .target = &synthetic.num_targets,
                        .help = "Numbers in a target; only without num_classes",
                        .min = 1,
                        .max = kMaxClasses}),
          sample_field({.name = "noise_std",
                        .target = &synthetic.noise_std,
                        .help = "Standard deviation of the noise; at least 0",
                        .details = "Added to the mean of the class, or to the target.",
                        .min = 0,
                        .max = 1e6})};
}

Fields fields_of(Mixture& mixture) {
  return {
      sample_field({.name = "mixture",
                    .target = SharesField{&mixture.shares},
                    .help = "Datasets and their shares in training",
                    .details = "Other datasets of this file, with the same tensors and classes. "
                               "Shares are above 0 and are normalized to 1. Every few batches "
                               "have exactly these shares, and each dataset has its own epochs. "
                               "Evaluation ignores the shares and reads every sample once.",
                    .min = 0,
                    .max = 1e9,
                    .exclusive_min = true,
                    .is_required = true,
                    .example = "{code: 0.7, prose: 0.3}"})};
}

Fields fields_of(Concat& concat) {
  return {
      sample_field({.name = "concat",
                    .target = &concat.datasets,
                    .help = "Datasets whose samples each occur once per epoch",
                    .details = "Other datasets of this file, with the same tensors and classes. "
                               "They cannot be mixtures or concatenations themselves.",
                    .is_required = true,
                    .example = "[code, prose]"})};
}

// ---- stream -------------------------------------------------------------------------------------

Fields fields_of_stream(StreamConfig& stream) {
  constexpr double kMaxElementsHeld = 1e5;
  return {
      sample_field({.name = "source",
                    .target = &stream.source,
                    .help = "Source: stdin, a path, a pattern of files, spool or external",
                    .details =
                        "A path is a FIFO or a complete file. A pattern, such as "
                        "\"train-{000..146}.tar.gz\", names complete files, which are read in "
                        "the order of their names. Files can be compressed with gzip or zstd. "
                        "spool: files that other programs rename into the folder path. external: "
                        "programs that connect to producers.sock in the run directory.",
                    .is_required = true,
                    .example = "\"shards/train-{000..146}.tar.gz\""}),
      sample_field({.name = "queue",
                    .target = choice(stream.queue),
                    .help = "Queue between readers and batches",
                    .details = "TensorFlow's FIFOQueue, RandomShuffleQueue, PaddingFIFOQueue and "
                               "PriorityQueue. padding_fifo holds sequences without padding; "
                               "requires sequence.max_length. priority: the smallest "
                               "fields.priority first, in the order of arrival within one."}),
      sample_field({.name = "capacity",
                    .target = &stream.capacity,
                    .help = "Maximum number of samples in the queue",
                    .details = "1 to 100000, at least min_after_dequeue and train.micro_batch_size "
                               "together. The queue holds at most 256 MiB.",
                    .min = 1,
                    .max = kMaxElementsHeld}),
      sample_field({.name = "min_after_dequeue",
                    .target = &stream.min_after_dequeue,
                    .help = "Samples from which random_shuffle chooses; null: half of capacity",
                    .details = "More mix better, and delay the first batch until they are read.",
                    .min = 0,
                    .max = kMaxElementsHeld}),
      sample_field(
          {.name = "num_threads",
           .target = &stream.num_threads,
           .help = "Threads that read; null: 4 for several files and external, otherwise 1",
           .details = "Each reads another file, or another producer. With one, a resumed run has "
                      "the same batches bit "
                      "for bit; with several, each record occurs exactly once, in another order.",
           .min = 1,
           .max = 64}),
      sample_field({.name = "num_epochs",
                    .target = &stream.num_epochs,
                    .help = "How often the files are read; null: without end",
                    .min = 1,
                    .max = kMaxSamples}),
      sample_field({.name = "save_elements_mib",
                    .target = &stream.save_elements_mib,
                    .help = "Bytes of stdin, a FIFO or external that checkpoints contain at most",
                    .details = "They cannot be read again: this many of the last bytes are held, "
                               "and a checkpoint contains those that were not used yet. 0: none; "
                               "a resumed run continues with the next bytes that come.",
                    .min = 0,
                    .max = 4096})};
}

Field stream_source_field(std::optional<StreamConfig>& stream) {
  return {.name = "stream",
          .target = mapping<fields_of_stream>(stream),
          .help = "Source without an index; null: the files of path",
          .details =
              "Only in data.train, or in one dataset of its mixture. The keys have the names and "
              "meanings of TensorFlow's queues. A stream has no epochs, so train.max_steps is "
              "required, and keys that select or reorder samples cannot be used. A record that has "
              "a label requires num_classes.",
          .affects_result = true,
          .on_resume = OnResume::kData,
          .example = "{source: \"shards/*.tar\", queue: random_shuffle, capacity: 1000}"};
}

// ---- all formats --------------------------------------------------------------------------------

// Which samples of the source are used, and how often.
Fields selection_fields(DatasetConfig& dataset) {
  return {
      sample_field({.name = "split",
                    .target = &dataset.split,
                    .help = "Part [from, to) of the source, as fractions from 0 to 1",
                    .details =
                        "Two datasets that share a boundary share no sample, if their split_by, "
                        "split_seed and fields.group are equal.",
                    .min = 0,
                    .max = 1,
                    .example = "[0.0, 0.9]"}),
      sample_field(
          {.name = "split_by",
           .target = choice(dataset.split_by),
           .help = "How the samples of split are chosen",
           .details =
               "position: a range of the bytes of a text, of the tokens, of the images of each "
               "class (image_folder), otherwise of the samples. Not for data that is sorted, "
               "for example by class. random: each sample by a hash of its file and position, so "
               "that it stays in its part when data is added; the parts have about these "
               "fractions. stratified: exactly these fractions of each class, in random order. "
               "group: whole groups of records (fields.group), of images (the folders below "
               "the class folders), or files (text, tokens), by a hash of their name.",
           .example = "stratified"}),
      sample_field({.name = "split_seed",
                    .target = &dataset.split_seed,
                    .help = "Seed of split_by random, stratified and group",
                    .details = "From 0. Another seed is another division into parts; run.seed does "
                               "not change it. Equal in all datasets of the same files.",
                    .min = 0,
                    .max = kMaxSeed}),
      sample_field({.name = "skip_samples",
                    .target = &dataset.skip_samples,
                    .help = "Samples dropped at the start of the split",
                    .details = "Dropping all samples is an error.",
                    .min = 0,
                    .max = kMaxSamples}),
      sample_field({.name = "max_samples",
                    .target = &dataset.max_samples,
                    .help = "Maximum number of samples, after skip_samples; null: all",
                    .details = "A number larger than the dataset is not an error.",
                    .min = 1,
                    .max = kMaxSamples}),
      sample_field({.name = "repeat",
                    .target = &dataset.repeat,
                    .help = "How often each sample occurs in a training epoch; 1 to 1000",
                    .details =
                        "Each occurrence has its own position in the epoch and its own random "
                        "transforms. Not used by evaluation.",
                    .min = 1,
                    .max = 1000}),
      sample_field({.name = "sample_weights_path",
                    .target = &dataset.sample_weights_path,
                    .help = "File of sampling weights; null: every sample once per epoch",
                    .details = "One number per sample, after split, skip_samples and max_samples: "
                               "text, or a .npy of float32 or float64. Training samples with "
                               "replacement: twice the weight is twice as often, 0 is never. An "
                               "epoch has as many samples as the dataset. The file can be replaced "
                               "at any time; it is read at each start.",
                    .accepts_null = true,
                    .example = "weights.npy"})};
}

Fields dataset_fields(DatasetConfig& dataset) {
  Fields fields = std::visit([](auto& format) { return fields_of(format); }, dataset.source);
  if (!dataset.combines_datasets()) append(fields, selection_fields(dataset));
  if (dataset.can_be_streamed()) fields.push_back(stream_source_field(dataset.stream));
  fields.push_back(batch_transforms_field(dataset.batch_transforms));
  return fields;
}

constexpr size_t kFormats = kWords<DatasetFormat>.size();
constexpr size_t kMixtureName = kFormats;
constexpr size_t kConcatName = kFormats + 1;

size_t selected_name(const DatasetConfig& dataset) {
  if (std::holds_alternative<Mixture>(dataset.source)) return kMixtureName;
  if (std::holds_alternative<Concat>(dataset.source)) return kConcatName;
  return static_cast<size_t>(dataset.format());
}

void select_name(DatasetSource& source, size_t name) {
  constexpr auto kCifar100 = static_cast<size_t>(DatasetFormat::kCifar100);
  emplace_alternative(source, name < kCifar100 ? name : name - 1);
  if (name == kCifar100) std::get<CifarDataset>(source).num_classes = 100;
}

Variants dataset_variants(DatasetConfig& dataset) {
  Variants variants{
      .discriminator = "format",
      .noun = "format",
      .names = {kWords<DatasetFormat>.begin(), kWords<DatasetFormat>.end()},
      .selected = selected_name(dataset),
      .select = [&dataset](size_t name) { select_name(dataset.source, name); },
      .keys =
          [](size_t name) {
            DatasetConfig example;
            select_name(example.source, name);
            std::vector<std::string_view> keys;
            for (const Field& field : dataset_fields(example)) keys.push_back(field.name);
            return keys;
          },
      .first_key = kMixtureName,
      .help = "Format of the data",
      .details =
          "text: files whose bytes are the tokens. tokens: token ids of a tokenizer, .bin files. "
          "image_folder: a folder of images per class. image_list: a table of images and labels. "
          "idx: MNIST's files. cifar10, cifar100: CIFAR's binary files. numpy: .npy and .npz "
          "arrays. tfrecord: TFRecord files of tf.train.Example. webdataset: tar files. csv: rows "
          "of a table. jsonl: a JSON object per line. synthetic: computed, without files. A "
          "dataset with mixture or concat has no format.",
      .is_required = true,
      .affects_result = true,
      .on_resume = OnResume::kData};
  variants.names.insert(variants.names.end(), {"mixture", "concat"});
  return variants;
}

}  // namespace

std::string_view name_of(const Transform& transform) { return kTransformNames[transform.index()]; }

std::string to_text(const Transform& transform) {
  Transform copy = transform;  // its fields point into a value that they could change
  std::string parameters;
  for (const Field& field : transform_fields(copy))
    parameters +=
        (parameters.empty() ? "" : ", ") + std::string(field.name) + ": " + to_yaml(field.target);
  return std::string(name_of(transform)) + ": {" + parameters + '}';
}

Section dataset_section(const std::string& name, DatasetConfig& dataset) {
  const bool is_trained = name == "train";
  return {.key = "data." + name,
          .help = is_trained ? "Dataset that the model is trained on"
                             : "Dataset for evaluation, or a component of a mixture or concat",
          .fields = dataset_fields(dataset),
          .variants = dataset_variants(dataset)};
}

}  // namespace stoker::config
