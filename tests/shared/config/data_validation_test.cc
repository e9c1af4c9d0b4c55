// Conditions between the settings of datasets.
#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

const std::string kClassifier = "task: {name: classification}\nmodel: {name: mlp}\n";
const std::string kSequenceClassifier = "task: {name: classification}\nmodel: {name: blstm}\n";

std::string train(const std::string& keys) { return "data: {train: {" + keys + "}}\n"; }

TEST(DataValidationTest, RequiresTrainingData) {
  EXPECT_THAT(
      errors_of("data: {val: {format: text, path: b}}\n"),
      ElementsAre("my.yaml:1:1: data.train: is required; set it to the dataset to train on, "
                  "for example 'train: {format: text, path: corpus.txt}'"));
}

TEST(DataValidationTest, RequiresKeysOfFormat) {
  const auto expect_error = [](const std::string& keys, const std::string& key) {
    EXPECT_THAT(errors_of(train(keys) + kClassifier),
                ElementsAre(HasSubstr("data.train." + key + ": ")))
        << keys;
  };
  const std::string images = "transforms: [resize: {size: [8, 8]}]";
  expect_error("format: image_folder, " + images, "path");
  expect_error("format: image_folder, path: a", "transforms");
  expect_error("format: image_folder, path: a, transforms: [resize: {size: [8]}]", "transforms");
  expect_error("format: image_folder, path: a, transforms: [resize]", "transforms[0].resize.size");
  expect_error("format: image_folder, path: a, image_mode: rgba, " + images, "image_mode");
  expect_error("format: image_list, " + images, "path");
  expect_error("format: idx, path: a", "labels_path");
  expect_error("format: cifar10", "path");
  expect_error("format: cifar, path: a", "format");
  for (const std::string format : {"tfrecord", "webdataset"}) {
    const std::string keys = "format: " + format + ", path: a";
    expect_error(keys, "fields");
    expect_error(keys + ", fields: {image: x, label: y}", "transforms");
    expect_error(keys + ", fields: {input: x, label: y}", "input_shape");
    expect_error(keys + ", fields: {image: x, label: y}, input_shape: [3], " + images,
                 "input_shape");
    expect_error(keys + ", fields: {image: x, input: z, label: y}, " + images, "fields.input");
    expect_error(keys + ", fields: {image: x}, " + images, "fields");
    expect_error(keys + ", fields: {input: x, label: y, target: z}, input_shape: [8]",
                 "fields.target");
    expect_error(keys + ", fields: {input: x, label: y}, input_shape: [8], " + images,
                 "transforms");
    expect_error(keys + ", fields: {image: x, label: y}, cache: {type: packed}, " + images,
                 "cache.type");
    expect_error(keys + ", fields: {image: x, label: y}, cache: {}, " + images, "cache.type");
  }
  expect_error("format: csv, path: a", "fields");
  expect_error("format: csv, path: a, fields: {label: y}, delimiter: ab", "delimiter");
  expect_error("format: csv, path: a, fields: {label: y}, delimiter: '\"'", "delimiter");
  expect_error("format: numpy, path: a, fields: {input: [x, y]}", "fields.input");
  expect_error("format: numpy, path: a, fields: {label: x, target: y}", "fields.target");
  expect_error("format: synthetic, input_shape: [5]", "num_samples");
  expect_error("format: synthetic, num_samples: 5", "input_shape");
}

TEST(DataValidationTest, RestrictsSplitToIncreasingFractions) {
  for (const char* const split :
       {"[0.5, 0.5]", "[0.9, 0.1]", "[]", "[0.5]", "[0, 0.5, 1]", "[-0.1, 1]", "[0, 1.1]"}) {
    EXPECT_THAT(errors_of(train("format: text, path: a, split: " + std::string(split))),
                ElementsAre(StartsWith("my.yaml:1:")))
        << split;
  }
}

TEST(DataValidationTest, RequiresGroupsForSplitByGroup) {
  const auto expect_error = [](const std::string& keys, const std::string& key) {
    EXPECT_THAT(errors_of(train(keys) + kClassifier),
                ElementsAre(HasSubstr("data.train." + key + ": ")))
        << keys;
  };
  const std::string csv = "format: csv, path: a, split: [0, 0.5], fields: {label: y";
  valid_config(train(csv + ", group: g}, split_by: group") + kClassifier);
  valid_config(train("format: csv, path: a, fields: {label: y, group: g}") + kClassifier);
  expect_error(csv + "}, split_by: group", "fields.group");
  expect_error(csv + ", group: g}", "split_by");
  expect_error(csv + ", group: g}, split_by: stratified", "split_by");
  expect_error("format: cifar10, path: a, split: [0, 0.5], split_by: group", "split_by");
  expect_error("format: idx, path: a, labels_path: b, split: [0, 0.5], split_by: group",
               "split_by");
  expect_error("format: csv, path: a, fields: {label: y}, split_by: sorted", "split_by");
  expect_error("format: csv, path: a, fields: {label: y}, split_seed: -1", "split_seed");
}

TEST(DataValidationTest, RestrictsRefreshToCompleteTrainingData) {
  valid_config(train("format: text, path: a, refresh: epoch"));
  valid_config("data: {train: {concat: [b]}, b: {format: text, path: b, refresh: immediate}}\n");
  for (const std::string other : {"skip_samples: 1", "max_samples: 5"})
    EXPECT_THAT(errors_of(train("format: text, path: a, refresh: epoch, " + other)),
                ElementsAre(HasSubstr("data.train.refresh: cannot be combined with skip_samples")))
        << other;
  for (const std::string by : {"position", "stratified"})
    EXPECT_THAT(
        errors_of(train("format: text, path: a, refresh: epoch, split: [0, 0.9], split_by: " + by)),
        ElementsAre(HasSubstr("data.train.refresh: cannot be combined with split")))
        << by;
  for (const std::string by : {"random", "group"})
    valid_config(train("format: text, path: a, refresh: epoch, split: [0, 0.9], split_by: " + by));
  EXPECT_THAT(errors_of(train("format: text, path: a, refresh: epoch, sample_weights_path: w")),
              ElementsAre(HasSubstr("data.train.refresh: cannot be combined with "
                                    "sample_weights_path")));
  EXPECT_THAT(errors_of(train("format: image_folder, path: a, refresh: epoch, cache: {}, "
                              "transforms: [resize: {size: [8, 8]}]") +
                        kClassifier),
              ElementsAre(HasSubstr("data.train.refresh: cannot be combined with cache")));
  EXPECT_THAT(
      errors_of("data: {train: {format: text, path: a}, val: {format: text, path: b, refresh: "
                "epoch}}\n"),
      ElementsAre(HasSubstr("data.val.refresh: is only supported for training datasets")));
}

TEST(DataValidationTest, ReadsOneNameAsListOfOne) {
  const std::string rest = ", label: y}, input_shape: [3]}}\n" + kClassifier;
  const std::string start = "data: {train: {format: webdataset, path: a, fields: {input: ";
  EXPECT_EQ(valid_config(start + "x;y" + rest), valid_config(start + "[x;y]" + rest));
}

// ---- Transforms

std::vector<std::string> errors_of_transforms(const std::string& transforms,
                                              const std::string& more = "") {
  return errors_of(train("format: image_folder, path: a, transforms: [" + transforms + "]" + more) +
                   "task: {name: classification}\nmodel: {name: lenet5}\n");
}

TEST(TransformValidationTest, AcceptsTransformsInOrder) {
  for (const char* const transforms :
       {"resize: {size: [8, 8]}",
        "random_resized_crop: {size: 8, scale: [0.5, 0.5], ratio: [1, 1]}",
        "resize: {size: 9, interpolation: bicubic}, center_crop: {size: 8}",
        "resize: {size: [9, 8]}, center_crop: {size: 8}",
        "resize: {size: [8, 8]}, random_crop: {size: 8, padding: 4}, random_horizontal_flip: {p: "
        "1}, "
        "color_jitter: {brightness: 2, contrast: 1, saturation: 0.5, hue: 0.5}, normalize: {mean: "
        "0.5, std: 0.5}",
        "resize: {size: [8, 8]}, random_erasing, color_jitter: {hue: 0.1}, random_crop: {size: 8}, "
        "trivial_augment_wide, random_vertical_flip, normalize: {mean: 0.5, std: 0.5}",
        "resize: {size: [8, 8]}, random_rotation: {degrees: [-10, 20], fill: [1, 2, 3]}, "
        "random_affine: {degrees: 0, translate: [0.1, 0.2], scale: [0.5, 2], shear: [-5, 5, -2, "
        "2], interpolation: bilinear}, random_perspective, gaussian_blur: {kernel_size: 3, sigma: "
        "1}, random_grayscale, random_invert, random_posterize: {bits: 4}, random_solarize: "
        "{threshold: 128}, random_adjust_sharpness: {sharpness_factor: 2}, random_autocontrast, "
        "random_equalize, rand_augment: {fill: null}, auto_augment: {policy: svhn}, aug_mix: "
        "{chain_depth: null}"})
    EXPECT_THAT(errors_of_transforms(transforms), IsEmpty()) << transforms;
}

TEST(TransformValidationTest, RejectsTransformsThatDoNotFit) {
  const std::string resize = "resize: {size: [8, 8]}, ";
  for (const auto& [transforms, message] : std::vector<std::pair<std::string, std::string>>{
           {"crop",
            "transforms[0]: must be resize, center_crop, random_resized_crop, random_crop, "},
           {"random_horizontal_flip", "must start with a resizing transform"},
           {"resize: {size: 8}", "resize to a shorter side requires center_crop after it"},
           {"center_crop: {size: 8}", "must start with a resizing transform"},
           {resize + "center_crop: {size: 9}", "center_crop must fit into the resized image"},
           {"resize: {size: 8}, center_crop: {size: [8, 9]}", "center_crop must fit"},
           {"random_resized_crop: {size: 8}, center_crop: {size: 8}",
            "center_crop requires resize before it"},
           {resize + "random_resized_crop: {size: 8}",
            "must be in the order resize, resize and center_crop, or random_resized_crop; then "
            "random transforms; then normalize; each at most once"},
           {"random_resized_crop: {size: 8}, " + resize + "color_jitter", "must be in the order"},
           {resize + "normalize: {mean: 0.5, std: 0.5}, random_invert", "must be in the order"},
           {resize + "random_invert, color_jitter, random_invert", "each at most once"},
           {resize + "random_horizontal_flip, random_horizontal_flip", "each at most once"},
           {"random_horizontal_flip, resize: {size: [8, 8]}", "must be in the order"},
           {"resize: {size: [8, 8, 8]}", "resize.size: must be a number or [height, width]"},
           {"resize: {size: [0, 8]}", "resize.size: must be an integer from 1 to 16384, got '0'"},
           {"resize: {size: [8, 16385]}", "resize.size: must be an integer from 1 to 16384"},
           {"random_resized_crop: {size: 8, scale: [1, 0.5]}", "scale: must be [from, to]"},
           {"random_resized_crop: {size: 8, scale: [0, 1]}", "scale: must be"},
           {"random_resized_crop: {size: 8, scale: [0.5]}", "scale: must be"},
           {"random_resized_crop: {size: 8, scale: [0.1, 1.1]}", "scale: must be"},
           {"random_resized_crop: {size: 8, ratio: [2, 1]}", "ratio: must be [from, to]"},
           {resize + "random_crop: {size: 8, padding: -1}", "random_crop.padding: must be"},
           {resize + "random_horizontal_flip: {p: 1.5}", "random_horizontal_flip.p: must be"},
           {resize + "color_jitter: {hue: 0.6}",
            "color_jitter.hue: must be a number from 0 to 0.5"},
           {resize + "color_jitter: {brightness: -1}", "color_jitter.brightness: must be"},
           {resize + "random_rotation", "random_rotation.degrees: is required"},
           {resize + "random_rotation: {degrees: [1, 2, 3]}",
            "random_rotation.degrees: must be a number or [from, to]"},
           {resize + "random_rotation: {degrees: [2, 1]}", "random_rotation.degrees: must be"},
           {resize + "random_rotation: {degrees: -10}",
            "random_rotation.degrees: must be at least 0 as one number x"},
           {resize + "random_rotation: {degrees: 10, interpolation: bicubic}",
            "random_rotation.interpolation: must be nearest or bilinear"},
           {resize + "random_rotation: {degrees: 10, fill: []}", "fill: must not be empty"},
           {resize + "rand_augment: {fill: [1, 2]}", "rand_augment.fill: must be one whole number"},
           {resize + "rand_augment: {fill: 0.5}", "rand_augment.fill: must be one whole number"},
           {resize + "rand_augment: {magnitude: 31}",
            "rand_augment.magnitude: must be below num_magnitude_bins (31), got 31"},
           {resize + "random_affine: {degrees: 0, translate: [0.1]}",
            "random_affine.translate: must be two numbers"},
           {resize + "random_affine: {degrees: 0, scale: [2, 1]}",
            "random_affine.scale: must be [from, to]"},
           {resize + "random_affine: {degrees: 0, shear: [1, 2, 3]}",
            "random_affine.shear: must be a number, [from, to] or"},
           {resize + "random_affine: {degrees: 0, shear: [-5, 5, 2, 1]}", "random_affine.shear"},
           {resize + "gaussian_blur: {kernel_size: 4}", "gaussian_blur.kernel_size: must be odd"},
           {resize + "gaussian_blur: {kernel_size: 3, sigma: [2, 1]}", "gaussian_blur.sigma: must"},
           {resize + "random_posterize: {bits: 9}", "random_posterize.bits: must be an integer"},
           {resize + "random_erasing: {scale: [0.5, 0.2]}", "random_erasing.scale: must be"},
           {resize + "random_erasing: {ratio: [3]}", "random_erasing.ratio: must be"},
           {resize + "random_erasing: {value: []}", "random_erasing.value: must not be empty"},
           {resize + "auto_augment: {policy: mnist}",
            "auto_augment.policy: must be imagenet, cifar10 or svhn"},
           {resize + "aug_mix: {alpha: 1e-310}",
            "aug_mix.alpha: must be a number from 0.001 to 1000"},
           {resize + "aug_mix: {severity: 11}",
            "aug_mix.severity: must be an integer from 1 to 10"},
           {resize + "normalize: {mean: 0.5}", "normalize.std: is required"},
           {resize + "normalize: {mean: [0.4, 0.5, 0.6], std: 0.2}",
            "normalize.mean: must have as many numbers as std"},
           {resize + "normalize: {mean: 0.5, std: 0}", "normalize.std: must be a number above 0"}})
    EXPECT_THAT(errors_of_transforms(transforms),
                ElementsAre(AllOf(HasSubstr("data.train.transforms"), HasSubstr(message))))
        << transforms;
}

TEST(TransformValidationTest, RejectsResizingOfDecodedImages) {
  for (const char* const transforms :
       {"resize: {size: [8, 8]}", "random_resized_crop: {size: 8}", "center_crop: {size: 8}"})
    EXPECT_THAT(
        errors_of(train("format: cifar10, path: a, transforms: [" + std::string(transforms) + "]") +
                  kClassifier),
        ElementsAre(HasSubstr("resize, center_crop and random_resized_crop require encoded "
                              "images")))
        << transforms;
}

TEST(MaskValidationTest, RequiresImagesClassesAndOneOutputPerPixel) {
  const auto errors = [](const std::string& fields, const std::string& more,
                         const std::string& rest =
                             "task: {name: classification}\nmodel: {name: exported, path: m}\n") {
    return errors_of(train("format: webdataset, path: a, transforms: [resize: {size: [8, 8]}" +
                           std::string(more.starts_with('[') ? more.substr(1) : "]" + more) +
                           ", fields: {" + fields + "}") +
                     rest);
  };
  EXPECT_THAT(errors("image: jpg, mask: png", ", num_classes: 21"), IsEmpty());
  EXPECT_THAT(errors("image: jpg, mask: png", ", num_classes: 21",
                     "task: {name: custom}\nmodel: {name: exported, path: m}\n"),
              IsEmpty());
  EXPECT_THAT(errors("image: jpg, mask: png", ""),
              ElementsAre(HasSubstr("num_classes: is required with fields.mask")));
  EXPECT_THAT(errors("image: jpg, mask: png", ", num_classes: 256"),
              ElementsAre(HasSubstr("num_classes: must be at most 255 with fields.mask")));
  EXPECT_THAT(errors("image: jpg, mask: png, label: cls", ", num_classes: 21"),
              ElementsAre(HasSubstr("fields.mask: cannot be combined with label")));
  EXPECT_THAT(errors("image: jpg, mask: png", "[, aug_mix], num_classes: 21"),
              ElementsAre(HasSubstr("aug_mix cannot be combined with fields.mask")));
  EXPECT_THAT(errors("image: jpg, mask: png", ", batch_transforms: [cutmix], num_classes: 21",
                     "task: {name: classification}\nmodel: {name: plugin, path: m}\n"),
              ElementsAre(HasSubstr("batch_transforms: mixup and cutmix cannot be combined")));
  EXPECT_THAT(errors("image: jpg, mask: png", ", num_classes: 21",
                     "task: {name: classification}\nmodel: {name: resnet18}\n"),
              ElementsAre(HasSubstr("model.name: resnet18 has one output per image")));
  EXPECT_THAT(errors("image: jpg, mask: png", ", num_classes: 21",
                     "task: {name: regression}\nmodel: {name: exported, path: m}\n"),
              ElementsAre(HasSubstr("task.name: must be classification or custom")));
  EXPECT_THAT(errors("image: jpg, mask: png", ", num_classes: 21",
                     "task: {name: classification, class_weights: balanced}\nmodel: {name: "
                     "plugin, path: m}\n"),
              ElementsAre(HasSubstr("task.class_weights: balanced needs one label per sample")));
}

TEST(TransformValidationTest, RejectsDecodedCacheOfRandomCrops) {
  const std::string crop = "random_resized_crop: {size: 8}";
  EXPECT_THAT(errors_of_transforms(crop, ", cache: {type: packed}"), IsEmpty());
  EXPECT_THAT(errors_of_transforms(crop, ", cache: {type: decoded}"),
              ElementsAre(HasSubstr("cache.type: decoded cannot be combined with "
                                    "random_resized_crop")));
  EXPECT_THAT(errors_of_transforms("resize: {size: [8, 8]}",
                                   ", cache: {type: decoded, jpeg_restart_markers: true}"),
              ElementsAre(HasSubstr("cache.jpeg_restart_markers: requires cache.type packed")));
  EXPECT_THAT(errors_of_transforms("resize: {size: [8, 8]}",
                                   ", apply_exif_orientation: true, cache: {type: packed, "
                                   "jpeg_restart_markers: true}"),
              ElementsAre(HasSubstr("cache.jpeg_restart_markers: cannot be combined with "
                                    "apply_exif_orientation")));
}

TEST(TransformValidationTest, RequiresSameNormalizationInAllDatasets) {
  const auto data = [](const std::string& train, const std::string& val) {
    return "data: {train: {format: cifar10, path: a, transforms: [" + train +
           "]}, val: {format: cifar10, path: b, transforms: [" + val + "]}}\n" + kClassifier;
  };
  const std::string one = "normalize: {mean: 0.5, std: 0.5}";
  const std::string other = "normalize: {mean: 0.5, std: 0.25}";
  valid_config(data(one, one));
  valid_config(data(one, ""));  // uses the normalization of data.train
  valid_config(data("", ""));
  EXPECT_THAT(errors_of(data(one, other)),
              ElementsAre(HasSubstr("data.val.transforms: normalize must be that of data.train")));
  EXPECT_THAT(errors_of(data("", one)),
              ElementsAre(HasSubstr("data.val.transforms: normalize is not in data.train")));
  const auto combined = [](const std::string& a, const std::string& b) {
    return "data: {train: {concat: [a, b]}, a: {format: cifar10, path: a, transforms: [" + a +
           "]}, b: {format: cifar10, path: b, transforms: [" + b + "]}}\n" + kClassifier;
  };
  valid_config(combined(one, one));
  EXPECT_THAT(errors_of(combined(one, "")),
              ElementsAre(HasSubstr("data.b.transforms: normalize is required, as in the other "
                                    "datasets that are trained on")));
  EXPECT_THAT(errors_of(combined(one, other)), ElementsAre(HasSubstr("data.b.transforms")));
}

TEST(TransformValidationTest, RestrictsBatchTransforms) {
  const std::string images = train("format: cifar10, path: a");
  const auto errors = [&](const std::string& transforms, const std::string& rest = kClassifier) {
    return errors_of(images + rest, {"data.train.batch_transforms=" + transforms});
  };
  for (const char* const transforms : {"[]", "[mixup]", "[cutmix: {alpha: 0.5}]",
                                       "[random_choice: [mixup: {alpha: 0.2}, cutmix]]"})
    EXPECT_THAT(errors(transforms), IsEmpty()) << transforms;
  EXPECT_THAT(errors("[mixup, cutmix]"), ElementsAre(HasSubstr("must be one of [mixup: {}]")));
  EXPECT_THAT(errors("[mixup: {alpha: 0}]"), ElementsAre(HasSubstr("must be a number above 0")));
  for (const char* const choice : {"[mixup]", "[mixup, mixup]", "[mixup, cutmix, cutmix]"})
    EXPECT_THAT(errors("[random_choice: " + std::string(choice) + "]"),
                ElementsAre(HasSubstr("random_choice must have mixup and cutmix")))
        << choice;
  EXPECT_THAT(errors("[mixup]", "task: {name: regression}\nmodel: {name: mlp}\n"),
              ElementsAre(HasSubstr("requires task classification")));
  EXPECT_THAT(errors_of("data: {train: {format: cifar10, path: a}, val: {format: cifar10, path: b, "
                        "batch_transforms: [mixup]}}\n" +
                        kClassifier),
              ElementsAre(HasSubstr("data.val.batch_transforms: is only used in data.train")));
}

// ---- Records

TEST(RecordValidationTest, ReadsTextOfRecordsAsBytes) {
  const std::string text = train("format: webdataset, path: a, fields: {text: txt}");
  const Config config = valid_config(text);
  EXPECT_TRUE(config.data.at("train").has_byte_tokens());
  EXPECT_EQ(config.data.at("train").sequence()->block_size, GptConfig().context_length);
  EXPECT_THAT(errors_of(text + "model: {name: gpt, vocab_size: 255}\n"),
              ElementsAre(HasSubstr("model.vocab_size")));
  EXPECT_THAT(errors_of(text + kClassifier), ElementsAre(HasSubstr("model.name")));
  EXPECT_THAT(errors_of(train("format: webdataset, path: a, fields: {text: txt, label: y}")),
              ElementsAre(HasSubstr("data.train.fields.text: cannot be combined with image, input, "
                                    "label and target")));
  const std::string images = train(
      "format: webdataset, path: a, fields: {image: x, label: y}, transforms: [resize: {size: [8, "
      "8]}]");
  EXPECT_THAT(errors_of(images),
              ElementsAre(HasSubstr("or fields.text, fields.messages or fields.input_ids")));
}

std::string jsonl(const std::string& keys) { return train("format: jsonl, path: a, " + keys); }

TEST(RecordValidationTest, AcceptsSequencesOfNumbersTextAndTokens) {
  valid_config(jsonl("sequence: {max_length: 9}, fields: {input: x, label: y}, input_shape: [3]") +
               kSequenceClassifier);
  valid_config(jsonl("sequence: {max_length: 9, max_label_length: 4, on_overflow: drop}, fields: "
                     "{input: x, labels: y}") +
               kSequenceClassifier);
  valid_config(jsonl("sequence: {max_length: 9, on_overflow: truncate}, fields: {text: t}"));
  valid_config(jsonl("sequence: {max_length: 9}, fields: {input_ids: t}"));
  EXPECT_THAT(
      errors_of(jsonl("sequence: {max_length: 9}, fields: {label: y}") + kSequenceClassifier),
      ElementsAre(
          HasSubstr("data.train.fields: requires one of input, text, messages and input_ids")));
  EXPECT_THAT(errors_of(jsonl("sequence: {max_length: 9}, fields: {text: t, input_ids: u}")),
              ElementsAre(HasSubstr(
                  "data.train.fields: requires one of input, text, messages and input_ids")));
  EXPECT_THAT(errors_of(jsonl("sequence: {max_length: 9}, fields: {input: [x, z], label: y}") +
                        kSequenceClassifier),
              ElementsAre(HasSubstr("data.train.fields.input: must be one name")));
}

TEST(RecordValidationTest, AcceptsSequencesInTfrecordAndWebdataset) {
  for (const std::string format : {"tfrecord", "webdataset"}) {
    const std::string keys = "format: " + format + ", path: a, sequence: {max_length: 9}, fields: ";
    valid_config(train(keys + "{input: x, label: y}, input_shape: [3]") + kSequenceClassifier);
    valid_config(train(keys + "{text: t}"));
    EXPECT_THAT(
        errors_of(train(keys + "{image: x, label: y}, transforms: [resize: {size: [8, 8]}]") +
                  kSequenceClassifier),
        ElementsAre(HasSubstr("data.train.fields.image: cannot be combined with "
                              "sequence.max_length")))
        << format;
    EXPECT_THAT(errors_of(train(keys + "{input: x}") + kSequenceClassifier),
                ElementsAre(HasSubstr("data.train.fields: requires label, labels or target")))
        << format;
  }
}

TEST(RecordValidationTest, RequiresOneKindOfLabel) {
  const auto errors = [](const std::string& fields, const std::string& sequence = "") {
    return errors_of(jsonl("sequence: {max_length: 9" + sequence + "}, fields: {" + fields + "}") +
                     kSequenceClassifier);
  };
  EXPECT_THAT(errors("input: x"), ElementsAre(HasSubstr("requires label, labels or target")));
  EXPECT_THAT(errors("input: x, label: y, labels: z"),
              ElementsAre(HasSubstr("data.train.fields.label: cannot be combined with labels and "
                                    "target")));
  EXPECT_THAT(
      errors("input: x, label: y", ", max_label_length: 3"),
      ElementsAre(HasSubstr("data.train.sequence.max_label_length: requires fields.labels")));
}

TEST(RecordValidationTest, RequiresMaxLengthForSequences) {
  const std::string classifier = kSequenceClassifier;
  for (const auto& [keys, key] : std::vector<std::pair<std::string, std::string>>{
           {"fields: {input: x, label: y}, sequence: {on_overflow: drop}", "sequence.on_overflow"},
           {"fields: {input: x, label: y, labels: z}", "fields.labels"},
           {"fields: {input: x, label: y}, sequence: {max_label_length: 4}",
            "sequence.max_label_length"}})
    EXPECT_THAT(errors_of(jsonl(keys) + classifier),
                ElementsAre(HasSubstr("data.train." + key +
                                      ": requires sequence.max_length, the length to which samples "
                                      "are padded")))
        << key;
  EXPECT_THAT(
      errors_of(train("format: numpy, path: a, labels_path: b, lengths_path: c") + classifier),
      ElementsAre(HasSubstr("data.train.lengths_path: requires sequence.max_length")));
  EXPECT_THAT(errors_of(train("format: numpy, path: a, fields: {length: l}") + classifier),
              ElementsAre(HasSubstr("data.train.fields.length: requires sequence.max_length")));
  EXPECT_THAT(errors_of(jsonl("fields: {text: u, input_ids: t}")),
              ElementsAre(HasSubstr("data.train.fields.input_ids: requires sequence.max_length")));
}

TEST(RecordValidationTest, RejectsBlockSizeOfPaddedText) {
  EXPECT_THAT(errors_of(jsonl("sequence: {max_length: 9, block_size: 5}, fields: {text: t}")),
              ElementsAre(HasSubstr("data.train.sequence.block_size: cannot be combined with "
                                    "sequence.max_length")));
  valid_config(jsonl("sequence: {max_length: 9, block_size: null}, fields: {text: t}"));
  EXPECT_EQ(valid_config(jsonl("sequence: {max_length: 9}, fields: {text: t}"))
                .data.at("train")
                .sequence()
                ->block_size,
            std::nullopt);
  EXPECT_THAT(errors_of(jsonl("sequence: {max_length: 9}, fields: {text: t}, input_shape: [4]")),
              ElementsAre(HasSubstr("data.train.input_shape: requires fields.input")));
}

// ---- Mixtures and concatenations

const std::string kMixed =
    "data: {train: {mixture: {code: 0.7, prose: 0.3}}, code: {format: text, path: a}, prose: "
    "{format: text, path: b}}\n";
const std::string kConcatenated =
    "data: {train: {concat: [code, prose]}, code: {format: text, path: a}, prose: {format: text, "
    "path: b}}\n";

TEST(MixtureValidationTest, RejectsUnknownAndDuplicateDatasets) {
  EXPECT_THAT(errors_of(kMixed), IsEmpty());
  EXPECT_THAT(errors_of(kConcatenated), IsEmpty());
  EXPECT_THAT(errors_of("data: {train: {concat: []}}\n"),
              ElementsAre(HasSubstr("data.train.concat: must not be empty")));
  EXPECT_THAT(errors_of("data: {train: {mixture: {}}}\n"),
              ElementsAre(HasSubstr("data.train.mixture: must not be empty")));
  EXPECT_THAT(errors_of(kConcatenated, {"data.train.concat=[code, pros]"}),
              ElementsAre("--set data.train.concat=[code, pros]: contains 'pros', which is not a "
                          "dataset; did you mean 'prose'?"));
  EXPECT_THAT(errors_of(kMixed, {"data.train.mixture={code: 1, pros: 1}"}),
              ElementsAre(HasSubstr("contains 'pros', which is not a dataset")));
  EXPECT_THAT(errors_of(kConcatenated, {"data.train.concat=[code, code]"}),
              ElementsAre(HasSubstr("contains 'code' twice")));
  EXPECT_THAT(errors_of(kConcatenated, {"data.train.concat=[train]"}),
              ElementsAre(HasSubstr("contains 'train', which is a mixture or concat itself")));
}

TEST(MixtureValidationTest, RequiresSharesAbove0) {
  for (const char* const share : {"0", "-1", "many", "null"})
    EXPECT_THAT(
        errors_of(kMixed, {"data.train.mixture={code: 1, prose: " + std::string(share) + "}"}),
        ElementsAre(HasSubstr("data.train.mixture.prose: must be a number above 0")))
        << share;
  EXPECT_THAT(errors_of(kMixed, {"data.train.mixture=[code, prose]"}),
              ElementsAre(HasSubstr("must be a mapping of datasets to shares such as {code: 0.7, "
                                    "prose: 0.3}, got a list")));
}

TEST(MixtureValidationTest, RejectsKeysOfFormats) {
  EXPECT_THAT(errors_of(kMixed, {"data.train.split=[0, 0.5]"}),
              ElementsAre(AllOf(StartsWith("--set data.train.split=[0, 0.5]: not supported by"),
                                HasSubstr("mixture"), testing::EndsWith("remove it"))));
  EXPECT_THAT(errors_of(kConcatenated, {"data.train.path=a"}),
              ElementsAre(HasSubstr("(only by text")));
}

TEST(MixtureValidationTest, ChecksModelAndTaskWithComponents) {
  EXPECT_THAT(errors_of(kMixed + kClassifier),
              ElementsAre(HasSubstr("does not accept token sequences, which data.code has")));
  EXPECT_THAT(errors_of("data: {train: {concat: [a]}, a: {format: cifar10, path: a}}\n"
                        "task: {name: classification}\nmodel: {name: lenet5}\n"),
              IsEmpty());
}

TEST(MixtureValidationTest, RejectsSecondFrequencyOfSamples) {
  const std::string weighted = train("format: text, path: a, sample_weights_path: w.txt");
  EXPECT_THAT(errors_of(weighted), IsEmpty());
  EXPECT_THAT(errors_of(weighted, {"data.train.repeat=2"}),
              ElementsAre(HasSubstr("cannot be combined with sample_weights_path")));
  EXPECT_THAT(errors_of(kMixed, {"data.code.repeat=2"}),
              ElementsAre(HasSubstr("cannot be combined with data.train.mixture, which sets the "
                                    "shares")));
  EXPECT_THAT(errors_of(kConcatenated, {"data.code.repeat=2"}), IsEmpty());
  EXPECT_THAT(errors_of(kConcatenated, {"data.code.sample_weights_path=w"}),
              ElementsAre(HasSubstr("requires a mixture")));
  EXPECT_THAT(errors_of(kMixed, {"data.code.sample_weights_path=w"}), IsEmpty());
}

TEST(MixtureValidationTest, RequiresCarryOverForRandomSamples) {
  for (const std::string last : {"drop", "pad"}) {
    const std::string flag = "feed.last_batch=" + last;
    EXPECT_THAT(errors_of(kConcatenated, {flag}), IsEmpty());
    EXPECT_THAT(errors_of(kMixed, {flag}),
                ElementsAre(HasSubstr("must be carry_over with data.train.mixture")));
    EXPECT_THAT(errors_of(kTextData, {flag, "data.train.sample_weights_path=w"}),
                ElementsAre(HasSubstr("must be carry_over with data.train.sample_weights_path")));
  }
}

// ---- Messages

TEST(MessagesValidationTest, RequireTokenizerWithChatTemplate) {
  const std::string fields = "sequence: {max_length: 9}, fields: {messages: m}";
  valid_config(jsonl(fields + ", tokenizer: {path: t.json, chat_template: chatml}"));
  valid_config(
      jsonl("sequence: {max_length: 9, packing: true}, fields: {messages: m}, tokenizer: "
            "{path: t.json, chat_template: llama3}"));
  valid_config(jsonl(fields + ", tokenizer: {path: t.json, chat_template: mistral}"));
  EXPECT_THAT(errors_of(jsonl(fields + ", tokenizer: {path: t.json}")),
              ElementsAre(HasSubstr("data.train.tokenizer.chat_template: is required with "
                                    "fields.messages")));
  EXPECT_THAT(errors_of(jsonl(fields)),
              ElementsAre(HasSubstr("data.train.tokenizer.chat_template: is required with "
                                    "fields.messages")));
  EXPECT_THAT(errors_of(jsonl(fields + ", tokenizer: {path: t.json, chat_template: vicuna}")),
              ElementsAre(AllOf(HasSubstr("data.train.tokenizer.chat_template"),
                                HasSubstr("chatml"), HasSubstr("llama3"), HasSubstr("mistral"))));
  EXPECT_THAT(errors_of(jsonl("sequence: {max_length: 9}, fields: {messages: m, text: t}, "
                              "tokenizer: {path: t.json, chat_template: chatml}")),
              ElementsAre(HasSubstr("data.train.fields: requires one of input, text, messages")));
  EXPECT_THAT(errors_of(jsonl("fields: {messages: m}, tokenizer: {path: t.json, chat_template: "
                              "chatml}")),
              Contains(HasSubstr("data.train.fields.messages: requires sequence.max_length")));
}

TEST(MessagesValidationTest, RequireBuiltInLanguageModel) {
  const std::string messages = jsonl(
      "sequence: {max_length: 9}, fields: {messages: m}, tokenizer: {path: t.json, chat_template: "
      "chatml}");
  const std::string labels = jsonl("sequence: {max_length: 9}, fields: {input_ids: x, labels: y}");
  const std::string task = "task: {name: language_modeling}\n";
  for (const std::string name : {"plugin", "exported"}) {
    const std::string model = "model: {name: " + name + ", path: x}\n";
    EXPECT_THAT(errors_of(messages + task + model),
                ElementsAre(HasSubstr("data.train.fields.messages: is not supported by model " +
                                      name + " with task language_modeling")));
    EXPECT_THAT(errors_of(labels + task + model),
                ElementsAre(HasSubstr("data.train.fields.labels: is not supported by model " +
                                      name + " with task language_modeling")));
  }
}

TEST(MessagesValidationTest, LanguageModelingHasLabelPerToken) {
  const std::string fields = "fields: {input_ids: x, labels: y}, sequence: {max_length: 9";
  valid_config(jsonl(fields + "}"));
  EXPECT_THAT(errors_of(jsonl(fields + ", max_label_length: 9}")),
              ElementsAre(HasSubstr("data.train.sequence.max_label_length: is not supported by "
                                    "task language_modeling")));
}

TEST(MessagesValidationTest, ShareTokenizerWithText) {
  const std::string lengths = ", sequence: {max_length: 9}, tokenizer: {path: t.json";
  const std::string text = "{format: jsonl, path: a, fields: {text: t}" + lengths + "}}";
  const std::string chat =
      "{format: jsonl, path: b, fields: {messages: m}" + lengths + ", chat_template: chatml}}";
  valid_config("data:\n  train: " + text + "\n  val: " + chat + "\n");
  valid_config("data:\n  train: " + chat + "\n  val: " + text + "\n");
}

// ---- Packing

TEST(PackingValidationTest, RequiresDocumentsOfTokens) {
  valid_config(jsonl("sequence: {max_length: 9, packing: true}, fields: {text: t}"));
  valid_config(jsonl("sequence: {max_length: 9, packing: true}, fields: {input_ids: t}"));
  EXPECT_THAT(errors_of(jsonl("sequence: {packing: true}, fields: {text: t}")),
              ElementsAre(HasSubstr("data.train.sequence.packing: requires sequence.max_length")));
  EXPECT_THAT(errors_of(jsonl("sequence: {max_length: 9, packing: true}, fields: {input: x, label: "
                              "y}") +
                        kSequenceClassifier),
              Contains(HasSubstr("data.train.sequence.packing: requires fields.text, "
                                 "messages or input_ids without label")));
}

TEST(PackingValidationTest, RejectsWhatReadsAcrossDocumentsOrHasOtherSamples) {
  const std::string data = jsonl("sequence: {max_length: 9, packing: true}, fields: {text: t}");
  for (const std::string name : {"gpt", "gpt2", "llama"})
    valid_config(data + "model: {name: " + name + "}\n");
  EXPECT_THAT(errors_of(data + "model: {name: lstm_lm}\n"),
              ElementsAre(HasSubstr("data.train.sequence.packing: is not supported by model "
                                    "lstm_lm; remove it, or set model gpt, gpt2 or llama")));
  for (const std::string name : {"plugin", "exported"})
    EXPECT_THAT(
        errors_of(data + "model: {name: " + name + ", path: x}\n"),
        ElementsAre(HasSubstr("data.train.sequence.packing: is not supported by model " + name)));
  EXPECT_THAT(errors_of(data + "feed: {bucket_boundaries: [3]}\n"),
              ElementsAre(HasSubstr("feed.bucket_boundaries: cannot be combined with "
                                    "sequence.packing in data.train")));
  EXPECT_THAT(errors_of(data, {"data.train.sample_weights_path=w"}),
              ElementsAre(HasSubstr("data.train.sample_weights_path=w: cannot be combined with "
                                    "sequence.packing")));
}

// ---- Buckets

TEST(BucketValidationTest, RequiresIncreasingBoundariesUpToMaxLength) {
  const std::string data = jsonl("sequence: {max_length: 9}, fields: {text: t}");
  valid_config(data + "feed: {bucket_boundaries: [3, 9]}\n");
  valid_config(data + "feed: {bucket_boundaries: [4], shuffle: none, last_batch: drop}\n");
  EXPECT_THAT(errors_of(data + "feed: {bucket_boundaries: [3, 3]}\n"),
              ElementsAre("my.yaml:2:27: feed.bucket_boundaries: must be increasing, for example "
                          "[32, 64, 128]"));
  EXPECT_THAT(
      errors_of(data + "feed: {bucket_boundaries: [3, 12]}\n"),
      ElementsAre(HasSubstr("feed.bucket_boundaries: must not exceed sequence.max_length of "
                            "data.train (9), got 12")));
  EXPECT_THAT(errors_of(kTextData + "feed: {bucket_boundaries: [3]}\n"),
              ElementsAre(HasSubstr("feed.bucket_boundaries: requires sequence.max_length in "
                                    "data.train")));
}

TEST(BucketValidationTest, RequiresSamplesThatOccurOncePerEpoch) {
  const std::string padded =
      "{format: jsonl, path: a, fields: {text: t}, sequence: {max_length: 9}";
  const std::string feed = "feed: {bucket_boundaries: [3]}\n";
  for (const std::string keys : {"repeat: 2", "sample_weights_path: w", "refresh: epoch"})
    EXPECT_THAT(errors_of("data: {train: " + padded + ", " + keys + "}}\n" + feed),
                ElementsAre(HasSubstr("feed.bucket_boundaries: cannot be combined with mixture, "
                                      "sample_weights_path, repeat and refresh")))
        << keys;
  const std::string data = "data: {train: " + padded + "}}\n";
  for (const std::string other : {"shuffle: block", "shuffle: shards"})
    EXPECT_THAT(
        errors_of(data + "feed: {bucket_boundaries: [3], " + other + "}\n"),
        ElementsAre(HasSubstr("feed.bucket_boundaries: requires feed.shuffle full or none")))
        << other;
  EXPECT_THAT(errors_of(data + "feed: {bucket_boundaries: [3], producers: both}\n"),
              ElementsAre(HasSubstr("feed.bucket_boundaries: requires feed.producers internal")));
  const std::string others = ", b: " + padded + "}, c: " + padded + "}}\n" + feed;
  valid_config("data: {train: {concat: [b, c]}" + others);
  EXPECT_THAT(errors_of("data: {train: {mixture: {b: 1, c: 2}}" + others),
              ElementsAre(HasSubstr("feed.bucket_boundaries: cannot be combined with mixture")));
}

TEST(DataValidationTest, AcceptsStreamWithoutPath) {
  EXPECT_THAT(errors_of(train("format: text, stream: {source: external, num_threads: 8}") +
                        "train: {max_steps: 5}\n"),
              IsEmpty());
  EXPECT_THAT(errors_of(train("format: text, stream: {source: stdin}") + "train: {max_steps: 5}\n"),
              IsEmpty());
  // Runs of earlier releases have their default of glob.
  for (const char* const glob : {"", "glob: '**/*', "})
    EXPECT_THAT(errors_of(train("format: jsonl, fields: {input: x, label: y}, num_classes: 3, " +
                                std::string(glob) +
                                "path: incoming, stream: {source: spool, queue: random_shuffle}") +
                          kClassifier + "train: {max_steps: 5}\n"),
                IsEmpty());
}

TEST(DataValidationTest, RejectsWhatNeedsIndexInStream) {
  const auto expect_error = [](const std::string& keys, const std::string& key) {
    EXPECT_THAT(errors_of(train("format: text, stream: {source: stdin}, " + keys) +
                          "train: {max_steps: 5}\n"),
                ElementsAre(AllOf(HasSubstr("data.train." + key + ": "), HasSubstr("no index"))))
        << keys;
  };
  expect_error("path: a", "path");
  expect_error("glob: '*.txt'", "glob");
  expect_error("split: [0, 0.5]", "split");
  expect_error("split_by: random", "split_by");
  expect_error("split_seed: 3", "split_seed");
  expect_error("skip_samples: 1", "skip_samples");
  expect_error("max_samples: 1", "max_samples");
  expect_error("repeat: 2", "repeat");
  expect_error("sample_weights_path: a", "sample_weights_path");
  expect_error("refresh: epoch", "refresh");
  EXPECT_THAT(errors_of(train("format: text, stream: {source: stdin}") +
                        "train: {max_steps: 5}\nfeed: {shuffle: none}\n"),
              ElementsAre(HasSubstr("feed.shuffle: cannot be combined with data.train.stream")));
}

TEST(DataValidationTest, ValidatesStream) {
  const auto expect_error = [](const std::string& dataset, const std::string& key) {
    EXPECT_THAT(errors_of(train(dataset) + "train: {max_steps: 5}\n" +
                          (dataset.starts_with("format: jsonl") ? kClassifier : "")),
                ElementsAre(HasSubstr("data.train." + key + ": ")))
        << dataset;
  };
  const auto text = [](const std::string& keys) { return "format: text, stream: {" + keys + "}"; };
  expect_error(text(""), "stream.source");
  expect_error(text("source: ''"), "stream.source");
  expect_error(text("source: stdin, queue: lifo"), "stream.queue");
  expect_error(text("source: stdin, queue: padding_fifo"), "stream.queue");
  expect_error(text("source: stdin, capacity: 15"), "stream.capacity");
  expect_error(text("source: stdin, capacity: 100001"), "stream.capacity");
  expect_error(text("source: stdin, min_after_dequeue: 5"), "stream.min_after_dequeue");
  expect_error(text("source: stdin, queue: random_shuffle, min_after_dequeue: 985"),
               "stream.capacity");
  expect_error(text("source: stdin, num_threads: 2"), "stream.num_threads");
  expect_error(text("source: stdin, num_epochs: 2"), "stream.num_epochs");
  expect_error(text("source: external, num_epochs: 2"), "stream.num_epochs");
  expect_error(text("source: spool"), "path");
  expect_error("format: jsonl, fields: {input: x, label: y}, stream: {source: stdin}",
               "num_classes");
  EXPECT_THAT(errors_of(train(text("source: stdin"))),
              ElementsAre(HasSubstr("train.max_steps: is required with data.train.stream")));
  EXPECT_THAT(errors_of("data: {train: {format: text, path: a}, "
                        "val: {format: text, path: b, stream: {source: stdin}}}\n"),
              ElementsAre(HasSubstr("data.val.stream: is only used in data.train")));
  EXPECT_THAT(errors_of(train("format: csv, path: a, fields: {label: y}, "
                              "stream: {source: stdin}") +
                        kClassifier),
              ElementsAre(AllOf(HasSubstr("data.train.stream: "), HasSubstr("only by"))));
}

TEST(DataValidationTest, ValidatesNamesOfClassIndices) {
  const auto errors_with = [](const std::string& names) {
    return errors_of(train("format: numpy, path: x, labels_path: y, class_names: " + names) +
                     kClassifier);
  };
  EXPECT_THAT(errors_with("[cat, dog]"), ElementsAre());
  EXPECT_THAT(errors_with("['0', '1', other]"), ElementsAre());
  EXPECT_THAT(
      errors_with("[cat, '7']"),
      ElementsAre(HasSubstr("data.train.class_names: has '7' for label 1, which is the name "
                            "of another label")));
  EXPECT_THAT(errors_with("[cat, cat]"),
              ElementsAre(HasSubstr("data.train.class_names: has 'cat' twice")));
  EXPECT_THAT(errors_of(train("format: jsonl, fields: {input: x, label: y}, class_names: [a, b], "
                              "stream: {source: stdin}") +
                        "train: {max_steps: 5}\n" + kClassifier),
              ElementsAre());
}

// A mixture of a stream and a dataset with an index, each with more keys.
std::string stream_mixture(const std::string& stream, const std::string& indexed,
                           const std::string& rest = "") {
  return "data: {train: {mixture: {live: 1, old: 3}}, live: {format: text, " + stream +
         "}, old: {format: text, path: a" + indexed + "}" + rest + "}\ntrain: {max_steps: 5}\n";
}

TEST(DataValidationTest, RequiresPriorityForPriorityQueue) {
  const auto errors = [](const std::string& dataset) {
    return errors_of(train(dataset) + "train: {max_steps: 5}\n" +
                     (dataset.starts_with("format: text") ? "" : kClassifier));
  };
  const std::string jsonl = "format: jsonl, num_classes: 4, fields: {input: x, label: y";
  const std::string queue = "stream: {source: stdin, queue: priority}";
  EXPECT_THAT(errors(jsonl + ", priority: p}, " + queue), IsEmpty());
  EXPECT_THAT(errors(jsonl + "}, " + queue),
              ElementsAre(HasSubstr("data.train.fields.priority: is required with stream.queue "
                                    "priority; set it to the name of an integer")));
  EXPECT_THAT(errors("format: text, " + queue),
              ElementsAre(HasSubstr("data.train.stream.queue: priority requires fields.priority, "
                                    "and records of text and tokens have no fields")));
  const auto unused = ElementsAre(
      HasSubstr("data.train.fields.priority: is only used by stream.queue priority; remove it"));
  EXPECT_THAT(errors(jsonl + ", priority: p}, stream: {source: stdin}"), unused);
  EXPECT_THAT(errors(jsonl + ", priority: p}, path: a"), unused);
}

TEST(DataValidationTest, AcceptsStreamInMixture) {
  const std::string keys = ", split: [0, 0.5], sample_weights_path: w";
  EXPECT_THAT(errors_of(stream_mixture("stream: {source: stdin}", keys) +
                        "feed: {shuffle: block, num_workers: 4}\n"),
              IsEmpty());
  const auto config = valid_config(stream_mixture("stream: {source: stdin}", ""));
  ASSERT_NE(streamed_dataset(config), nullptr);
  EXPECT_EQ(streamed_dataset(config)->first, "live");
  EXPECT_EQ(training_stream(config)->source, "stdin");
  EXPECT_THAT(sampled_datasets(config), ElementsAre("old", "live"));
}

TEST(DataValidationTest, ValidatesStreamInMixture) {
  const std::string stream = "stream: {source: stdin}";
  const auto expect_error = [](const std::string& text, const std::string& key,
                               const std::string& what) {
    EXPECT_THAT(errors_of(text), ElementsAre(AllOf(HasSubstr(key + ": "), HasSubstr(what))))
        << text;
  };
  expect_error(stream_mixture(stream + ", split: [0, 0.5]", ""), "data.live.split", "no index");
  expect_error(stream_mixture(stream + ", path: b", ""), "data.live.path", "no index");
  expect_error(stream_mixture("stream: {source: stdin, capacity: 3}", ""),
               "data.live.stream.capacity", "at least");
  expect_error(stream_mixture(stream, ", refresh: epoch"), "data.old.refresh",
               "cannot be combined with data.live.stream");
  expect_error(stream_mixture(stream, "") + "feed: {num_processes: 0}\n", "feed.num_processes",
               "with data.live.stream");
  expect_error(stream_mixture(stream, "") + "feed: {producers: both}\n", "feed.producers",
               "with data.live.stream");
  expect_error(stream_mixture(stream, "") + "feed: {last_batch: drop}\n", "feed.last_batch",
               "data.train.mixture");
  expect_error(stream_mixture(stream, ", repeat: 2"), "data.old.repeat", "sets the shares");
  expect_error(stream_mixture(stream, "") + "eval: {datasets: [live]}\n", "eval.datasets",
               "cannot be read again");
  expect_error(stream_mixture(stream, "") + "eval: {datasets: [train]}\n", "eval.datasets",
               "cannot be read again");
  expect_error(stream_mixture(stream, "", ", val: {mixture: {live: 1, old: 1}}"),
               "data.val.mixture", "which only data.train can read");
  const std::string text = "{format: text, " + stream + "}";
  expect_error("data: {train: {mixture: {a: 1, b: 1}}, a: " + text + ", b: " + text +
                   "}\ntrain: {max_steps: 5}\n",
               "data.train.mixture", "more than one stream, 'a' and 'b'");
  expect_error("data: {train: {concat: [a, b]}, a: " + text +
                   ", b: {format: text, path: b}}\ntrain: {max_steps: 5}\n",
               "data.a.stream", "use a mixture");
  const std::string mixture = stream_mixture(stream, "");
  expect_error(mixture.substr(0, mixture.find("train: {max_steps")), "train.max_steps",
               "is required with data.live.stream");
}

}  // namespace
}  // namespace stoker::config::test
